//! What contracts say again and again: attributes of a kind, tensors of a case with axes `m` and `n`.

use kmark_core::case::Case;
use kmark_core::fill::Fill;
use kmark_core::op::{Attr, AttrKind, WEIGHT_DTYPES, YES_NO};
use kmark_core::tensor::TensorSpec;

pub const NORMAL: Fill = Fill::Normal { mean: 0.0, std: 1.0 };

/// One of a few words, the first unless another is asked for.
pub const fn one_of(name: &'static str, words: &'static [&'static str], about: &'static str) -> Attr {
    Attr { name, kind: AttrKind::OneOf(words), default: words[0], about }
}

/// No unless asked for.
pub const fn yes_no(name: &'static str, about: &'static str) -> Attr {
    Attr { name, kind: YES_NO, default: "no", about }
}

/// A dtype: that of the activations unless another is asked for.
pub const fn dtype(name: &'static str, about: &'static str) -> Attr {
    Attr { name, kind: WEIGHT_DTYPES, default: "same", about }
}

pub const fn positive(name: &'static str, default: &'static str, about: &'static str) -> Attr {
    Attr { name, kind: AttrKind::Positive, default, about }
}

/// A whole number from 0 that tests draw from `tries`.
pub const fn count(name: &'static str, default: &'static str, tries: &'static [u64], about: &'static str) -> Attr {
    Attr { name, kind: AttrKind::Count(tries), default, about }
}

/// The same from 1.
pub const fn size(name: &'static str, default: &'static str, tries: &'static [u64], about: &'static str) -> Attr {
    Attr { name, kind: AttrKind::Size(tries), default, about }
}

fn shape(c: &Case) -> [usize; 2] {
    ["m", "n"].map(|axis| c.axis(axis))
}

/// A matrix of the case's rows, laid out as attribute `memory` says.
pub fn matrix_in(c: &Case, name: &'static str, fill: Fill) -> TensorSpec {
    TensorSpec::input(name, c.dtype, &shape(c), fill).laid_out(c.attr("memory"))
}

pub fn matrix_out(c: &Case, name: &'static str) -> TensorSpec {
    TensorSpec::output(name, c.dtype, &shape(c)).laid_out(c.attr("memory"))
}

/// A number for each row, in the accumulator's type.
pub fn per_row_in(c: &Case, name: &'static str, fill: Fill) -> TensorSpec {
    TensorSpec::input(name, c.acc(), &[c.axis("m")], fill)
}

pub fn per_row_out(c: &Case, name: &'static str) -> TensorSpec {
    TensorSpec::output(name, c.acc(), &[c.axis("m")])
}

/// A gradient of the weight, or of what has its shape.
pub fn weight_out(c: &Case, name: &'static str) -> TensorSpec {
    TensorSpec::output(name, c.attr_dtype("w"), &[c.axis("n")])
}

/// The weight of each column, of the dtype that attribute `w` says.
pub fn weight(c: &Case) -> TensorSpec {
    TensorSpec::input("w", c.attr_dtype("w"), &[c.axis("n")], Fill::Normal { mean: 1.0, std: 0.25 })
}
