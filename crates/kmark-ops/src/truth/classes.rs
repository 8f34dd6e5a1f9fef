//! Logits against class indices: what cross entropy and its backwards share of their contracts.

use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::fill::Fill;
use kmark_core::op::{Attr, AttrKind, Axis};
use kmark_core::tensor::TensorSpec;

pub const AXES: &[Axis] =
    &[Axis { name: "m", about: "rows", tries: &[] }, Axis { name: "n", about: "classes", tries: &[] }];

pub const IGNORE: Attr =
    Attr { name: "ignore", kind: AttrKind::Integer, default: "-100", about: "target of a row that is ignored" };

/// The logits and the class of each row.
pub fn inputs(c: &Case) -> Vec<TensorSpec> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let classes = Fill::Classes { classes: n, ignore: c.number("ignore") as i64 };
    vec![
        TensorSpec::input("x", c.dtype, &[m, n], Fill::logits(c.dtype)).laid_out(c.attr("memory")),
        TensorSpec::input("target", DType::I64, &[m], classes),
    ]
}
