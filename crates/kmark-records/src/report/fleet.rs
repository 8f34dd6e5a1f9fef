//! The same cases on many GPUs: how much they differ, and which of them is slow for certain. Pure: rows in, numbers out.
//!
//! A GPU's time of a row is held against the median of all GPUs. Over many rows, the first visits of all of them are one
//! visit of the GPU, the second visits another, and so on: what rows have to themselves cancels out, what the GPU does to
//! all of them stays. Then each GPU is compared with the others as a run is with other runs (`across`), but for those that are
//! far off themselves: how much they differ limits the verdict.

use super::RunData;
use super::rows::Row;
use crate::units;
use indexmap::{IndexMap, IndexSet};
use kmark_core::across::{Scatter, compare};
use kmark_core::stats::{geomean, median};
use kmark_core::verdict::{Round, Series, Verdict};
use serde::Serialize;

/// Who is further from the median than this many times the usual distance, and than one percent, is no measure for others:
/// one very slow GPU must not hide another. (4.5 times the median distance are three standard deviations.)
const FAR: f64 = 4.5;
const NEAR: f64 = 0.01;

/// GPUs of one kind in one mode, and what they do alike and differently.
#[derive(Serialize)]
pub struct Spread {
    pub device: String,
    pub mode: String,
    /// Pairs of a case and an impl that several of them have.
    pub rows: usize,
    pub ops: Vec<String>,
    /// The slowest first.
    pub members: Vec<Member>,
}

impl Spread {
    /// `8 GPUs`.
    pub fn count(&self) -> String {
        let what = if self.members.iter().all(|m| m.id.starts_with("GPU-")) { "GPUs" } else { "machines" };
        format!("{} {what}", self.members.len())
    }
}

/// One of them.
#[derive(Serialize)]
pub struct Member {
    /// Name of the machine, where the run tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub id: String,
    /// Over all rows.
    pub all: Deviation,
    /// In the order of the ops; `None` where it has no row of one.
    pub ops: Vec<Option<Deviation>>,
    /// How its times have changed since an earlier run of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Deviation>,
    /// Rows that failed on it.
    pub failed: usize,
}

/// Times against those of the others, or against earlier ones.
#[derive(Clone, Copy, Serialize)]
pub struct Deviation {
    /// 0.03: takes 3 % longer than the median of all, or than before.
    pub slower_by: f64,
    pub verdict: Verdict,
    /// The smallest difference that would have been found for certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible: Option<f64>,
}

impl Deviation {
    /// Slower for certain, and by so much at the least.
    pub fn is_slow(&self, threshold: f64) -> bool {
        self.verdict == Verdict::Slower && self.slower_by >= threshold
    }

    pub fn words(&self) -> String {
        match (self.verdict, self.visible) {
            (Verdict::Slower, _) => "slower, 99.98 % sure".into(),
            (Verdict::Faster, _) => "faster, 99.98 % sure".into(),
            (verdict, Some(sees)) => format!("{} (sees {})", verdict.word(), units::sees(sees)),
            (verdict, None) => verdict.word().into(),
        }
    }
}

/// `+3.2 %`.
pub fn signed(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

impl Member {
    /// As people call it: the machine, and of several GPUs which.
    pub fn name(&self) -> String {
        let gpu = if self.id.starts_with("GPU-") { self.id.chars().take(12).collect() } else { String::new() };
        let words = [self.host.clone().unwrap_or_default(), gpu].into_iter().filter(|w| !w.is_empty());
        let name = words.collect::<Vec<_>>().join(" ");
        if name.is_empty() { self.id.clone() } else { name }
    }

    /// The op that it is slowest at.
    pub fn worst<'a>(&self, ops: &'a [String]) -> Option<(&'a str, Deviation)> {
        let known = ops.iter().zip(&self.ops).filter_map(|(op, d)| Some((op.as_str(), (*d)?)));
        known.max_by(|a, b| a.1.slower_by.total_cmp(&b.1.slower_by))
    }

    /// What is out of line: some ops, or everything where all of them are, or where only together they show it.
    pub fn slow(&self, ops: &[String], threshold: f64) -> Vec<(String, Deviation)> {
        let known = ops.iter().zip(&self.ops).filter_map(|(op, d)| Some((op.clone(), (*d)?)));
        let (slow, others): (Vec<_>, Vec<_>) = known.partition(|(_, d)| d.is_slow(threshold));
        match self.all.is_slow(threshold) && (slow.is_empty() || others.is_empty()) {
            true => vec![("all ops".into(), self.all)],
            false => slow,
        }
    }
}

/// Who measured: a machine and its device.
type Who<'a> = (Option<&'a str>, &'a str);
/// A row of each that has it; several where it was measured more than once.
type Measured<'a> = IndexMap<Who<'a>, Vec<&'a Series>>;

/// Rows of one kind of device, by case and impl, with the op of each.
#[derive(Default)]
struct Group<'a> {
    rows: IndexMap<(&'a str, &'a str), (&'a str, Measured<'a>)>,
    failed: IndexMap<Who<'a>, usize>,
    on_cpu: bool,
}

fn groups<'a>(runs: &'a [RunData]) -> IndexMap<(&'a str, &'a str), Group<'a>> {
    let mut groups: IndexMap<(&str, &str), Group> = IndexMap::new();
    for run in runs {
        for r in &run.rows {
            let who = (run.run.host.as_deref(), r.device_id.as_str());
            let group = groups.entry((r.device.as_str(), r.mode)).or_default();
            *group.failed.entry(who).or_default() += usize::from(r.failure);
            let Row { case, impl_name, op, .. } = r;
            let (_, measured) =
                group.rows.entry((case, impl_name)).or_insert_with(|| (op.as_str(), Measured::default()));
            if let Some(basis) = &r.basis {
                measured.entry(who).or_default().push(&basis.series);
                group.on_cpu = basis.on_cpu;
            }
        }
    }
    groups
}

/// Every kind of device that two or more have rows of. `earlier` runs show how each has changed.
pub fn spreads(runs: &[RunData], earlier: &[RunData]) -> Vec<Spread> {
    let before = groups(earlier);
    let groups = groups(runs);
    groups.iter().filter_map(|(key, group)| spread(*key, group, before.get(key))).collect()
}

fn spread<'a>((device, mode): (&str, &str), group: &'a Group<'a>, before: Option<&'a Group<'a>>) -> Option<Spread> {
    let shared: Vec<Shared> = group.rows.iter().filter_map(|(key, (op, m))| Shared::of(*key, op, m)).collect();
    let members: IndexSet<Who> = shared.iter().flat_map(|s| s.measured.keys().copied()).collect();
    if members.len() < 2 {
        return None;
    }
    let scatter = if group.on_cpu { Scatter::CPU } else { Scatter::GPU };
    let ops: IndexSet<&str> = shared.iter().map(|s| s.op).collect();
    let all = deviations(&shared, &members, scatter);
    let by_op: Vec<Vec<Option<Deviation>>> = ops
        .iter()
        .map(|op| deviations(&shared.iter().filter(|s| s.op == *op).copied().collect::<Vec<_>>(), &members, scatter))
        .collect();
    let one = |(at, who): (usize, &Who)| {
        let since = before.and_then(|b| since(&shared, b, who, scatter));
        Some(Member {
            host: who.0.map(str::to_string),
            id: who.1.to_string(),
            all: all[at]?,
            ops: by_op.iter().map(|op| op[at]).collect(),
            since,
            failed: group.failed.get(who).copied().unwrap_or(0),
        })
    };
    let mut list: Vec<Member> = members.iter().enumerate().filter_map(one).collect();
    list.sort_by(|a, b| b.all.slower_by.total_cmp(&a.all.slower_by));
    let ops = ops.into_iter().map(str::to_string).collect();
    Some(Spread { device: device.into(), mode: mode.into(), rows: shared.len(), ops, members: list })
}

/// A row that several have, and the median of their times.
#[derive(Clone, Copy)]
struct Shared<'a> {
    key: (&'a str, &'a str),
    op: &'a str,
    measured: &'a Measured<'a>,
    median_ns: f64,
}

impl<'a> Shared<'a> {
    fn of(key: (&'a str, &'a str), op: &'a str, measured: &'a Measured<'a>) -> Option<Shared<'a>> {
        let time = |runs: &Vec<&Series>| geomean(&runs.iter().map(|s| s.time_ns).collect::<Vec<_>>());
        let times: Vec<f64> = measured.values().map(time).collect();
        (times.len() > 1).then(|| Shared { key, op, measured, median_ns: median(&times) })
    }
}

/// Of each member, over these rows.
fn deviations(rows: &[Shared], members: &IndexSet<Who>, scatter: Scatter) -> Vec<Option<Deviation>> {
    let joint: Vec<Option<Series>> =
        members.iter().map(|who| together(rows.iter().filter_map(|s| Some((s, s.measured.get(who)?))))).collect();
    let times: Vec<f64> = joint.iter().flatten().map(|s| s.time_ns).collect();
    if times.len() < 2 {
        return vec![None; members.len()];
    }
    let middle = median(&times);
    let off = |s: &Series| (s.time_ns / middle).ln().abs();
    let usual = (FAR * median(&joint.iter().flatten().map(off).collect::<Vec<_>>())).max(NEAR);
    let one = |(at, mine): (usize, &Option<Series>)| {
        let mine = mine.clone()?;
        let others = || joint.iter().enumerate().filter(|(i, _)| *i != at).filter_map(|(_, s)| s.clone());
        let mut base: Vec<Series> = others().filter(|s| off(s) <= usual).collect();
        if base.is_empty() {
            base = others().collect();
        }
        let slower_by = mine.time_ns / middle - 1.0;
        let c = compare(&[mine], &base, scatter);
        Some(Deviation { slower_by, verdict: c.verdict, visible: c.visible })
    };
    joint.iter().enumerate().map(one).collect()
}

/// A member now against itself before, over the rows that it had then.
fn since<'a>(rows: &[Shared<'a>], before: &'a Group<'a>, who: &Who<'a>, scatter: Scatter) -> Option<Deviation> {
    let then: Vec<Option<&Vec<&Series>>> =
        rows.iter().map(|s| before.rows.get(&s.key).and_then(|(_, measured)| measured.get(who))).collect();
    let both = || rows.iter().zip(&then).filter_map(|(s, then)| Some((s, (*then)?, s.measured.get(who)?)));
    let old = together(both().map(|(s, then, _)| (s, then)))?;
    let new = together(both().map(|(s, _, now)| (s, now)))?;
    let slower_by = new.time_ns / old.time_ns - 1.0;
    let c = compare(&[new], &[old], scatter);
    Some(Deviation { slower_by, verdict: c.verdict, visible: c.visible })
}

/// Rows as one: times and visits relative to the rows' medians, in the scale of their mean.
fn together<'a, 'b: 'a>(rows: impl Iterator<Item = (&'a Shared<'b>, &'a Vec<&'b Series>)>) -> Option<Series> {
    let (mut times, mut medians, mut rounds) = (Vec::new(), Vec::new(), Vec::<Vec<Round>>::new());
    for (row, runs) in rows {
        for s in runs {
            times.push(s.time_ns / row.median_ns);
            medians.push(row.median_ns);
            for (i, r) in s.rounds.iter().enumerate() {
                if rounds.len() <= i {
                    rounds.push(Vec::new());
                }
                rounds[i].push(Round { first: r.first / row.median_ns, second: r.second / row.median_ns });
            }
        }
    }
    if times.is_empty() {
        return None;
    }
    let scale = geomean(&medians);
    // A round that few rows got to is theirs alone.
    rounds.retain(|all| 2 * all.len() >= times.len());
    let mean = |all: &[Round], of: fn(&Round) -> f64| scale * geomean(&all.iter().map(of).collect::<Vec<_>>());
    let joint = |all: &Vec<Round>| Round { first: mean(all, |r| r.first), second: mean(all, |r| r.second) };
    Some(Series { time_ns: scale * geomean(&times), rounds: rounds.iter().map(joint).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of some GPUs, each with its own speed, and noise without a pattern.
    fn fleet(speeds: &[f64], rows: usize, noise: f64) -> (Vec<String>, Vec<Vec<Series>>) {
        let mut state = 3u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5
        };
        let mut one = |speed: f64, row: usize| {
            let base = 2e4 * (1 + row) as f64 * speed;
            let mut visit = || base * (1.0 + noise * random());
            let rounds: Vec<Round> = (0..20).map(|_| Round { first: visit(), second: visit() }).collect();
            Series { time_ns: base, rounds }
        };
        let names = (0..rows).map(|r| format!("case {r}")).collect();
        (names, speeds.iter().map(|s| (0..rows).map(|r| one(*s, r)).collect()).collect())
    }

    fn judged(speeds: &[f64], rows: usize, noise: f64) -> Vec<Deviation> {
        let (names, series) = fleet(speeds, rows, noise);
        let ids: Vec<String> = (0..speeds.len()).map(|i| format!("GPU-{i}")).collect();
        let mut group = Group::default();
        for (id, list) in ids.iter().zip(&series) {
            for (case, s) in names.iter().zip(list) {
                let row = group.rows.entry((case, "impl")).or_insert_with(|| ("op", Measured::default()));
                row.1.entry((None, id.as_str())).or_default().push(s);
            }
        }
        let found = spread(("GPU", "cold"), &group, None).unwrap();
        ids.iter().map(|id| found.members.iter().find(|m| m.id == *id).unwrap().all).collect()
    }

    #[test]
    fn the_slow_one_is_found_and_no_other() {
        let speeds = [1.0, 1.002, 0.998, 1.06, 1.001, 0.999, 1.0, 1.003];
        let found = judged(&speeds, 10, 0.01);
        assert!(found[3].is_slow(0.03) && (found[3].slower_by - 0.06).abs() < 0.01, "{}", found[3].slower_by);
        assert!(found.iter().enumerate().all(|(i, d)| i == 3 || !d.is_slow(0.0)), "others are in line");
        assert!(!found[3].is_slow(0.1), "a threshold is one");
    }

    #[test]
    fn a_very_slow_one_does_not_hide_a_slow_one() {
        let found = judged(&[1.0, 1.002, 2.0, 0.998, 1.05, 1.001, 0.999], 10, 0.01);
        assert!(found.iter().enumerate().all(|(i, d)| d.is_slow(0.03) == [2, 4].contains(&i)));
        assert!(found[0].visible.unwrap() < 0.03, "the others see as much as without it");
    }

    #[test]
    fn equal_ones_are_in_line_and_noise_accuses_nobody() {
        for (speeds, noise) in [([1.0; 5], 0.02), ([1.0, 1.01, 0.99, 1.005, 0.995], 0.3)] {
            assert!(judged(&speeds, 6, noise).iter().all(|d| !d.is_slow(0.0)));
        }
    }

    #[test]
    fn two_hundred_are_judged_at_once() {
        let mut speeds = vec![1.0; 200];
        speeds[77] = 1.05;
        let start = std::time::Instant::now();
        let found = judged(&speeds, 20, 0.01);
        assert!(found.iter().enumerate().all(|(i, d)| d.is_slow(0.03) == (i == 77)));
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}
