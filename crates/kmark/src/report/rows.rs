//! What every format shows: one row per record with the numbers derived from its raw samples, and a summary per op.

use super::{Options, RunData};
use kmark_core::record::{Mode, Record, Run, Status, family};
use kmark_core::stats::{Typical, geomean, mad, median, quantile};
use kmark_core::tally::Grade;
use kmark_core::verdict::{Comparison, Verdict, aa_difference, compare, noise_floor};
use serde::Serialize;

#[derive(Serialize)]
pub struct Row {
    pub run: String,
    pub case: String,
    pub op: String,
    pub dtype: &'static str,
    #[serde(rename = "impl")]
    pub impl_name: String,
    pub device: String,
    pub mode: &'static str,
    pub status: &'static str,
    pub contract: String,
    /// How well its results are rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grade: Option<Grade>,
    /// Largest error as a multiple of what one rounding allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Against another impl of the same case in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip)]
    pub failure: bool,
}

#[derive(Serialize)]
pub struct Time {
    pub time_ns: f64,
    pub lo_ns: f64,
    pub hi_ns: f64,
    pub median_ns: f64,
    pub mad_ns: f64,
    pub p05_ns: f64,
    pub p95_ns: f64,
    pub samples: usize,
    pub gb_per_s: f64,
    pub gflop_per_s: f64,
    /// Share of the machine's measured limit for this kind of traffic. None for cached data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_roof: Option<f64>,
    /// Faster than the machine can move the bytes: something is wrong with the number.
    pub impossible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<kmark_core::stop::Stop>,
    /// Share of the samples that were taken while the clocks were held down, and why.
    pub throttled: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttled_by: Vec<String>,
}

#[derive(Serialize)]
pub struct Against {
    pub baseline: String,
    /// A different contract: the ratio compares what is not the same work.
    pub same_contract: bool,
    /// One rounds on the way, the other does not.
    pub same_grade: bool,
    #[serde(flatten)]
    pub comparison: Comparison,
}

/// Speed-ups of one impl over all cases of an op that differ in nothing but their shape.
#[derive(Serialize)]
pub struct Summary {
    pub op: String,
    /// The cases' id without their shape.
    pub of: String,
    #[serde(rename = "impl")]
    pub impl_name: String,
    pub baseline: String,
    pub geomean: f64,
    pub cases: usize,
    pub faster: usize,
    pub slower: usize,
    /// Whether each was held against one that does the same work, and rounds alike.
    pub same_contract: bool,
    pub same_grade: bool,
    pub failures: usize,
}

/// The run's A/A noise as a relative difference.
pub fn noise(records: &[Record]) -> Option<f64> {
    let comparable = records.iter().filter(|r| r.status.is_comparable());
    let aa: Vec<f64> = comparable.filter_map(|r| aa_difference(&r.rounds())).collect();
    noise_floor(&aa).map(f64::exp_m1)
}

pub fn rows(data: &RunData, options: &Options) -> Vec<Row> {
    let baseline = options.baseline.as_ref().or(data.run.settings.baseline.as_ref());
    data.records.iter().map(|r| row(data, r, baseline)).collect()
}

fn row(data: &RunData, r: &Record, baseline: Option<&String>) -> Row {
    let worst = r.verify.iter().flat_map(|v| &v.regions).map(|r| r.worst).reduce(f64::max);
    Row {
        run: data.name.to_string(),
        case: r.case.clone(),
        op: r.op.clone(),
        dtype: r.dtype.name(),
        impl_name: r.impl_name.clone(),
        device: r.device.name.clone(),
        mode: r.mode.word(),
        status: r.status.word(),
        contract: r.contract.clone(),
        grade: grade(r),
        worst_error: worst,
        time: r.time().map(|t| time(data.run, r, t)),
        against: against(data.records, r, baseline),
        message: r.message.clone(),
        failure: r.status.is_failure(),
    }
}

fn time(run: &Run, r: &Record, t: Typical) -> Time {
    let rate = |ns: f64| r.cost.bytes() as f64 / ns;
    // In the cache there is no memory to be limited by.
    let roofs = run.roofs.as_ref().filter(|_| r.mode == Mode::Cold);
    let least_ns = roofs.map(|roofs| 1e9 * roofs.least_seconds(&r.cost, r.dtype));
    Time {
        time_ns: t.value,
        lo_ns: t.lo,
        hi_ns: t.hi,
        median_ns: median(&r.samples_ns),
        mad_ns: mad(&r.samples_ns),
        p05_ns: quantile(&r.samples_ns, 0.05),
        p95_ns: quantile(&r.samples_ns, 0.95),
        samples: r.samples_ns.len(),
        gb_per_s: rate(t.value),
        gflop_per_s: r.cost.flops as f64 / t.value,
        of_roof: least_ns.map(|least| least / t.value),
        impossible: r.status == Status::Impossible,
        clock_mhz: (!r.clock_mhz.is_empty()).then(|| median(&r.clock_mhz)),
        stop: r.stop,
        throttled: r.throttled(),
        throttled_by: r.throttled_by(),
    }
}

/// Kernels that we wrote ourselves are no baseline while there is another.
fn is_ours(impl_name: &str) -> bool {
    ["cpu/", "cuda/"].iter().any(|f| impl_name.starts_with(f))
}

pub fn grade(r: &Record) -> Option<Grade> {
    r.verify.as_ref().and_then(|v| v.grade)
}

/// What the same launch on a GPU may differ between two processes, in ns, at the level of a verdict: four standard deviations
/// of the difference of two offsets of 50 ns each (measured on an H200; METHODOLOGY has the figures).
const APART_NS: f64 = 280.0;

/// Whether a difference between two rows can be trusted, and up to which difference it cannot. On the CPU, two processes
/// of the same code differ by where the system puts them: on a busy machine by a quarter and more, round after round,
/// which no A/A pair inside one of them can show.
fn apart_ns(a: &Record, b: &Record) -> Option<f64> {
    let process = |r: &Record| r.process.clone().unwrap_or_else(|| family(&r.impl_name));
    match process(a) == process(b) {
        true => Some(0.0),
        false => (a.device.kind != "cpu").then_some(APART_NS),
    }
}

fn against(records: &[Record], r: &Record, baseline: Option<&String>) -> Option<Against> {
    if !r.status.is_comparable() {
        return None;
    }
    let peers = || records.iter().filter(|p| p.case == r.case && p.mode == r.mode && p.status.is_comparable());
    let base = match baseline {
        Some(name) => peers().find(|p| p.impl_name == *name)?,
        None => {
            let time = |p: &&Record| p.time().map_or(f64::INFINITY, |t| t.value);
            let others = peers().filter(|p| !is_ours(&p.impl_name));
            others.min_by(|a, b| time(a).total_cmp(&time(b))).or_else(|| peers().next())?
        }
    };
    if base.impl_name == r.impl_name {
        return None;
    }
    // Rounds of different groups were not taken in turns: their ratio is shown, but proves nothing; nor does one
    // between two processes on a CPU.
    let comparison = match apart_ns(r, base) {
        Some(apart) if base.group == r.group => compare(&r.series()?, &base.series()?, apart),
        _ => {
            let speedup = base.time()?.value / r.time()?.value;
            Comparison { speedup, lo: speedup, hi: speedup, visible: None, verdict: Verdict::Ambiguous }
        }
    };
    Some(Against {
        baseline: base.impl_name.clone(),
        same_contract: base.contract == r.contract,
        same_grade: grade(base) == grade(r),
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

/// Rows by `key`, in the order of first appearance.
fn grouped<'a, K: PartialEq>(
    rows: impl Iterator<Item = &'a Row>,
    key: impl Fn(&'a Row) -> K,
) -> Vec<(K, Vec<&'a Row>)> {
    let mut groups: Vec<(K, Vec<&Row>)> = Vec::new();
    for r in rows {
        let key = key(r);
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, group)) => group.push(r),
            None => groups.push((key, vec![r])),
        }
    }
    groups
}

/// The geometric mean of the speed-ups over shapes, and how many cases failed.
pub fn summaries(rows: &[Row]) -> Vec<Summary> {
    let shapeless = |case: &str| {
        let parts = case.split('/').enumerate().filter(|(i, _)| *i != 2);
        parts.map(|(_, part)| part).collect::<Vec<_>>().join("/")
    };
    let mut out = Vec::new();
    for ((of, impl_name), mine) in grouped(rows.iter(), |r| (shapeless(&r.case), &r.impl_name)) {
        let failures = mine.iter().filter(|r| r.failure).count();
        let compared: Vec<&Against> = mine.iter().filter_map(|r| r.against.as_ref()).collect();
        if compared.is_empty() && failures == 0 {
            continue;
        }
        let count = |v: Verdict| compared.iter().filter(|a| a.comparison.verdict == v).count();
        let speedups: Vec<f64> = compared.iter().map(|a| a.comparison.speedup).collect();
        let mut baselines: Vec<&str> = compared.iter().map(|a| a.baseline.as_str()).collect();
        baselines.sort();
        baselines.dedup();
        out.push(Summary {
            op: mine[0].op.clone(),
            of,
            impl_name: impl_name.clone(),
            baseline: baselines.join(", "),
            geomean: if speedups.is_empty() { f64::NAN } else { geomean(&speedups) },
            cases: compared.len(),
            faster: count(Verdict::Faster),
            slower: count(Verdict::Slower),
            same_contract: compared.iter().all(|a| a.same_contract),
            same_grade: compared.iter().all(|a| a.same_grade),
            failures,
        });
    }
    out
}

/// One line for each impl and op whose results are loose: how far off they are at the worst.
pub fn loose<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    let loose = rows.filter(|r| r.grade == Some(Grade::Loose));
    let line = |((op, impl_name), rows): ((&String, &String), Vec<&Row>)| {
        let worst = rows.iter().filter_map(|r| r.worst_error).fold(0.0, f64::max);
        format!("{op} {impl_name} is off by up to {}×", crate::units::digits(worst))
    };
    grouped(loose, |r| (&r.op, &r.impl_name)).into_iter().map(line).collect()
}

/// How many rows have each status, in the order of first appearance.
pub fn counts(rows: &[Row]) -> Vec<(&'static str, usize)> {
    grouped(rows.iter(), |r| r.status).into_iter().map(|(status, rows)| (status, rows.len())).collect()
}

/// The rows that are worth a line below the table, each with its words: of an impl's rows that say the same of one op
/// but for numbers only the first.
pub fn explained<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(&'a Row, String)> {
    let numberless = |message: &str| message.replace(|c: char| c.is_ascii_digit() || "+-.".contains(c), "");
    let unexplained = rows.filter(|r| r.status != Status::Ok.word() && r.status != Status::Unverified.word());
    let alike = grouped(unexplained, |r| (r.status, &r.op, &r.impl_name, numberless(&r.message)));
    let words = |rows: Vec<&'a Row>| {
        let (first, more) = (rows[0], rows.len() - 1);
        let says = first.message.lines().next().unwrap_or("");
        (first, if more == 0 { says.into() } else { format!("{says} (and {more} more like it)") })
    };
    alike.into_iter().map(|(_, rows)| words(rows)).collect()
}
