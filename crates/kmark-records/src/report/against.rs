//! Rows of one case against each other: which of them is the baseline, how much faster the others are, and whether that
//! is certain.

use super::rows::{Against, Basis, Row};
use indexmap::IndexMap;
use kmark_core::verdict::{Comparison, Verdict, aa_difference, clocks_explain_ns, compare, noise_floor};

/// Holds the rows of a run against the baseline of their case: the impl of that name, or else the fastest that is not ours.
pub fn judge(rows: &mut [Row], baseline: Option<&str>) {
    let mut cases: IndexMap<(&str, &str), Vec<&Row>> = IndexMap::new();
    for r in rows.iter().filter(|r| r.basis.is_some()) {
        cases.entry((&r.case, r.mode)).or_default().push(r);
    }
    let one = |r: &Row| against(r, cases.get(&(r.case.as_str(), r.mode))?, baseline);
    let all: Vec<Option<Against>> = rows.iter().map(one).collect();
    for (row, against) in rows.iter_mut().zip(all) {
        row.against = against;
    }
}

/// The run's A/A noise as a relative difference.
pub fn noise(rows: &[Row]) -> Option<f64> {
    let rounds = rows.iter().filter_map(|r| r.basis.as_ref()).map(|b| &b.series.rounds);
    let aa: Vec<f64> = rounds.filter_map(|rounds| aa_difference(rounds)).collect();
    noise_floor(&aa).map(f64::exp_m1)
}

/// Kernels that we wrote ourselves are no baseline while there is another.
fn is_ours(impl_name: &str) -> bool {
    ["cpu/", "cuda/"].iter().any(|f| impl_name.starts_with(f))
}

/// What the same launch on a GPU may differ between two processes, each with tensors at places of its own, in ns, at the level
/// of a verdict: three standard deviations (measured on an H200; METHODOLOGY has the figures).
const APART_NS: f64 = 400.0;

/// Whether a difference between two rows can be trusted, and up to which difference it cannot. On the CPU, two processes
/// of the same code differ by where the system puts them: on a busy machine by a quarter and more, round after round,
/// which no A/A pair inside one of them can show.
fn apart_ns(a: &Basis, b: &Basis) -> Option<f64> {
    match a.process == b.process {
        true => Some(clocks_explain_ns((a.series.time_ns, a.core_mhz), (b.series.time_ns, b.core_mhz))),
        false => (!a.on_cpu).then_some(APART_NS),
    }
}

fn against(r: &Row, peers: &[&Row], baseline: Option<&str>) -> Option<Against> {
    let mine = r.basis.as_ref()?;
    let time = |p: &Row| p.basis.as_ref().map_or(f64::INFINITY, |b| b.series.time_ns);
    // There is no ratio between two GPUs.
    let mut peers = peers.iter().filter(|p| p.device_id == r.device_id);
    let base = match baseline {
        Some(name) => peers.find(|p| p.impl_name == name)?,
        None => {
            let others = peers.clone().filter(|p| !is_ours(&p.impl_name));
            others.min_by(|a, b| time(a).total_cmp(&time(b))).or_else(|| peers.next())?
        }
    };
    if base.impl_name == r.impl_name {
        return None;
    }
    // Rounds of different groups were not taken in turns: their ratio is shown, but proves nothing; nor does one
    // between two processes on a CPU.
    let theirs = base.basis.as_ref()?;
    let comparison = match apart_ns(mine, theirs) {
        Some(apart) if theirs.group == mine.group => compare(&mine.series, &theirs.series, apart),
        _ => {
            let speedup = theirs.series.time_ns / mine.series.time_ns;
            Comparison { speedup, lo: speedup, hi: speedup, visible: None, verdict: Verdict::Ambiguous }
        }
    };
    Some(Against {
        baseline: base.impl_name.clone(),
        same_contract: base.contract == r.contract,
        same_grade: base.grade == r.grade,
        comparison,
    })
}

/// What a ratio must be labelled with, because it compares what is not alike.
pub fn mark(same_contract: bool, same_grade: bool) -> &'static str {
    match (same_contract, same_grade) {
        (true, true) => "",
        (false, true) => " (other contract)",
        (true, false) => " (other grade)",
        (false, false) => " (other contract and grade)",
    }
}
