//! What every format shows: one row per record, with the numbers derived from its raw samples. A record is looked at once
//! and its samples are let go, so that a report takes little memory, however long the run was.

use indexmap::IndexMap;
use kmark_core::cost::{Cost, Factors};
use kmark_core::record::{Mode, Record, Status, family};
use kmark_core::run::Run;
use kmark_core::stats::{Sorted, Typical, median};
use kmark_core::tally::Grade;
use kmark_core::verdict::{Comparison, Series};
use serde::Serialize;

#[derive(Serialize)]
pub struct Row {
    pub run: String,
    pub case: String,
    pub op: String,
    pub dtype: &'static str,
    pub axes: IndexMap<String, u64>,
    pub attrs: IndexMap<String, String>,
    #[serde(rename = "impl")]
    pub impl_name: String,
    pub device: String,
    /// Which of its kind.
    #[serde(skip)]
    pub device_id: String,
    pub mode: &'static str,
    pub status: &'static str,
    pub contract: String,
    /// How well its results are rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grade: Option<Grade>,
    /// The bound of a user's op says little.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ill_conditioned: bool,
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
    #[serde(skip)]
    pub cost: Cost,
    /// What the row says in comparisons, if its times count.
    #[serde(skip)]
    pub basis: Option<Basis>,
    /// Where a report shows them.
    #[serde(skip)]
    pub samples: Samples,
    /// What else is to be told of the record, as a report writes it.
    #[serde(skip)]
    pub behind: Box<str>,
}

/// A row beside the baseline of its case.
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

/// What a row says in comparisons.
pub struct Basis {
    pub series: Series,
    pub group: String,
    pub process: String,
    pub on_cpu: bool,
    pub core_mhz: Option<f64>,
}

impl Basis {
    pub fn of(r: &Record, series: Series) -> Basis {
        Basis {
            series,
            group: r.group.clone(),
            process: r.process.clone().unwrap_or_else(|| family(&r.impl_name)),
            on_cpu: r.device.kind == "cpu",
            core_mhz: r.core_mhz(),
        }
    }
}

/// What a format needs of a record beside its row.
pub struct Keep {
    /// So many samples of the first rows of each op, and of the rows after them.
    pub samples: usize,
    pub later: usize,
    /// Of so many rows; the rest have neither samples nor anything behind them.
    pub rows: usize,
    pub behind: Option<fn(&Run, &Row, &Record) -> String>,
}

/// What most formats keep.
pub const NOTHING: Keep = Keep { samples: 0, later: 0, rows: 0, behind: None };

/// Some of a record's samples, evenly spread over the order of measuring. As many digits as a picture shows.
#[derive(Default)]
pub struct Samples {
    pub ns: Vec<f32>,
    /// The clock at each of them, or none.
    pub mhz: Vec<f32>,
}

impl Samples {
    fn of(r: &Record, most: usize) -> Samples {
        let few = |values: &[f64]| picked(values, most).map(|v| *v as f32).collect();
        Samples { ns: few(&r.samples_ns), mhz: few(&r.clock_mhz) }
    }

    /// Keeps so many of them.
    pub fn thin(&mut self, most: usize) {
        for values in [&mut self.ns, &mut self.mhz] {
            *values = picked(values, most).copied().collect();
        }
    }
}

/// At most so many of the values.
fn picked<T>(values: &[T], most: usize) -> impl Iterator<Item = &T> {
    let kept = values.len().min(most);
    (0..kept).map(move |i| &values[i * values.len() / kept])
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

impl Row {
    /// The row of a record, not yet compared with others.
    pub fn new(name: &str, run: &Run, r: &Record, keep: &Keep) -> Row {
        let worst = r.verify.iter().flat_map(|v| &v.regions).map(|r| r.worst).reduce(f64::max);
        let (typical, series) = r.time_and_series().unzip();
        let mut row = Row {
            run: name.to_string(),
            case: r.case.clone(),
            op: r.op.clone(),
            dtype: r.dtype.map_or("", |d| d.name()),
            axes: r.axes.clone(),
            attrs: r.attrs.clone(),
            impl_name: r.impl_name.clone(),
            device: r.device.name.clone(),
            device_id: r.device.id.clone(),
            mode: r.mode.word(),
            status: r.status.word(),
            contract: r.contract.clone(),
            grade: grade(r),
            ill_conditioned: r.verify.as_ref().and_then(|v| v.bound.as_ref()).is_some_and(|b| b.ill_conditioned),
            worst_error: worst,
            time: typical.map(|t| time(run, r, t)),
            against: None,
            message: r.message.clone(),
            failure: r.status.is_failure(),
            cost: r.cost,
            basis: series.filter(|_| r.status.is_comparable()).map(|s| Basis::of(r, s)),
            samples: Samples::of(r, keep.samples),
            behind: Box::default(),
        };
        if let Some(behind) = keep.behind {
            row.behind = behind(run, &row, r).into_boxed_str();
        }
        row
    }

    /// Whether it has something to show, rather than an impl that does not claim the case or is not there.
    pub fn is_told(&self) -> bool {
        self.time.is_some() || self.failure
    }
}

fn time(run: &Run, r: &Record, t: Typical) -> Time {
    let samples = Sorted::of(&r.samples_ns);
    // In the cache there is no memory to be limited by.
    let roofs = run.roofs_of(&r.device).filter(|_| r.mode == Mode::Cold);
    let least_ns =
        roofs.zip(r.dtype).map(|(roofs, dtype)| 1e9 * roofs.least_seconds(&r.cost, Factors::of(dtype, &r.attrs)));
    Time {
        time_ns: t.value,
        lo_ns: t.lo,
        hi_ns: t.hi,
        median_ns: samples.quantile(0.5),
        mad_ns: samples.mad(),
        p05_ns: samples.quantile(0.05),
        p95_ns: samples.quantile(0.95),
        samples: r.samples_ns.len(),
        gb_per_s: r.cost.bytes() as f64 / t.value,
        gflop_per_s: r.cost.flops as f64 / t.value,
        of_roof: least_ns.map(|least| least / t.value),
        impossible: r.status == Status::Impossible,
        clock_mhz: (!r.clock_mhz.is_empty()).then(|| median(&r.clock_mhz)),
        stop: r.stop,
        throttled: r.throttled(),
        throttled_by: r.throttled_by(),
    }
}

pub fn grade(r: &Record) -> Option<Grade> {
    r.verify.as_ref().and_then(|v| v.grade)
}
