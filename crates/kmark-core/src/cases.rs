//! Making a case of an op: everything is checked that can be known without a machine; and the seeds of its values.

use crate::case::{Case, DEFAULT_SEED};
use crate::dtype::DType;
use crate::fill::{CYCLE, key};
use crate::op::{Attr, AttrKind, Op};
use crate::spelling::unknown;
use indexmap::IndexMap;

/// No tensor of a case may be larger: beyond it lies no machine, only a typing error.
const MAX_BYTES: u128 = 1 << 46;

impl Op {
    /// Checks everything that can be known without a machine. The error is one line for the user.
    pub fn case(
        &self,
        dtype: DType,
        axes: &IndexMap<String, u64>,
        attrs: &IndexMap<String, String>,
        seed: u64,
    ) -> Result<Case, String> {
        let (op, name) = (self, self.name);
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
            check_attr(op, attr, value)?;
            full_attrs.insert(attr.name.to_string(), value.to_string());
        }
        let mut case =
            Case { id: String::new(), op: name.to_string(), dtype, axes: full_axes, attrs: full_attrs, seed };
        case.id = self.id_of(&case);
        self.check_product(&case)?;
        (op.check)(&case).map_err(|e| format!("{}: {e}", case.id))?;
        self.check_size(&case)?;
        Ok(case)
    }

    fn id_of(&self, case: &Case) -> String {
        let axes: Vec<_> = case.axes.iter().map(|(k, v)| format!("{k}{v}")).collect();
        let mut id = format!("{}/{}", case.op, case.dtype);
        if !axes.is_empty() {
            id = format!("{id}/{}", axes.join("-"));
        }
        let mut shown: Vec<String> = self
            .attrs
            .iter()
            .filter(|a| case.attrs[a.name] != a.default)
            .map(|a| format!("{}-{}", a.name, case.attrs[a.name]))
            .collect();
        if case.seed != DEFAULT_SEED {
            shown.push(format!("seed-{}", case.seed));
        }
        for part in shown {
            id.push('/');
            id.push_str(&part);
        }
        id
    }

    /// No product of sizes, in whatever combination an op multiplies them, may overflow.
    fn check_product(&self, case: &Case) -> Result<(), String> {
        let sizes = self.attrs.iter().filter(|a| matches!(a.kind, AttrKind::Count(_) | AttrKind::Size(_)));
        let sizes = sizes.map(|a| case.count(a.name) as u64).chain(case.axes.values().copied());
        let product = sizes.map(|v| v.max(1) as u128).try_fold(1u128, u128::checked_mul);
        if product.is_none_or(|p| p > 1 << 62) {
            return Err(format!("{}: sizes larger than any machine can hold", case.id));
        }
        Ok(())
    }

    fn check_size(&self, case: &Case) -> Result<(), String> {
        for t in self.tensors(case) {
            let row = t.pitch as u128 * t.dtype.size() as u128;
            let bytes = t.shape.iter().rev().skip(1).try_fold(row, |p, &d| p.checked_mul(d as u128));
            if bytes.is_none_or(|b| b > MAX_BYTES) {
                return Err(format!(
                    "{}: tensor {} would be larger than any machine can hold (64 TiB)",
                    case.id, t.name
                ));
            }
        }
        Ok(())
    }

    /// How many sets of values a check needs, so that every kind of row is among them, however few rows there are.
    pub fn checks(&self, case: &Case) -> u64 {
        CYCLE.div_ceil(self.kinds_at_once(case)).max(2)
    }

    /// The seed of a set of values: what the user gave, mixed with the case, so that no element is the same in all
    /// shapes; set 0 is the one that is timed. Sets of a case with few rows go through all kinds of rows in turn, and
    /// begin with ordinary ones; where there are many rows, the case decides which of them are special.
    pub fn value_seed(&self, case: &Case, set: u64) -> u64 {
        let mixed = key(case.seed, &format!("{}#{set}", case.id));
        let rows = self.kinds_at_once(case);
        let first = if rows < CYCLE { 0 } else { key(case.seed, &case.id) };
        mixed / CYCLE * CYCLE + first.wrapping_add(set * rows) % CYCLE
    }

    fn kinds_at_once(&self, case: &Case) -> u64 {
        (self.distinct_rows(case) as u64).clamp(1, CYCLE)
    }

    /// Bytes of all its tensors together.
    pub fn tensor_bytes(&self, case: &Case) -> u64 {
        self.tensors(case).iter().map(|t| t.bytes() as u64).sum()
    }
}

fn check_attr(op: &Op, attr: &Attr, value: &str) -> Result<(), String> {
    let finite = |may: fn(f64) -> bool| value.parse::<f64>().is_ok_and(|v| v.is_finite() && may(v));
    let ok = match attr.kind {
        AttrKind::OneOf(words) if words.contains(&value) => return Ok(()),
        AttrKind::OneOf(words) => {
            return Err(unknown(&format!("value of {}'s {}", op.name, attr.name), value, words.iter().copied()));
        }
        AttrKind::Positive if op.any_number && finite(|_| true) => return Ok(()),
        AttrKind::Positive if op.any_number => {
            return Err(format!("{}: {} = {value} is not a number", op.name, attr.name));
        }
        AttrKind::Positive => finite(|v| v > 0.0),
        AttrKind::Integer => value.parse::<i64>().is_ok(),
        AttrKind::Count(_) => value.parse::<u32>().is_ok(),
        AttrKind::Size(_) => value.parse::<u32>().is_ok_and(|v| v > 0),
        AttrKind::Scale => value == "auto" || finite(|v| v > 0.0),
    };
    if ok { Ok(()) } else { Err(format!("{}: {} = {value} is not {}", op.name, attr.name, attr.kind.describe())) }
}
