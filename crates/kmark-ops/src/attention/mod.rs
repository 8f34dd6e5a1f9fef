//! Attention over dense tensors: softmax(scale * q k^T) v, per batch and head.
//!
//! `02_wgmma` under Nsight Compute (H200, 18 November 2026; 2 × 16 heads, 8192 queries and keys of 128, bf16): the products
//! need 2.03 million cycles at 4096 FLOP per cycle and SM, the kernel takes 2.29; the tensor pipe is busy 86 % of the time,
//! memory 11 %, L2 hits are 86 %. With a causal mask: 1.02 and 1.20 million cycles, 85 %, 8 % and 91 %.

use crate::contract::*;
use crate::cpu::attention::OnCpu;
use crate::mutant::attention::Wrong;
use crate::truth::attention::{self, Attends, Geometry, Ints, dense};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: Attention::IMPLS,
    oracle: oracle!("attention"),
    cuda: kernels!("attention", "01_flash", "01_fma", "02_wgmma"),
    mutants: &[Attention::KEYS, Attention::SOFTMAX, Attention::MASKS, Attention::HEADS],
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
    let mut t = attention::inputs(c, &dense::query_shape(c), &dense::key_shape(c));
    t.extend(attention::outputs(c, &dense::query_shape(c), &dense::lse_shape(c)));
    t
}
