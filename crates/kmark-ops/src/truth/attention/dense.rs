//! Dense q, k and v: what attention and its backward share.

use super::{Geometry, Seq, fill_keys, fill_queries, kind, masked};
use crate::words::{one_of, yes_no};
use kmark_core::case::Case;
use kmark_core::op::{Attr, Axis};
use kmark_core::tensor::View;
use std::ops::Range;

pub const AXES: &[Axis] = &[
    Axis { name: "b", about: "batch", tries: &[1, 2] },
    Axis { name: "hq", about: "query heads", tries: &[1, 2, 4, 6] },
    Axis { name: "hkv", about: "key heads", tries: &[1, 2, 3] },
    Axis { name: "sq", about: "queries", tries: &[1, 2, 17, 65, 130] },
    Axis { name: "sk", about: "keys", tries: &[1, 3, 40, 129, 200] },
    Axis { name: "d", about: "head size", tries: &[1, 8, 24, 64, 128] },
];
pub const CAUSAL: Attr = yes_no("causal", "whether a query sees no later key");
pub const LAYOUT: Attr =
    one_of("layout", &["bhsd", "bshd"], "order of the dimensions: heads before positions, or after");

pub fn check(c: &Case) -> Result<(), String> {
    super::check(c, "queries", c.axis("b") * c.axis("sq"))
}

pub fn distinct_rows(c: &Case) -> usize {
    c.axis("hq") + c.axis("sq") - 1
}

fn shape(c: &Case, heads: &str, len: &str) -> [usize; 4] {
    let [b, heads, len, d] = ["b", heads, len, "d"].map(|a| c.axis(a));
    if c.attr("layout") == "bhsd" { [b, heads, len, d] } else { [b, len, heads, d] }
}

/// Of q, o and their gradients.
pub fn query_shape(c: &Case) -> [usize; 4] {
    shape(c, "hq", "sq")
}

/// Of k, v and their gradients.
pub fn key_shape(c: &Case) -> [usize; 4] {
    shape(c, "hkv", "sk")
}

pub fn lse_shape(c: &Case) -> [usize; 3] {
    ["b", "hq", "sq"].map(|a| c.axis(a))
}

pub fn geometry(c: &Case) -> Geometry {
    let [hq, hkv, sq, sk, d] = ["hq", "hkv", "sq", "sk", "d"].map(|a| c.axis(a));
    let heads_first = c.attr("layout") == "bhsd";
    let row = move |heads: usize, len: usize, b: usize, i: usize, head: usize| {
        if heads_first { (b * heads + head) * len + i } else { (b * len + i) * heads + head }
    };
    let seqs = vec![Seq { queries: sq, keys: sk }; c.axis("b")];
    Geometry {
        tensors: ["q", "k", "v"],
        visible: masked(&seqs, c.flag("causal"), c.count("window")),
        seqs,
        hq,
        hkv,
        dk: d,
        dv: d,
        scale: super::scale(c),
        q_row: Box::new(move |b, i, head| row(hq, sq, b, i, head)),
        lse_at: Box::new(move |b, i, head| (b * hq + head) * sq + i),
        k_row: Box::new(move |b, j, head| row(hkv, sk, b, j, head)),
    }
}

/// Rows of q or k.
pub fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (spec, scale) = (inputs.spec(tensor), super::scale(c));
    match tensor {
        "q" => fill_queries(spec, c.seed, rows, out, |row| {
            let (_, i, head) = place(c, "hq", "sq", row);
            i + head
        }),
        _ => fill_keys(spec, (c.seed, scale), rows, out, |row| kind(place(c, "hkv", "sk", row).1, c.axis("sk"))),
    }
}

/// Sequence, position and head of a row of so many heads and positions.
pub fn place(c: &Case, heads: &str, len: &str, row: usize) -> (usize, usize, usize) {
    let (heads, len) = (c.axis(heads), c.axis(len));
    match c.attr("layout") {
        "bhsd" => (row / len / heads, row % len, row / len % heads),
        _ => (row / heads / len, row / heads % len, row % heads),
    }
}
