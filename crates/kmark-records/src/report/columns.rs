//! The columns of a report: one table of names, for every format, for `--columns` and for `--sort`. A column says what it
//! holds for programs and, where that differs, what people read.

use super::against::mark;
use super::rows::{Against, Row, Time};
use super::{RunData, Unit};
use crate::units;
use indexmap::IndexSet;
use kmark_core::tally::Grade;
use std::borrow::Cow;
use std::cmp::Ordering;

/// What stands in a cell.
pub enum Value<'a> {
    Nothing,
    Text(Cow<'a, str>),
    Count(u64),
    /// With so many decimals, where it is written for programs.
    Number(f64, usize),
    Ns(f64),
}

use Value::{Count, Nothing, Ns, Number, Text};

/// A column that every report has.
struct Fixed {
    name: &'static str,
    /// What it is called in tables.
    head: &'static str,
    value: fn(&Row) -> Value,
    /// What people read instead of the value.
    shown: Option<fn(&Row, Option<Unit>) -> String>,
}

const fn plain(name: &'static str, value: fn(&Row) -> Value) -> Fixed {
    Fixed { name, head: name, value, shown: None }
}

/// In the order of the CSV file.
static FIXED: &[Fixed] = &[
    plain("run", |r| text(&r.run)),
    plain("case", |r| text(&r.case)),
    plain("op", |r| text(&r.op)),
    plain("dtype", |r| text(r.dtype)),
    plain("impl", |r| text(&r.impl_name)),
    plain("device", |r| text(&r.device)),
    plain("mode", |r| text(r.mode)),
    Fixed { name: "status", head: "status", value: |r| text(r.status), shown: Some(status) },
    plain("contract", |r| text(&r.contract)),
    plain("grade", |r| r.grade.map_or(Nothing, |g| text(g.word()))),
    plain("worst_error", |r| r.worst_error.map_or(Nothing, |w| Number(w, 3))),
    Fixed { name: "time_ns", head: "time", value: |r| of(r, |t| Ns(t.time_ns)), shown: Some(time) },
    plain("lo_ns", |r| of(r, |t| Ns(t.lo_ns))),
    plain("hi_ns", |r| of(r, |t| Ns(t.hi_ns))),
    Fixed { name: "spread", head: "±", value: |r| of(r, |t| Number(spread(t), 4)), shown: None },
    plain("median_ns", |r| of(r, |t| Ns(t.median_ns))),
    plain("mad_ns", |r| of(r, |t| Ns(t.mad_ns))),
    plain("p05_ns", |r| of(r, |t| Ns(t.p05_ns))),
    plain("p95_ns", |r| of(r, |t| Ns(t.p95_ns))),
    plain("samples", |r| of(r, |t| Count(t.samples as u64))),
    plain("gb_per_s", |r| of(r, |t| Number(t.gb_per_s, 4))),
    plain("gflop_per_s", |r| of(r, |t| Number(t.gflop_per_s, 4))),
    Fixed { name: "rate", head: "rate", value: |r| of(r, |t| text_of(rate(t))), shown: None },
    Fixed {
        name: "of_roof",
        head: "of roof",
        value: |r| of(r, |t| t.of_roof.map_or(Nothing, |v| Number(v, 4))),
        shown: Some(of_roof),
    },
    plain("clock_mhz", |r| of(r, |t| t.clock_mhz.map_or(Nothing, |v| Number(v, 0)))),
    plain("throttled", |r| of(r, |t| Number(t.throttled, 4))),
    plain("bytes", |r| Count(r.cost.bytes())),
    plain("flops", |r| Count(r.cost.flops)),
    plain("baseline", |r| against(r, |a| text(&a.baseline))),
    Fixed {
        name: "speedup",
        head: "× base",
        value: |r| against(r, |a| Number(a.comparison.speedup, 4)),
        shown: Some(speedup),
    },
    Fixed {
        name: "verdict",
        head: "verdict",
        value: |r| against(r, |a| text(a.comparison.verdict.word())),
        shown: Some(verdict),
    },
    Fixed {
        name: "visible",
        head: "sees",
        value: |r| against(r, |a| a.comparison.visible.map_or(Nothing, |v| Number(v, 4))),
        shown: Some(|r, _| r.against.as_ref().and_then(|a| a.comparison.visible).map(units::sees).unwrap_or_default()),
    },
    plain("message", |r| if r.message.is_empty() { Nothing } else { text(&r.message) }),
];

/// What tables show unless they are asked for something else.
const TABLE: &[&str] = &["case", "impl", "status", "time_ns", "spread", "rate", "of_roof", "speedup", "verdict"];
/// What programs can compute themselves is left out for them.
const NOT_FOR_PROGRAMS: &[&str] = &["spread", "rate"];

/// One of the fixed columns, or an axis or attribute of the cases.
#[derive(Clone)]
pub enum Column {
    Fixed(usize),
    OfCase(String),
}

impl Column {
    fn named(name: &str) -> Column {
        Column::Fixed(FIXED.iter().position(|f| f.name == name).expect("a column of the table"))
    }

    pub fn name(&self) -> &str {
        match self {
            Column::Fixed(i) => FIXED[*i].name,
            Column::OfCase(name) => name,
        }
    }

    /// The name for programs: times carry their unit.
    pub fn name_in(&self, unit: Option<Unit>) -> String {
        match (self.name().strip_suffix("_ns"), unit) {
            (Some(what), Some(unit)) => format!("{what}_{}", unit.name),
            _ => self.name().to_string(),
        }
    }

    /// The name for people.
    pub fn head(&self) -> &str {
        match self {
            Column::Fixed(i) => FIXED[*i].head.trim_end_matches("_ns"),
            Column::OfCase(name) => name,
        }
    }

    pub fn value<'a>(&self, r: &'a Row) -> Value<'a> {
        match self {
            Column::Fixed(i) => (FIXED[*i].value)(r),
            Column::OfCase(name) => match (r.axes.get(name), r.attrs.get(name)) {
                (Some(size), _) => Count(*size),
                (None, Some(word)) => text(word),
                (None, None) => Nothing,
            },
        }
    }

    /// The value as people read it.
    pub fn shown(&self, r: &Row, unit: Option<Unit>) -> String {
        if let Column::Fixed(i) = self
            && let Some(shown) = FIXED[*i].shown
        {
            return shown(r, unit);
        }
        match self.value(r) {
            Nothing => String::new(),
            Text(word) => word.into_owned(),
            Count(n) => n.to_string(),
            Number(v, _) if matches!(self.name(), "spread" | "throttled") => units::percent(v),
            Number(v, _) => units::digits(v),
            Ns(ns) => duration(ns, unit),
        }
    }

    pub fn is_number(&self) -> bool {
        let words = ["run", "case", "op", "dtype", "impl", "device", "mode", "status", "contract", "grade", "baseline"];
        !words.contains(&self.name()) && !matches!(self.name(), "verdict" | "message")
    }
}

impl Value<'_> {
    /// Numbers by size, words by their letters, nothing last.
    fn order(&self, other: &Value) -> Ordering {
        let number = |v: &Value| match v {
            Count(n) => Some(*n as f64),
            Number(v, _) | Ns(v) => Some(*v),
            Nothing | Text(_) => None,
        };
        match (self, other) {
            (Nothing, Nothing) => Ordering::Equal,
            (Nothing, _) => Ordering::Greater,
            (_, Nothing) => Ordering::Less,
            (Text(a), Text(b)) => a.cmp(b),
            (a, b) => number(a).unwrap_or(f64::INFINITY).total_cmp(&number(b).unwrap_or(f64::INFINITY)),
        }
    }
}

/// Every column that these runs have: the fixed ones and, after the case, its axes and attributes by their names. One name
/// is one column, as it is one word of `--set`.
pub fn all(runs: &[RunData]) -> Vec<Column> {
    let rows = || runs.iter().flat_map(|run| &run.rows);
    let axes = rows().flat_map(|r| r.axes.keys());
    let of_cases: IndexSet<&String> = axes.chain(rows().flat_map(|r| r.attrs.keys())).collect();
    let mut columns: Vec<Column> = FIXED.iter().map(|f| Column::named(f.name)).collect();
    let place = 1 + columns.iter().position(|c| c.name() == "dtype").expect("a column of the table");
    let taken = |name: &String| FIXED.iter().any(|f| f.name == name);
    let new = of_cases.into_iter().filter(|n| !taken(n)).map(|n| Column::OfCase(n.clone()));
    columns.splice(place..place, new);
    columns
}

pub fn for_programs(runs: &[RunData]) -> Vec<Column> {
    all(runs).into_iter().filter(|c| !NOT_FOR_PROGRAMS.contains(&c.name())).collect()
}

pub fn for_people() -> Vec<Column> {
    TABLE.iter().map(|name| Column::named(name)).collect()
}

/// Sorts rows by a column; rows that have nothing there come last, whichever way.
pub fn sort(rows: &mut [Row], by: &Column, down: bool) {
    rows.sort_by(|a, b| {
        let (a, b) = (by.value(a), by.value(b));
        let order = a.order(&b);
        let reversed = down && !matches!(a, Nothing) && !matches!(b, Nothing);
        if reversed { order.reverse() } else { order }
    });
}

fn text(word: &str) -> Value<'_> {
    Text(Cow::Borrowed(word))
}

fn text_of(word: String) -> Value<'static> {
    Text(Cow::Owned(word))
}

fn of<'a>(r: &'a Row, f: fn(&'a Time) -> Value<'a>) -> Value<'a> {
    r.time.as_ref().map_or(Nothing, f)
}

fn against<'a>(r: &'a Row, f: fn(&'a Against) -> Value<'a>) -> Value<'a> {
    r.against.as_ref().map_or(Nothing, f)
}

fn spread(t: &Time) -> f64 {
    (t.hi_ns - t.lo_ns) / 2.0 / t.time_ns
}

fn duration(ns: f64, unit: Option<Unit>) -> String {
    unit.map_or_else(|| units::time(ns), |u| format!("{} {}", units::digits(ns / u.ns), u.sign))
}

fn status(r: &Row, _: Option<Unit>) -> String {
    if r.grade == Some(Grade::Loose) { format!("{} ‡", r.status) } else { r.status.to_string() }
}

fn time(r: &Row, unit: Option<Unit>) -> String {
    let held = |t: &Time| if t.throttled > 0.5 { " †" } else { "" };
    r.time.as_ref().map(|t| format!("{}{}", duration(t.time_ns, unit), held(t))).unwrap_or_default()
}

/// Work with much arithmetic per byte is rated by arithmetic, the rest by traffic.
pub fn rate(t: &Time) -> String {
    match t.gflop_per_s > 20.0 * t.gb_per_s {
        true => units::flops(t.gflop_per_s * 1e9),
        false => format!("{} GB/s", units::digits(t.gb_per_s)),
    }
}

fn of_roof(r: &Row, _: Option<Unit>) -> String {
    let flag = |t: &Time| if t.impossible { " impossible" } else { "" };
    r.time.as_ref().and_then(|t| Some(units::percent(t.of_roof?) + flag(t))).unwrap_or_default()
}

fn speedup(r: &Row, _: Option<Unit>) -> String {
    let words =
        |a: &Against| format!("{}×{}", units::digits(a.comparison.speedup), mark(a.same_contract, a.same_grade));
    r.against.as_ref().map(words).unwrap_or_default()
}

fn verdict(r: &Row, _: Option<Unit>) -> String {
    let Some(a) = &r.against else { return String::new() };
    match a.comparison.visible {
        Some(v) => format!("{} (sees {})", a.comparison.verdict.word(), units::sees(v)),
        None => a.comparison.verdict.word().to_string(),
    }
}
