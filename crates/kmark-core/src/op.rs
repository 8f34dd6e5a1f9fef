//! What an op is: its contract (tensors, attributes), its truth (fp64 oracle, slack, invariants) and its perfect cost.
//! An op knows nothing of implementations, devices or time.

use crate::case::Case;
use crate::cost::Cost;
use crate::dtype::DType;
use crate::gate::{Invariant, Sink, Verify};
use crate::tensor::{Role, TensorSpec, View};
use std::ops::Range;

pub struct Axis {
    pub name: &'static str,
    pub about: &'static str,
    /// Sizes that tests draw from; none: any.
    pub tries: &'static [u64],
}

/// Rows and row length: the axes of every op that treats rows on their own.
pub const MATRIX: &[Axis] =
    &[Axis { name: "m", about: "rows", tries: &[] }, Axis { name: "n", about: "row length", tries: &[] }];

#[derive(Clone, Copy)]
pub enum AttrKind {
    OneOf(&'static [&'static str]),
    Positive,
    Integer,
    /// A whole number from 0; tests draw from those named.
    Count(&'static [u64]),
    /// A whole number from 1; tests draw from those named.
    Size(&'static [u64]),
    /// A positive number, or `auto`: what the op's contract says.
    Scale,
}

impl AttrKind {
    pub fn describe(self) -> String {
        match self {
            AttrKind::OneOf(words) => words.join("|"),
            AttrKind::Positive => "a positive number".into(),
            AttrKind::Integer => "a whole number".into(),
            AttrKind::Count(_) => "a whole number from 0".into(),
            AttrKind::Size(_) => "a whole number from 1".into(),
            AttrKind::Scale => "auto or a positive number".into(),
        }
    }
}

pub struct Attr {
    pub name: &'static str,
    pub kind: AttrKind,
    pub default: &'static str,
    pub about: &'static str,
}

pub const YES_NO: AttrKind = AttrKind::OneOf(&["no", "yes"]);
/// Dtype of a weight: the activations' own, or named.
pub const WEIGHT_DTYPES: AttrKind = AttrKind::OneOf(&["same", "f32", "f16", "bf16"]);
/// How the rows of the large tensors lie in memory; see [`TensorSpec::laid_out`].
pub const MEMORY: Attr = Attr {
    name: "memory",
    kind: AttrKind::OneOf(&["dense", "strided", "unaligned"]),
    default: "dense",
    about: "rows adjacent; rows apart, NaN between them; or all tensors one element past an aligned address",
};
pub const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::F64];

/// Has outputs judged for the inputs of the case's seed; `Err` says why nobody could.
pub type Judge = fn(&Case, &View) -> Result<Verify, String>;

/// A description and a few functions. Most ops leave most of it as in [`Op::NEW`].
pub struct Op {
    pub name: &'static str,
    /// The contract in one line of plain text.
    pub about: &'static str,
    pub axes: &'static [Axis],
    pub attrs: &'static [Attr],
    pub dtypes: &'static [DType],
    /// Shapes that `kmark run OP` takes when none are given, axes in order: `1024x4096`.
    pub default_configs: &'static [&'static str],
    /// What sizes and attributes must satisfy together; the error is one line for the user.
    pub check: fn(&Case) -> Result<(), String>,
    /// How many rows of the case may be of a kind of their own ([`crate::fill::ROWS`]), for ops that derive such inputs.
    pub distinct_rows: Option<fn(&Case) -> usize>,
    /// Every tensor of the case, inputs first, in the order in which a kernel receives them.
    pub tensors: fn(&Case) -> Vec<TensorSpec>,
    /// Compulsory traffic and arithmetic of the contract, given its tensors: mostly [`Cost::of`].
    pub cost: fn(&Case, &[TensorSpec]) -> Cost,
    /// Rows (of the last dimension; elements of a vector) of an input whose fill is `Derived`, from inputs that are not, or
    /// that come before it. The seed of the case is the one that those were filled with.
    pub derive: fn(&Case, &str, &View, Range<usize>, &mut [f64]),
    /// Parts of an output whose errors are judged apart; a block names one by its index.
    pub regions: &'static [&'static str],
    pub invariants: fn(&Case) -> Vec<Invariant>,
    /// What is wrong with the outputs (the second view) together, that no element shows alone; one line each.
    pub properties: fn(&Case, &View, &View) -> Vec<String>,
    /// Puts the fp64 value and the slack of every element of every output into the sink, in blocks of any order.
    pub oracle: fn(&Case, &View, &dyn Sink),
    /// Of an op whose truth is not in this program: has the outputs judged elsewhere, instead of by `oracle`. The seed of
    /// the case is the one that its inputs were filled with.
    pub judge: Option<Judge>,
    /// Numbers among the attributes may be zero or negative.
    pub any_number: bool,
    /// Of an op that is not ours: the hash of what defines it, which is part of its contract.
    pub version: &'static str,
}

impl Op {
    /// What an op is that says nothing about itself: the rest of a description.
    pub const NEW: Op = Op {
        name: "",
        about: "",
        axes: MATRIX,
        attrs: &[],
        dtypes: FLOATS,
        default_configs: &["1024x4096", "8192x4096"],
        check: |_| Ok(()),
        distinct_rows: None,
        tensors: |_| Vec::new(),
        cost: |_, tensors| Cost::of(tensors, 0),
        derive: |case, tensor, _, _, _| unreachable!("{} derives no input {tensor}", case.op),
        regions: &["all"],
        invariants: |_| Vec::new(),
        properties: |_, _, _| Vec::new(),
        oracle: |case, _, _| unreachable!("{} has no oracle", case.op),
        judge: None,
        any_number: false,
        version: "",
    };

    pub fn tensors(&self, case: &Case) -> Vec<TensorSpec> {
        (self.tensors)(case)
    }

    pub fn cost(&self, case: &Case) -> Cost {
        (self.cost)(case, &self.tensors(case))
    }

    /// How many rows of the case may be of a kind of their own. Without any, one set of values is like another.
    pub fn distinct_rows(&self, case: &Case) -> usize {
        let rows = |t: &TensorSpec| if t.shape.len() > 1 { t.rows() } else { t.elems() };
        let of_inputs = || self.tensors(case).iter().filter(|t| t.fill.has_kinds()).map(rows).min();
        self.distinct_rows.map_or_else(|| of_inputs().unwrap_or(usize::MAX), |f| f(case))
    }

    /// The contract of a case as records carry it: `x,w -> y`, a tensor changed in place marked with `*`.
    pub fn contract(&self, case: &Case) -> String {
        let tensors = self.tensors(case);
        let list = |keep: fn(Role) -> bool| {
            let names: Vec<String> = tensors
                .iter()
                .filter(|t| keep(t.role))
                .map(|t| if t.role == Role::InOut { format!("{}*", t.name) } else { t.name.to_string() })
                .collect();
            names.join(",")
        };
        let by = if self.version.is_empty() { String::new() } else { format!(" by {}", self.version) };
        format!("{} -> {}{by}", list(Role::is_input), list(Role::is_output))
    }
}

/// Elements of a case with axes [`MATRIX`].
pub fn rows_by_columns(c: &Case) -> u64 {
    (c.axis("m") * c.axis("n")) as u64
}

/// Calls `f` on blocks of rows in parallel; a block holds about 64 Ki elements, so that scratch stays small.
pub fn by_rows(m: usize, n: usize, f: impl Fn(Range<usize>) + Sync) {
    by_blocks(m, ((1 << 16) / n.max(1)).clamp(1, m.max(1)), f)
}

/// Calls `f` on `0..len` in parallel, `block` at a time.
pub fn by_blocks(len: usize, block: usize, f: impl Fn(Range<usize>) + Sync) {
    use rayon::prelude::*;
    (0..len.div_ceil(block)).into_par_iter().for_each(|b| f(b * block..((b + 1) * block).min(len)));
}
