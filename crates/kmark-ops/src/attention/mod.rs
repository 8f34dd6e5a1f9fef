//! Attention over dense tensors: softmax(scale * q k^T) v, per batch and head.

use crate::contract::*;
use crate::cpu::attention::{naive, tiled};
use crate::mutants::attention as wrong;
use crate::truth::attention::{self, Attends, Geometry, Ints, dense};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive::<Attention>(), &tiled::<Attention>()],
    oracle: oracle!("attention"),
    cuda: &[&kernel!("attention", "01_flash"), &kernel!("attention", "01_fma"), &kernel!("attention", "02_wgmma")],
    mutants: &[
        wrong::sink_dropped::<Attention>(),
        wrong::last_key_lost::<Attention>(),
        wrong::scale_missing::<Attention>(),
        wrong::large_logits_clipped::<Attention>(),
        wrong::no_maximum::<Attention>(),
        wrong::maximum_of_the_row_before::<Attention>(),
        wrong::lse_in_base_2(),
        wrong::diagonal_missing::<Attention>(),
        wrong::window_ignored::<Attention>(),
        wrong::key_heads_interleaved::<Attention>(),
    ],
    loose: &[wrong::query_in_half::<Attention>()],
};

struct Attention;

impl Attends for Attention {
    fn geometry(c: &Case, _: Ints) -> Geometry {
        dense::geometry(c)
    }
}

const OP: Op = Op {
    name: "attention",
    about: "o = softmax(scale * q k^T) v per head; causal, window, grouped key heads, lse (natural log) on request",
    axes: dense::AXES,
    attrs: &[dense::CAUSAL, attention::WINDOW, attention::SCALE, attention::LSE, dense::LAYOUT, MEMORY],
    default_configs: &["1x16x16x1024x1024x128", "1x32x8x2048x2048x128"],
    check: dense::check,
    distinct_rows: Some(dense::distinct_rows),
    tensors,
    cost: |c, _| attention::cost(c, &dense::geometry(c), 0),
    derive: dense::derive,
    regions: attention::REGIONS,
    oracle: |c, inputs, sink| attention::forward(Attention::geometry, c, inputs, sink),
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let mut t = dense::inputs(c);
    t.extend(attention::outputs(c, &dense::query_shape(c), &dense::lse_shape(c)));
    t
}
