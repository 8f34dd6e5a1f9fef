//! Rows of many runs in the order of their start: where a time changed, by the rule of `compare`, and what came with it.
//! Numbers and words only; nothing is printed here.

use crate::compare::{Difference, Outcome, Ratio, differences, row};
use crate::error::Result;
use crate::pairs::{Key, Pair};
use crate::store::{Loaded, load_as};
use indexmap::IndexMap;
use kmark_core::record::{Mode, Record, Visit};
use kmark_core::run::Git;
use kmark_core::stats::{geomean, midmean};
use serde::Serialize;
use std::path::Path;

/// One case and impl, or all cases of an op and an impl, over time.
#[derive(Serialize)]
pub struct Line {
    /// The case, or the op.
    pub of: String,
    #[serde(rename = "impl")]
    pub impl_name: String,
    pub device: String,
    pub mode: Mode,
    pub points: Vec<Point>,
    #[serde(skip)]
    op: String,
}

/// What one run says.
#[derive(Clone, Serialize)]
pub struct Point {
    pub run: String,
    pub started: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// How many cases it has times of.
    pub cases: usize,
    /// Of one case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<f64>,
    /// As a multiple of the first run's speed; of several cases the geometric mean over those that neighbours share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    pub changes: Vec<Change>,
    /// What is not as it was in the run before, where something changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub came_with: Vec<Difference>,
    #[serde(skip)]
    at: usize,
}

/// A case that is no longer what it was since the last change.
#[derive(Clone, Serialize)]
pub struct Change {
    pub case: String,
    pub outcome: Outcome,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Reads a run; of its records stays what a history needs.
pub fn load(folder: &Path) -> Result<Loaded> {
    load_as(folder, |_, r| slim(r), |_| {})
}

/// One sample of each visit, which is the visit's time.
fn slim(mut r: Record) -> Record {
    r.samples_ns = by_visit(&r.samples_ns, &r.visits);
    r.clock_mhz = by_visit(&r.clock_mhz, &r.visits);
    r.visits.iter_mut().for_each(|v| v.samples = v.samples.min(1));
    r
}

fn by_visit(samples: &[f64], visits: &[Visit]) -> Vec<f64> {
    let mut rest = samples;
    let mut of_visits = Vec::new();
    for visit in visits {
        let (now, later) = rest.split_at((visit.samples as usize).min(rest.len()));
        rest = later;
        of_visits.extend((!now.is_empty()).then(|| midmean(now)));
    }
    of_visits
}

/// Runs are in the order of their start.
pub fn by_case(runs: &[Loaded]) -> Vec<Line> {
    let mut rows: IndexMap<(&str, Key), Vec<(usize, &Record)>> = IndexMap::new();
    for (at, run) in runs.iter().enumerate() {
        for r in &run.records {
            rows.entry((&r.device.name, r.key())).or_default().push((at, r));
        }
    }
    let line = |((device, key), records): ((&str, Key), Vec<(usize, &Record)>)| Line {
        points: points(runs, &key, &records),
        device: device.to_string(),
        mode: key.2,
        op: records[0].1.op.clone(),
        of: key.0,
        impl_name: key.1,
    };
    rows.into_iter().map(line).filter(|l| l.points.iter().any(|p| p.cases > 0)).collect()
}

fn points(runs: &[Loaded], key: &Key, records: &[(usize, &Record)]) -> Vec<Point> {
    // The records since the last change, and whether the row fails since then.
    let (mut level, mut broken, mut first): (Vec<&Record>, bool, Option<f64>) = (Vec::new(), false, None);
    let mut points: Vec<Point> = Vec::new();
    for (i, (at, r)) in records.iter().enumerate() {
        let time_ns = r.time().filter(|_| r.status.is_comparable()).map(|t| t.value);
        first = first.or(time_ns);
        let speed = first.zip(time_ns).map(|(first, now)| first / now);
        let mut point = Point { time_ns, speed, cases: usize::from(time_ns.is_some()), ..point(runs, *at) };
        if let Some(row) = row(key, &level, &[*r], 0.0).filter(|_| !level.is_empty()) {
            let outcome = match row.outcome {
                Outcome::Same | Outcome::Ambiguous if broken => Some(Outcome::Mended),
                Outcome::Broken if broken => None,
                Outcome::Faster | Outcome::Slower | Outcome::Broken => Some(row.outcome),
                _ if !row.same_contract || !row.same_grade => Some(row.outcome),
                _ => None,
            };
            broken = row.outcome == Outcome::Broken || (broken && time_ns.is_none());
            if let Some(outcome) = outcome {
                point.came_with = came_with(runs, key, records[i - 1], (*at, r));
                point.changes.push(Change { case: key.0.clone(), outcome, ratio: row.comparison, note: row.note });
                if time_ns.is_some() {
                    level.clear();
                }
            }
        }
        if time_ns.is_some() {
            level.push(r);
        }
        points.push(point);
    }
    points
}

fn point(runs: &[Loaded], at: usize) -> Point {
    let Loaded { name, run, .. } = &runs[at];
    Point {
        run: name.clone(),
        started: run.started.clone(),
        git: run.git.clone(),
        tags: run.tags.clone(),
        cases: 0,
        time_ns: None,
        speed: None,
        changes: Vec::new(),
        came_with: Vec::new(),
        at,
    }
}

fn came_with(runs: &[Loaded], key: &Key, before: (usize, &Record), now: (usize, &Record)) -> Vec<Difference> {
    let side = |at: usize| std::slice::from_ref(&runs[at]);
    let pair = Pair { base: vec![before.1], new: vec![now.1], ..Pair::default() };
    let mut found = differences(side(before.0), side(now.0), &[(key.clone(), pair)]);
    // Versions of libraries are among a record's notes.
    let (base, new) = (before.1.notes.join("; "), now.1.notes.join("; "));
    if base != new {
        found.push(Difference { what: "notes".into(), base, new });
    }
    found
}

/// The same with all cases of an op together.
pub fn by_op(cases: &[Line]) -> Vec<Line> {
    let mut groups: IndexMap<(&str, &str, &str, Mode), Vec<&Line>> = IndexMap::new();
    for line in cases {
        groups.entry((&line.op, &line.impl_name, &line.device, line.mode)).or_default().push(line);
    }
    let line = |((op, impl_name, device, mode), lines): (_, Vec<&Line>)| Line {
        of: String::from(op),
        impl_name: String::from(impl_name),
        device: String::from(device),
        mode,
        points: together(&lines),
        op: String::from(op),
    };
    groups.into_iter().map(line).collect()
}

fn together(lines: &[&Line]) -> Vec<Point> {
    let mut runs: Vec<usize> = lines.iter().flat_map(|l| &l.points).map(|p| p.at).collect();
    runs.sort();
    runs.dedup();
    let (mut points, mut last, mut speed): (Vec<Point>, Vec<Option<f64>>, f64) =
        (Vec::new(), vec![None; lines.len()], 1.0);
    for at in runs {
        let here: Vec<Option<&Point>> = lines.iter().map(|l| l.points.iter().find(|p| p.at == at)).collect();
        let Some(one) = here.iter().flatten().next() else { continue };
        let mut all = Point { cases: 0, time_ns: None, changes: Vec::new(), came_with: Vec::new(), ..(*one).clone() };
        let mut ratios = Vec::new();
        for (p, last) in here.iter().zip(&mut last) {
            let Some(p) = p else { continue };
            all.cases += p.cases;
            all.changes.extend(p.changes.iter().cloned());
            for d in &p.came_with {
                if !all.came_with.iter().any(|known| (&known.what, &known.base) == (&d.what, &d.base)) {
                    all.came_with.push(d.clone());
                }
            }
            if let Some(now) = p.time_ns {
                ratios.extend(last.replace(now).map(|before| before / now));
            }
        }
        if !ratios.is_empty() {
            speed *= geomean(&ratios);
        }
        all.speed = (all.cases > 0).then_some(speed);
        points.push(all);
    }
    points
}
