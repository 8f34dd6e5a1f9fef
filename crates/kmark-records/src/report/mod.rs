//! Reports: pure functions of runs and rows. A format is a file here and a row in `FORMATS`.

pub mod against;
mod behind;
pub mod chart;
pub mod columns;
pub mod compared;
mod csv;
pub mod fleet;
pub mod history;
mod html;
mod json;
pub mod keep;
mod markdown;
mod narrow;
pub mod rows;
mod summary;
pub mod table;

pub use self::{json::render as json, table::render as table};
use columns::Column;
use keep::Keep;
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
        let mut rows: Vec<Row> = records.iter().map(|r| Row::new(name, run, r, &keep::NOTHING)).collect();
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
    /// Of pictures that cannot follow their reader: light on dark.
    pub dark: bool,
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
/// Its name and what it holds.
pub type File = (String, Vec<u8>);

/// What comes of a report.
pub enum Render {
    Text(fn(Runs, &Options) -> String),
    Files(fn(Runs, &Options) -> Vec<File>),
}

pub struct Format {
    pub name: &'static str,
    pub render: Render,
    /// Whether `columns` and `unit` mean anything to it.
    pub has_columns: bool,
    pub keep: Keep,
}

const fn text(name: &'static str, render: fn(Runs, &Options) -> String) -> Format {
    Format { name, render: Render::Text(render), has_columns: true, keep: keep::NOTHING }
}

pub static FORMATS: &[Format] = &[
    text("table", table::render),
    text("markdown", markdown::render),
    text("csv", csv::render),
    text("jsonl", csv::render_lines),
    Format { has_columns: false, ..text("json", json::render) },
    Format { has_columns: false, keep: html::KEEP, ..text("html", html::render) },
    Format { name: "svg", render: Render::Files(chart::svg_files), has_columns: false, keep: chart::KEEP },
    Format { name: "png", render: Render::Files(chart::png_files), has_columns: false, keep: chart::KEEP },
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

/// At most so many characters: the middle goes.
pub fn short(text: &str, most: usize) -> String {
    let n = text.chars().count();
    if n <= most {
        return text.to_string();
    }
    let (head, tail) = (most / 2, (most - most / 2).saturating_sub(1));
    let end: String = text.chars().skip(n - tail).collect();
    format!("{}…{end}", text.chars().take(head).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_goes() {
        assert_eq!(
            (short("abcdefghij", 5), short("abc", 5), short("abc", 0)),
            ("ab…ij".into(), "abc".into(), "…".into())
        );
    }
}
