//! Reports: pure functions of runs and records. A format is a file here and a row in `FORMATS`.

pub mod compared;
mod csv;
mod json;
mod markdown;
pub mod rows;
mod table;

use kmark_core::record::{Record, Run};

/// A run as a report sees it.
pub struct RunData<'a> {
    pub name: &'a str,
    pub run: &'a Run,
    pub records: &'a [Record],
}

#[derive(Default)]
pub struct Options {
    /// The impl that speed-ups refer to instead of the run's own; without either, each case has its own.
    pub baseline: Option<String>,
    pub color: bool,
    /// Columns of the terminal; `None` means as wide as it takes.
    pub width: Option<u16>,
}

pub struct Format {
    pub name: &'static str,
    pub render: fn(&[RunData], &Options) -> String,
}

pub static FORMATS: &[Format] = &[
    Format { name: "table", render: table::render },
    Format { name: "markdown", render: markdown::render },
    Format { name: "csv", render: csv::render },
    Format { name: "json", render: json::render },
];

pub fn names() -> Vec<&'static str> {
    FORMATS.iter().map(|f| f.name).collect()
}

pub fn render(format: &str, runs: &[RunData], options: &Options) -> String {
    let format = FORMATS.iter().find(|f| f.name == format).expect("the command line knows the formats");
    (format.render)(runs, options)
}
