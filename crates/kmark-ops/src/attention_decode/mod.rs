//! Attention of a few new tokens over a paged cache of keys and values: decoding.
//!
//! `02_equal_shares` under Nsight Compute (H200, 18 November 2026; 64 sequences of 4096, 32 heads over 8 of 128, bf16): it has
//! to read 1.074 GB and reads 1.075, in 255 µs: 88 % of what the memory's data sheet says, 4.22 TB/s; the tensor pipe is busy
//! 5 % of the time.
//!
//! `03_cluster` (H200, 18 November 2026; one sequence, 32 heads over 8 of 128, bf16): 1024 keys in 6.4 µs (`01_split_kv` 13.4),
//! 32768 at 0.70 of the read roof. Of 131072 it took 147 µs, `02_equal_shares` 130 (an H200 holds seven clusters of 16 blocks at once,
//! not eight), so that blocks take 4096 keys at most.

use crate::contract::*;
use crate::cpu::attention::OnCpu;
use crate::mutant::attention::Wrong;
use crate::truth::attention::{self, Attends, Geometry, Ints, paged::Decoding};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: Decode::IMPLS,
    oracle: oracle!("attention_decode"),
    cuda: kernels!("attention_decode", "01_split_kv", "02_equal_shares", "03_cluster"),
    mutants: &[Decode::KEYS, Decode::SOFTMAX, Decode::HEADS, Decode::PAGES],
};

struct Decode;

impl Attends for Decode {
    fn geometry(c: &Case, ints: Ints) -> Geometry {
        decoding(c).geometry(c, ints)
    }
}

fn decoding(c: &Case) -> Decoding {
    let [hq, hkv, d] = ["hq", "hkv", "d"].map(|a| c.axis(a));
    Decoding { tensors: ["q", "k_cache", "v_cache"], hq, hkv, dk: d, dv: d, scale: attention::scale(c) }
}

const OP: Op = Op {
    name: "attention-decode",
    about: "attention of the last q tokens of each sequence over a paged KV cache (page_table, lengths), causal among them",
    axes: &[
        Axis { name: "b", about: "sequences", tries: &[1, 2, 3, 5] },
        Axis { name: "l", about: "cached tokens of the longest", tries: &[1, 2, 17, 130, 300] },
        Axis { name: "hq", about: "query heads", tries: &[1, 2, 4, 8] },
        Axis { name: "hkv", about: "key heads", tries: &[1, 2] },
        Axis { name: "d", about: "head size", tries: &[1, 8, 24, 64, 64] },
    ],
    attrs: &[attention::QUERIES, attention::PAGE, attention::LENGTHS, attention::SCALE, attention::LSE, MEMORY],
    default_configs: &["32x1024x32x8x128", "128x1024x4x4x128"],
    check: |c| attention::check(c, "query tokens", c.axis("b") * c.count("q")),
    distinct_rows: Some(|c| c.axis("b") * c.count("q") + c.axis("hq") - 1),
    tensors: |c| decoding(c).tensors(c),
    cost: |c, _| decoding(c).cost(c),
    derive: |c, tensor, inputs, rows, out| decoding(c).derive(c, tensor, inputs, rows, out),
    regions: attention::REGIONS,
    oracle: |c, inputs, sink| attention::forward(Decode::geometry, c, inputs, sink),
    ..Op::NEW
};
