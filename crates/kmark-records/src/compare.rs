//! Two sides of runs against each other, row by row: what became faster or slower, what is missing, what broke. Numbers
//! and words only; nothing is printed here.

use crate::pairs::{Key, Pair, pairs};
use crate::report::rows::grade;
use crate::store::Loaded;
use indexmap::IndexSet;
use kmark_core::across::{Scatter, compare};
use kmark_core::record::{DeviceId, Mode, Record, Status};
use kmark_core::run::{Git, Run};
use kmark_core::stats::geomean;
use kmark_core::verdict::{Comparison, OTHER_CLOCK, Series, Verdict, clocks_explain};
use serde::Serialize;

/// Above this share of samples under held-down clocks, a time is that of the power limit.
const MOSTLY: f64 = 0.5;
/// Facts about the environment that change from minute to minute.
const PASSING: &[&str] = &["sm_clock", "memory_clock", "power", "temperature", "load_at_start"];

/// How a row went from one side to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Faster,
    Slower,
    Same,
    Ambiguous,
    /// In the base alone, or without times in the new runs where that is no failure.
    Missing,
    /// In the new runs alone.
    New,
    /// It had times, and fails now.
    Broken,
    /// It failed, and has times now.
    Mended,
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Faster => "faster",
            Outcome::Slower => "slower",
            Outcome::Same => "same",
            Outcome::Ambiguous => "ambiguous",
            Outcome::Missing => "missing",
            Outcome::New => "new",
            Outcome::Broken => "broken",
            Outcome::Mended => "mended",
        }
    }
}

#[derive(Serialize)]
pub struct Row {
    pub case: String,
    #[serde(rename = "impl")]
    pub impl_name: String,
    /// The GPU, machine or model, where a case and impl have several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    pub mode: Mode,
    /// Geometric means over the runs of a side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_ns: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Ratio>,
    pub outcome: Outcome,
    /// Slower by the threshold or more, or broken.
    pub regression: bool,
    /// A slow-down of the threshold would not have been seen.
    pub undecided: bool,
    pub same_contract: bool,
    pub same_grade: bool,
    /// What the row's status is now, if it broke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The ratio and its interval; above 1 the new side is faster.
#[derive(Clone, Copy, Serialize)]
pub struct Ratio {
    pub speedup: f64,
    pub lo: f64,
    pub hi: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible: Option<f64>,
}

/// Something that is not the same on both sides: its name, and its values.
#[derive(Clone, Serialize)]
pub struct Difference {
    pub what: String,
    pub base: String,
    pub new: String,
}

#[derive(Serialize)]
pub struct Compared {
    pub differences: Vec<Difference>,
    pub rows: Vec<Row>,
}

pub fn compared(base: &[Loaded], new: &[Loaded], threshold: f64, filter: &[String]) -> Compared {
    let pairs = pairs(base, new, filter);
    let one = |(key, pair): &(Key, Pair)| {
        let row = row(key, &pair.base, &pair.new, threshold)?;
        Some(Row { on: pair.on.clone(), ..row })
    };
    let rows: Vec<Row> = pairs.iter().filter_map(one).collect();
    Compared { differences: differences(base, new, &pairs), rows }
}

/// What the records of one row say; nothing if there are no times on either side.
pub fn row(key: &Key, base: &[&Record], new: &[&Record], threshold: f64) -> Option<Row> {
    let mut row = Row {
        case: key.0.clone(),
        impl_name: key.1.clone(),
        on: None,
        mode: key.2,
        base_ns: time(base),
        new_ns: time(new),
        comparison: None,
        outcome: Outcome::Missing,
        regression: false,
        undecided: false,
        same_contract: true,
        same_grade: true,
        status: None,
        note: String::new(),
    };
    let failed = |side: &[&Record]| side.iter().find(|r| r.status.is_failure()).map(|r| (r.status, r.message.clone()));
    match (row.base_ns, row.new_ns, failed(base), failed(new)) {
        (Some(_), _, _, Some((status, message))) => {
            (row.outcome, row.regression, row.status) = (Outcome::Broken, true, Some(status));
            row.note = format!("{}: {}", status.word(), message.lines().next().unwrap_or(""));
        }
        (Some(_), Some(_), _, None) => judge(&mut row, base, new, threshold),
        (Some(_), None, _, None) => row.undecided = true,
        (None, Some(_), Some((status, _)), None) => {
            (row.outcome, row.note) = (Outcome::Mended, format!("was {}", status.word()));
        }
        (None, Some(_), None, None) => row.outcome = Outcome::New,
        _ => return None, // no times on either side
    }
    Some(row)
}

/// Both sides have times.
fn judge(row: &mut Row, base: &[&Record], new: &[&Record], threshold: f64) {
    let (base, new): (Vec<&Record>, Vec<&Record>) = (timed(base).collect(), timed(new).collect());
    let series = |side: &[&Record]| -> Vec<Series> { side.iter().filter_map(|r| r.series()).collect() };
    let scatter = if new[0].device.kind == "cpu" { Scatter::CPU } else { Scatter::GPU };
    let Comparison { speedup, lo, hi, visible, verdict } = compare(&series(&new), &series(&base), scatter);
    row.comparison = Some(Ratio { speedup, lo, hi, visible });
    row.outcome = match verdict {
        Verdict::Faster => Outcome::Faster,
        Verdict::Slower => Outcome::Slower,
        Verdict::Same => Outcome::Same,
        Verdict::Ambiguous => Outcome::Ambiguous,
    };
    let all_like_first = |like: fn(&Record, &Record) -> bool| base.iter().chain(&new).all(|r| like(base[0], r));
    row.same_contract = all_like_first(|a, b| a.contract == b.contract);
    row.same_grade = all_like_first(|a, b| grade(a) == grade(b));
    let held = |side: &[&Record]| side.iter().any(|r| r.throttled() > MOSTLY);
    if !row.same_contract || !row.same_grade {
        row.outcome = Outcome::Ambiguous;
        row.note = "the two do not do the same work".into();
    } else if held(&base) != held(&new) {
        row.outcome = Outcome::Ambiguous;
        let side = if held(&new) { "new" } else { "base" };
        row.note = format!("the clocks were held down in the {side} run only");
    } else if clocks_explain(speedup, core_mhz(&base), core_mhz(&new)) {
        row.outcome = Outcome::Ambiguous;
        row.note = OTHER_CLOCK.into();
    } else if visible.is_none() {
        row.note = "too few visits to tell".into();
    }
    // That much longer.
    let tolerated = 1.0 / (1.0 + threshold);
    row.regression = row.outcome == Outcome::Slower && speedup <= tolerated;
    let could_hide = visible.is_none_or(|_| lo < tolerated);
    // Without a threshold every pair hides something; then the verdict counts.
    row.undecided = !row.regression && could_hide && (threshold > 0.0 || row.outcome == Outcome::Ambiguous);
}

fn core_mhz(side: &[&Record]) -> Option<f64> {
    let clocks: Vec<f64> = side.iter().filter_map(|r| r.core_mhz()).collect();
    (!clocks.is_empty()).then(|| geomean(&clocks))
}

/// The records whose times count.
fn timed<'a>(side: &[&'a Record]) -> impl Iterator<Item = &'a Record> {
    side.iter().copied().filter(|r| r.status.is_comparable())
}

fn time(side: &[&Record]) -> Option<f64> {
    let times: Vec<f64> = timed(side).filter_map(|r| r.time()).map(|t| t.value).collect();
    (!times.is_empty()).then(|| geomean(&times))
}

/// What is not the same on both sides, before anything is said about speed.
pub fn differences(base: &[Loaded], new: &[Loaded], pairs: &[(Key, Pair)]) -> Vec<Difference> {
    let mut out = Vec::new();
    let mut hold_all = |what: &str, of: &dyn Fn(&Loaded) -> Vec<String>| {
        let side = |runs: &[Loaded]| runs.iter().flat_map(of).collect::<IndexSet<_>>();
        let (base, new) = (side(base), side(new));
        if base != new {
            let word = |v: String| if v.is_empty() { "-".into() } else { v };
            let shown = |side: IndexSet<String>| side.into_iter().map(word).collect::<Vec<_>>().join(", ");
            out.push(Difference { what: what.into(), base: shown(base), new: shown(new) });
        }
    };
    hold_all("device", &|l| devices(&l.run).map(|d| d.name.clone()).collect());
    hold_all("device id", &|l| devices(&l.run).map(|d| d.id.clone()).collect());
    let mut hold = |what: &str, of: &dyn Fn(&Loaded) -> String| hold_all(what, &|l| vec![of(l)]);
    hold("kmark", &|l| l.run.kmark.clone());
    hold("commit", &|l| l.run.git.as_ref().map(commit).unwrap_or_default());
    hold("host", &|l| l.run.host.clone().unwrap_or_default());
    hold("mode", &|l| l.run.settings.mode.word().into());
    hold("rounds", &|l| l.run.settings.rounds.to_string());
    hold("budget", &|l| crate::units::time(l.run.settings.budget_ns as f64));
    hold("seed", &|l| l.run.settings.seed.to_string());
    let known: IndexSet<&String> = base.iter().chain(new).flat_map(|l| l.run.environment.keys()).collect();
    for key in known.into_iter().filter(|k| !PASSING.contains(&k.as_str()) && !k.starts_with("gpu")) {
        hold(key, &|l| l.run.environment.get(key).cloned().unwrap_or_default());
    }
    let elsewhere = pairs.iter().filter(|(_, p)| p.elsewhere).count();
    if elsewhere > 0 && !out.iter().any(|d| d.what.starts_with("device")) {
        let base = format!("{elsewhere} of {} rows", pairs.len());
        out.push(Difference { what: "GPU or machine of".into(), base, new: "another one".into() });
    }
    let hashes = |rows: &[&Record]| rows.iter().map(|r| r.impl_hash.clone()).collect::<IndexSet<_>>();
    let both = pairs.iter().filter(|(_, p)| !p.base.is_empty() && !p.new.is_empty());
    let changed: IndexSet<&str> =
        both.filter(|(_, p)| hashes(&p.base) != hashes(&p.new)).map(|(key, _)| key.1.as_str()).collect();
    if !changed.is_empty() {
        let names = changed.into_iter().collect::<Vec<_>>().join(", ");
        out.push(Difference { what: "code of".into(), base: names, new: "changed".into() });
    }
    out
}

/// The devices of a run.
fn devices(run: &Run) -> impl Iterator<Item = &DeviceId> {
    let several = run.gpus.iter().map(|g| &g.device);
    several.chain(std::iter::once(&run.device).filter(|_| run.gpus.is_empty()))
}

/// A commit as people read it.
pub fn commit(git: &Git) -> String {
    let short: String = git.commit.chars().take(10).collect();
    if git.dirty { format!("{short} and changes") } else { short }
}
