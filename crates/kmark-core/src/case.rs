//! A case: an op at one problem. Its id is derived from its content and shows every axis, and every attribute that
//! differs from the op's default, so that ids stay stable when an op gains an attribute.

use crate::dtype::DType;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

pub const DEFAULT_SEED: u64 = 42;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    pub id: String,
    pub op: String,
    pub dtype: DType,
    pub axes: IndexMap<String, u64>,
    /// Every attribute of the op, in the op's order, defaults filled in.
    pub attrs: IndexMap<String, String>,
    pub seed: u64,
}

impl Case {
    pub fn axis(&self, name: &str) -> usize {
        *self.axes.get(name).unwrap_or_else(|| panic!("{} has no axis {name}", self.op)) as usize
    }

    pub fn attr(&self, name: &str) -> &str {
        self.attrs.get(name).unwrap_or_else(|| panic!("{} has no attribute {name}", self.op))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.attr(name) == "yes"
    }

    /// Whether every launch must leave the same bits: attribute `deterministic`, of ops that have it.
    pub fn repeats_bits(&self) -> bool {
        self.attrs.get("deterministic").is_some_and(|v| v == "yes")
    }

    pub fn number(&self, name: &str) -> f64 {
        self.attr(name).parse().expect("attributes are checked when the case is made")
    }

    /// An attribute that counts.
    pub fn count(&self, name: &str) -> usize {
        self.attr(name).parse().expect("attributes are checked when the case is made")
    }

    /// Attribute `scale`, or what it stands for when it is `auto`.
    pub fn scale(&self, auto: f64) -> f64 {
        if self.attr("scale") == "auto" { auto } else { self.number("scale") }
    }

    /// The dtype an attribute names; `same` is the case's own.
    pub fn attr_dtype(&self, name: &str) -> DType {
        match self.attr(name) {
            "same" => self.dtype,
            word => DType::parse(word).expect("attributes are checked when the case is made"),
        }
    }

    /// The type of saved statistics (rstd, mean, lse, loss) and of accumulation.
    pub fn acc(&self) -> DType {
        self.dtype.accumulator()
    }
}
