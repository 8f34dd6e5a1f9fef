//! Reports: pure functions of runs and rows. A format is a file here and a row in `FORMATS`.

pub mod against;
mod behind;
pub mod chart;
pub mod columns;
pub mod compared;
mod csv;
mod data;
mod families;
pub mod fleet;
pub mod history;
mod html;
mod json;
pub mod keep;
mod markdown;
mod narrow;
mod options;
pub mod rows;
mod summary;
pub mod table;

pub use self::{json::render as json, table::render as table};
pub use data::{File, RunData, UNITS, Unit, chosen, short};
pub use options::Options;
use rows::Keep;

type Runs<'a, 'b> = &'a [RunData<'b>];
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
    Format { name, render: Render::Text(render), has_columns: true, keep: rows::NOTHING }
}

pub static FORMATS: &[Format] = &[
    text("table", table::render),
    text("markdown", markdown::render),
    text("csv", csv::render),
    text("jsonl", csv::render_lines),
    Format { has_columns: false, ..text("json", json::render) },
    Format { has_columns: false, ..text("families", families::render) },
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
