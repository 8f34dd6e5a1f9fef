//! A case: an op at one problem. Its id is derived from its content and shows every axis, and every attribute that
//! differs from the op's default, so that ids stay stable when an op gains an attribute.

use crate::dtype::DType;
use crate::fill::{CYCLE, key};
use crate::op::{AttrKind, Op};
use crate::words::unknown;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

pub const DEFAULT_SEED: u64 = 42;

/// No tensor of a case may be larger: beyond it lies no machine, only a typing error.
const MAX_BYTES: u128 = 1 << 46;

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
    /// Checks everything that can be known without a machine. The error is one line for the user.
    pub fn new(
        op: &Op,
        dtype: DType,
        axes: &IndexMap<String, u64>,
        attrs: &IndexMap<String, String>,
        seed: u64,
    ) -> Result<Case, String> {
        let name = op.name;
        if !op.dtypes.contains(&dtype) {
            let known: Vec<_> = op.dtypes.iter().map(|d| d.name()).collect();
            return Err(format!("{name} has no dtype {dtype}; it has {}", known.join(", ")));
        }
        let axis_names: Vec<_> = op.axes.iter().map(|a| a.name).collect();
        let attr_names: Vec<_> = op.attrs.iter().map(|a| a.name).collect();
        if let Some(wrong) = axes.keys().find(|k| !axis_names.contains(&k.as_str())) {
            return Err(unknown(&format!("axis of {name}"), wrong, axis_names.iter().chain(&attr_names).copied()));
        }
        if let Some(wrong) = attrs.keys().find(|k| !attr_names.contains(&k.as_str())) {
            return Err(unknown(&format!("attribute of {name}"), wrong, attr_names.iter().chain(&axis_names).copied()));
        }
        let mut full_axes = IndexMap::new();
        for axis in op.axes {
            let Some(&value) = axes.get(axis.name) else {
                return Err(format!("{name} needs axis {} ({}), for instance --set {0}=4096", axis.name, axis.about));
            };
            if value == 0 {
                return Err(format!("{name}: axis {} is 0; sizes start at 1", axis.name));
            }
            full_axes.insert(axis.name.to_string(), value);
        }
        let mut full_attrs = IndexMap::new();
        for attr in op.attrs {
            let value = attrs.get(attr.name).map_or(attr.default, |v| v.as_str());
            check_attr(name, attr.name, attr.kind, value)?;
            full_attrs.insert(attr.name.to_string(), value.to_string());
        }
        let mut case =
            Case { id: String::new(), op: name.to_string(), dtype, axes: full_axes, attrs: full_attrs, seed };
        case.id = case.derive_id(op);
        case.check_product(op)?;
        (op.check)(&case).map_err(|e| format!("{}: {e}", case.id))?;
        case.check_size(op)?;
        Ok(case)
    }

    fn derive_id(&self, op: &Op) -> String {
        let axes: Vec<_> = self.axes.iter().map(|(k, v)| format!("{k}{v}")).collect();
        let mut id = format!("{}/{}/{}", self.op, self.dtype, axes.join("-"));
        let mut shown: Vec<String> = op
            .attrs
            .iter()
            .filter(|a| self.attrs[a.name] != a.default)
            .map(|a| format!("{}-{}", a.name, self.attrs[a.name]))
            .collect();
        if self.seed != DEFAULT_SEED {
            shown.push(format!("seed-{}", self.seed));
        }
        for part in shown {
            id.push('/');
            id.push_str(&part);
        }
        id
    }

    /// No product of sizes, in whatever combination an op multiplies them, may overflow.
    fn check_product(&self, op: &Op) -> Result<(), String> {
        let sizes = op.attrs.iter().filter(|a| matches!(a.kind, AttrKind::Count(_) | AttrKind::Size(_)));
        let sizes = sizes.map(|a| self.count(a.name) as u64).chain(self.axes.values().copied());
        let product = sizes.map(|v| v.max(1) as u128).try_fold(1u128, u128::checked_mul);
        if product.is_none_or(|p| p > 1 << 62) {
            return Err(format!("{}: sizes larger than any machine can hold", self.id));
        }
        Ok(())
    }

    fn check_size(&self, op: &Op) -> Result<(), String> {
        for t in op.tensors(self) {
            let row = t.pitch as u128 * t.dtype.size() as u128;
            let bytes = t.shape.iter().rev().skip(1).try_fold(row, |p, &d| p.checked_mul(d as u128));
            if bytes.is_none_or(|b| b > MAX_BYTES) {
                return Err(format!(
                    "{}: tensor {} would be larger than any machine can hold (64 TiB)",
                    self.id, t.name
                ));
            }
        }
        Ok(())
    }

    pub fn axis(&self, name: &str) -> usize {
        *self.axes.get(name).unwrap_or_else(|| panic!("{} has no axis {name}", self.op)) as usize
    }

    pub fn attr(&self, name: &str) -> &str {
        self.attrs.get(name).unwrap_or_else(|| panic!("{} has no attribute {name}", self.op))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.attr(name) == "yes"
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

    /// How many sets of values a check needs, so that every kind of row is among them, however few rows there are.
    pub fn checks(&self, op: &Op) -> u64 {
        CYCLE.div_ceil(self.distinct_rows(op)).max(2)
    }

    /// The seed of a set of values: what the user gave, mixed with the case, so that no element is the same in all
    /// shapes; set 0 is the one that is timed. Sets of a case with few rows go through all kinds of rows in turn, and
    /// begin with ordinary ones; where there are many rows, the case decides which of them are special.
    pub fn value_seed(&self, op: &Op, set: u64) -> u64 {
        let mixed = key(self.seed, &format!("{}#{set}", self.id));
        let rows = self.distinct_rows(op);
        let first = if rows < CYCLE { 0 } else { key(self.seed, &self.id) };
        mixed / CYCLE * CYCLE + first.wrapping_add(set * rows) % CYCLE
    }

    fn distinct_rows(&self, op: &Op) -> u64 {
        (op.distinct_rows(self) as u64).clamp(1, CYCLE)
    }

    /// Bytes of all its tensors together.
    pub fn tensor_bytes(&self, op: &Op) -> u64 {
        op.tensors(self).iter().map(|t| t.bytes() as u64).sum()
    }
}

fn check_attr(op: &str, name: &str, kind: AttrKind, value: &str) -> Result<(), String> {
    let ok = match kind {
        AttrKind::OneOf(words) if words.contains(&value) => return Ok(()),
        AttrKind::OneOf(words) => {
            return Err(unknown(&format!("value of {op}'s {name}"), value, words.iter().copied()));
        }
        AttrKind::Positive => value.parse::<f64>().is_ok_and(|v| v.is_finite() && v > 0.0),
        AttrKind::Integer => value.parse::<i64>().is_ok(),
        AttrKind::Count(_) => value.parse::<u32>().is_ok(),
        AttrKind::Size(_) => value.parse::<u32>().is_ok_and(|v| v > 0),
        AttrKind::Scale => value == "auto" || value.parse::<f64>().is_ok_and(|v| v.is_finite() && v > 0.0),
    };
    if ok { Ok(()) } else { Err(format!("{op}: {name} = {value} is not {}", kind.describe())) }
}
