//! Multi-head latent attention, decoding, in its absorbed form: all heads share one cache row per token, whose first
//! part is the value too.
//!
//! `02_wgmma` under Nsight Compute (H200, 18 November 2026; 128 sequences of 8192, 128 heads, bf16): the products need
//! 0.54 million cycles at 4096 FLOP per cycle and SM, the kernel takes 0.76; the tensor pipe is busy 70 % of the time, memory
//! 56 %: 1.26 GB are read where there are 1.21.

use crate::contract::*;
use crate::cpu::attention::OnCpu;
use crate::mutant::attention::Wrong;
use crate::plain::attention::How;
use crate::truth::attention::{self, Attends, Geometry, Ints, paged::Decoding};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: MlaDecode::IMPLS,
    oracle: oracle!("mla_decode"),
    cuda: kernels!("mla_decode", "01_split_kv", "02_wgmma"),
    mutants: &[MlaDecode::KEYS, MlaDecode::SOFTMAX, MlaDecode::PAGES, &[SCALE_OF_THE_ROW]],
};

const SCALE_OF_THE_ROW: Mutant =
    Mutant::new("scale-of-the-row", "logits are scaled by the root of the cache row's width, not of the head's own")
        .plain(&How { twist: |c, geo| geo.scale = 1.0 / (width(c) as f64).sqrt(), ..MlaDecode::RIGHT })
        .on(|c| c.axis("l") > 1 && width(c) >= 24 && width(c) != 192);

struct MlaDecode;

impl Attends for MlaDecode {
    fn geometry(c: &Case, ints: Ints) -> Geometry {
        decoding(c).geometry(c, ints)
    }
}

fn width(c: &Case) -> usize {
    c.count("rank") + c.count("rope")
}

fn decoding(c: &Case) -> Decoding {
    let (hq, dv, scale) = (c.axis("h"), c.count("rank"), c.number("scale"));
    Decoding { tensors: ["q", "cache", "cache"], hq, hkv: 1, dk: width(c), dv, scale }
}

const OP: Op = Op {
    name: "mla-decode",
    about: "absorbed MLA: o = softmax(scale * q c^T) c[:rank] over paged cache rows c of rank + rope, shared by all heads",
    axes: &[
        Axis { name: "b", about: "sequences", tries: &[1, 2, 3, 5] },
        Axis { name: "l", about: "cached tokens of the longest", tries: &[1, 2, 17, 130, 300] },
        Axis { name: "h", about: "query heads", tries: &[1, 2, 5, 16] },
    ],
    attrs: &[
        attention::QUERIES,
        attention::PAGE,
        size("rank", "512", &[1, 8, 64, 128], "width of the latent part, which is the value"),
        count("rope", "64", &[0, 8, 64], "width of the positional part"),
        attention::LENGTHS,
        positive("scale", "0.07216878364870323", "of the logits; 1/sqrt(128 + 64), the head before absorption"),
        attention::LSE,
        MEMORY,
    ],
    default_configs: &["1x32768x128", "128x1024x128"],
    check: |c| attention::check(c, "query tokens", c.axis("b") * c.count("q")),
    distinct_rows: Some(|c| c.axis("b") * c.count("q") + c.axis("h") - 1),
    tensors: |c| decoding(c).tensors(c),
    cost: |c, _| decoding(c).cost(c),
    derive: |c, tensor, inputs, rows, out| decoding(c).derive(c, tensor, inputs, rows, out),
    regions: attention::REGIONS,
    oracle: |c, inputs, sink| attention::forward(MlaDecode::geometry, c, inputs, sink),
    ..Op::NEW
};
