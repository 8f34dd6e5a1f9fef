//! Mutants of a user's op that the gate cannot see on the given cases: other cases are tried, and those that show them are
//! named.

use crate::bench::Bench;
use crate::plan::Planned;
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::op::Op;
use std::collections::BTreeMap;

/// Cases that are tried for one mutant.
const TRIES: usize = 8;

/// One line for each mutant (by op) that was missed, with a case that shows it if one was found.
pub fn proposals(bench: &mut Bench, planned: &[Planned], missed: &BTreeMap<(String, String), String>) -> Vec<String> {
    let mut lines = Vec::new();
    for ((op, name), on) in missed {
        let Some(first) = planned.iter().find(|p| p.case.op == *op) else { continue };
        let shown = others(first.entry.op, &first.case).into_iter().find(|case| {
            let other = Planned { entry: first.entry, case: case.clone(), impls: Vec::new() };
            bench.too_large(&other).is_none() && bench.verify(&other, name, false).is_ok_and(|v| !v.ok())
        });
        let short = name.rsplit(':').next().unwrap_or(name);
        lines.push(match shown {
            Some(case) => format!("blind: {short} is not seen on {on}; {} shows it", case.id),
            None => format!("blind: {short} is not seen on {on}, nor on {TRIES} other cases"),
        });
    }
    lines
}

/// Cases beside this one: more precise dtypes first, then small sizes and odd ones.
fn others(op: &'static Op, case: &Case) -> Vec<Case> {
    let mut dtypes: Vec<DType> = op.dtypes.iter().copied().filter(|d| d.unit() < case.dtype.unit()).collect();
    dtypes.sort_by(|a, b| b.unit().total_cmp(&a.unit()));
    dtypes.push(case.dtype);
    let resized = |size: &dyn Fn(u64) -> u64| {
        let mut axes = case.axes.clone();
        axes.values_mut().for_each(|v| *v = size(*v).max(1));
        axes
    };
    let sizes = [case.axes.clone(), resized(&|v| v.min(17)), resized(&|v| v.min(64) + 1), resized(&|v| v * 2)];
    let all = dtypes.iter().flat_map(|d| sizes.iter().map(move |axes| (*d, axes)));
    let made = all.filter_map(|(dtype, axes)| op.case(dtype, axes, &case.attrs, case.seed).ok());
    made.filter(|c| c.id != case.id).take(TRIES).collect()
}
