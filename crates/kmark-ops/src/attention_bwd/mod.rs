//! Backward of attention: the gradients of q, k and v from the saved output and lse.
//!
//! `02_wgmma` is 1.01 times as fast as FlashAttention-3 with head size 128 and 1.03 to 1.08 times with 64 (H200, 20 November 2026;
//! evidence/h200/attention). Before lse and delta became columns of the products, Nsight Compute said (2 × 16 heads, 8192 queries and
//! keys of 128, bf16): the five products need 5.08 million cycles at 4096 FLOP per cycle and SM, the kernel takes 6.66; the tensor
//! pipe is busy 74 % of the time, memory 4 %, L2 hits are 97 %; of 64 columns it was busy 59 %. Those counters were not read since.

mod cpu;
mod plain;

use crate::contract::*;
use crate::truth::attention::{self, Rows, backward::backward, dense, weigh};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[
        &naive(&plain::RIGHT, text!("plain.rs", "mod.rs")),
        &CpuImpl {
            about: "tiles of 64 queries and 128 keys, five products each, all cores",
            ..vectorised(cpu::bind, text!("cpu.rs"))
        },
    ],
    oracle: oracle!("attention_bwd"),
    cuda: kernels!("attention_bwd", "01_flash", "01_fma", "02_wgmma"),
    mutants: &[plain::MUTANTS],
};

const DETERMINISTIC: Attr = yes_no("deterministic", "whether every launch must leave the same bits");

const OP: Op = Op {
    name: "attention-bwd",
    about: "dq, dk, dv from dout, o and lse: p = exp(scale * q k - lse), ds = p * (dout v - sum(dout * o))",
    axes: dense::AXES,
    attrs: &[dense::CAUSAL, attention::WINDOW, attention::SCALE, DETERMINISTIC, dense::LAYOUT, MEMORY],
    default_configs: &["1x16x16x1024x1024x128", "1x32x8x2048x2048x128"],
    check: dense::check,
    distinct_rows: Some(dense::distinct_rows),
    tensors,
    cost,
    derive,
    oracle: backward,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (queries, keys, memory) = (dense::query_shape(c), dense::key_shape(c), c.attr("memory"));
    let mut t = attention::inputs(c, &queries, &keys);
    t.extend([
        TensorSpec::input("o", c.dtype, &queries, Fill::Derived).laid_out(memory),
        TensorSpec::input("dout", c.dtype, &queries, NORMAL).laid_out(memory),
        TensorSpec::input("lse", c.acc(), &dense::lse_shape(c), Fill::Derived),
        TensorSpec::output("dq", c.dtype, &queries).laid_out(memory),
        TensorSpec::output("dk", c.dtype, &keys).laid_out(memory),
        TensorSpec::output("dv", c.dtype, &keys).laid_out(memory),
    ]);
    t
}

/// Five products per visible pair: the logits again, dp, dv, dq and dk. Rows of k and v that nobody sees are not
/// read, but their gradients are written.
fn cost(c: &Case, _: &[TensorSpec]) -> Cost {
    let geo = dense::geometry(c);
    let (e, d) = (c.dtype.size() as u64, geo.dk as u64);
    let queries = dense::lse_shape(c).iter().product::<usize>() as u64;
    let keys = (c.axis("b") * c.axis("hkv") * c.axis("sk")) as u64;
    Cost {
        bytes_read: (3 * queries + 2 * geo.rows_seen()) * d * e + queries * c.acc().size() as u64,
        bytes_written: (queries + 2 * keys) * d * e,
        flops: 10 * geo.pairs() * d,
    }
}

/// `o` and `lse` as the forward op leaves them: a row that sees no key has 0 and minus infinity.
fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    if tensor == "q" || tensor == "k" {
        return dense::derive(c, tensor, inputs, rows, out);
    }
    let geo = dense::geometry(c);
    let ([_, hq, sq], d) = (dense::lse_shape(c), geo.dk);
    // Rows of o are queries of a head, rows of lse all queries of a head.
    let wanted: Vec<_> = match tensor {
        "lse" => rows.flat_map(|row| (0..sq).map(move |i| (row / hq, i, row % hq))).collect(),
        _ => rows.map(|row| dense::place(c, "hq", "sq", row)).collect(),
    };
    let mut held: Option<((usize, usize), Rows, Rows)> = None;
    let width = if tensor == "lse" { 1 } else { d };
    for ((s, i, head), out) in wanted.into_iter().zip(out.chunks_mut(width)) {
        let kv_head = head / geo.group();
        if held.as_ref().is_none_or(|h| h.0 != (s, kv_head)) {
            let gather = |name| Rows::gather(inputs, name, d, geo.seqs[s].keys, |j| (geo.k_row)(s, j, kv_head));
            held = Some(((s, kv_head), gather("k"), gather("v")));
        }
        let (_, k, v) = held.as_ref().expect("just gathered");
        let keys = (geo.visible)(s, i);
        let q = inputs.take("q", (geo.q_row)(s, i, head) * d, d);
        let weights = weigh(&q, k, keys.clone(), geo.scale, c.acc());
        if tensor == "lse" {
            out[0] = weights.map_or(f64::NEG_INFINITY, |w| w.lse);
            continue;
        }
        for (p, j) in weights.iter().flat_map(|w| &w.p).zip(keys) {
            out.iter_mut().zip(v.row(j)).for_each(|(o, v)| *o += p * v);
        }
    }
}
