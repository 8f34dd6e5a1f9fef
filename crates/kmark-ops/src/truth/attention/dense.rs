//! Dense q, k and v: what attention and its backward share.

use super::{Geometry, Seq, fill_keys, fill_queries, kind, masked};
use kmark_core::case::Case;
use kmark_core::fill::Fill;
use kmark_core::op::{Attr, AttrKind, Axis, YES_NO};
use kmark_core::tensor::{TensorSpec, View};
use std::ops::Range;

pub const AXES: &[Axis] = &[
    Axis { name: "b", about: "batch", tries: &[1, 2] },
    Axis { name: "hq", about: "query heads", tries: &[1, 2, 4, 6] },
    Axis { name: "hkv", about: "key heads", tries: &[1, 2, 3] },
    Axis { name: "sq", about: "queries", tries: &[1, 2, 17, 65, 130] },
    Axis { name: "sk", about: "keys", tries: &[1, 3, 40, 129, 200] },
    Axis { name: "d", about: "head size", tries: &[1, 8, 24, 64, 128] },
];
pub const CAUSAL: Attr =
    Attr { name: "causal", kind: YES_NO, default: "no", about: "whether a query sees no later key" };
pub const LAYOUT: Attr = Attr {
    name: "layout",
    kind: AttrKind::OneOf(&["bhsd", "bshd"]),
    default: "bhsd",
    about: "order of the dimensions: heads before positions, or after",
};

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
        scale: c.scale(1.0 / (d as f64).sqrt()),
        q_row: Box::new(move |b, i, head| row(hq, sq, b, i, head)),
        lse_at: Box::new(move |b, i, head| (b * hq + head) * sq + i),
        k_row: Box::new(move |b, j, head| row(hkv, sk, b, j, head)),
    }
}

/// q, k and v.
pub fn inputs(c: &Case) -> Vec<TensorSpec> {
    let normal = Fill::Normal { mean: 0.0, std: 1.0 };
    let input = |name, shape: [usize; 4], fill| TensorSpec::input(name, c.dtype, &shape, fill);
    vec![
        input("q", query_shape(c), Fill::Derived).laid_out(c.attr("memory")),
        input("k", key_shape(c), Fill::Derived).laid_out(c.attr("memory")),
        input("v", key_shape(c), normal).laid_out(c.attr("memory")),
    ]
}

/// Rows of q or k.
pub fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let [hq, hkv, sq, sk] = ["hq", "hkv", "sq", "sk"].map(|a| c.axis(a));
    let heads_first = c.attr("layout") == "bhsd";
    // Position and head of a row.
    let place = |row: usize, heads: usize, len: usize| {
        if heads_first { (row % len, row / len % heads) } else { (row / heads % len, row % heads) }
    };
    if tensor == "q" {
        fill_queries(inputs.spec("q"), c.seed, rows, out, |row| {
            let (i, head) = place(row, hq, sq);
            i + head
        });
    } else {
        let scale = geometry(c).scale;
        fill_keys(inputs.spec("k"), c.seed, scale, rows, out, |row| kind(place(row, hkv, sk).0, sk));
    }
}
