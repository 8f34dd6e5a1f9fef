//! Reports: pure functions of runs and rows. A format is a file here and a row in `FORMATS`.

pub mod against;
pub mod chart;
pub mod columns;
pub mod compared;
mod csv;
pub mod history;
mod html;
mod json;
mod markdown;
mod narrow;
pub mod rows;
mod summary;
mod table;

pub use self::{json::render as json, table::render as table};
use columns::Column;
use kmark_core::record::Record;
use kmark_core::run::Run;
use kmark_core::spelling::matches;
use rows::Row;

/// A run as a report sees it.
pub struct RunData<'a> {
    pub name: &'a str,
    pub run: &'a Run,
    pub rows: Vec<Row>,
}

impl<'a> RunData<'a> {
    /// Of records that are in memory.
    pub fn new(name: &'a str, run: &'a Run, records: &[Record], baseline: Option<&str>) -> RunData<'a> {
        let mut rows: Vec<Row> = records.iter().map(|r| Row::new(name, run, r, 0)).collect();
        against::judge(&mut rows, baseline.or(run.settings.baseline.as_deref()));
        RunData { name, run, rows }
    }
}

#[derive(Default)]
pub struct Options {
    pub color: bool,
    /// Columns of the terminal; `None` means as wide as it takes.
    pub width: Option<u16>,
    /// What is shown of a row instead of what the format shows by itself.
    pub columns: Option<Vec<Column>>,
    /// Of times, instead of one that keeps them readable.
    pub unit: Option<Unit>,
}

/// A unit of time.
#[derive(Clone, Copy)]
pub struct Unit {
    pub name: &'static str,
    pub sign: &'static str,
    pub ns: f64,
    /// Places behind the point, where it is written for programs.
    pub decimals: usize,
}

pub static UNITS: [Unit; 4] = [
    Unit { name: "ns", sign: "ns", ns: 1.0, decimals: 1 },
    Unit { name: "us", sign: "µs", ns: 1e3, decimals: 4 },
    Unit { name: "ms", sign: "ms", ns: 1e6, decimals: 7 },
    Unit { name: "s", sign: "s", ns: 1e9, decimals: 10 },
];

type Runs<'a, 'b> = &'a [RunData<'b>];

/// What comes of a report.
pub enum Render {
    Text(fn(Runs, &Options) -> String),
    /// Several files: names and contents.
    Files(fn(Runs, &Options) -> Vec<(String, String)>),
}

pub struct Format {
    pub name: &'static str,
    pub render: Render,
    /// Whether `columns` and `unit` mean anything to it.
    pub has_columns: bool,
    /// How many samples of a record it shows.
    pub samples: usize,
}

const fn text(name: &'static str, render: fn(Runs, &Options) -> String) -> Format {
    Format { name, render: Render::Text(render), has_columns: true, samples: 0 }
}

pub static FORMATS: &[Format] = &[
    text("table", table::render),
    text("markdown", markdown::render),
    text("csv", csv::render),
    text("jsonl", csv::render_lines),
    Format { has_columns: false, ..text("json", json::render) },
    Format { has_columns: false, samples: 256, ..text("html", html::render) },
    Format { name: "svg", render: Render::Files(chart::files), has_columns: false, samples: 2000 },
];

pub fn names() -> Vec<&'static str> {
    FORMATS.iter().map(|f| f.name).collect()
}

pub fn format(name: &str) -> &'static Format {
    FORMATS.iter().find(|f| f.name == name).expect("the command line knows the formats")
}

/// Whether a row's case, op or impl is like one of the patterns.
pub fn chosen(r: &Row, filter: &[String]) -> bool {
    let like = |p: &String| [&r.case, &r.impl_name, &r.op].into_iter().any(|name| matches(p, name));
    filter.is_empty() || filter.iter().any(like)
}
