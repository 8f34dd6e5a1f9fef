//! What may be typed of records: reports, comparisons, histories, merged folders.

use super::help;
use crate::units::parse_fraction;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = help::REPORT)]
pub struct ReportArgs {
    /// Folders of runs, or of what `kmark merge` made
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    #[arg(long, default_value = "table", value_parser = clap::builder::PossibleValuesParser::new(crate::report::names()))]
    pub format: String,
    /// Write to this file instead of standard output; it must not exist. For svg and png, a folder
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// The impl that speed-ups refer to, or `fastest`: in every case the fastest that is not ours [default: that of the run]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Only rows whose case, op or impl is like this; `*` stands for anything; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<String>,
    /// Sort the rows of a run by this column, for instance speedup; -speedup puts the largest first
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Show these columns: those of the CSV file, axes and attributes among them
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Unit of times [default: what keeps them readable; ns for programs]
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(crate::report::UNITS.iter().map(|u| u.name)))]
    pub unit: Option<String>,
    /// Draw png light on dark
    #[arg(long)]
    pub dark: bool,
}

#[derive(Args)]
#[command(after_help = help::COMPARE)]
pub struct CompareArgs {
    /// Folder of the run that was before
    pub base: PathBuf,
    /// Folder of the run that is held against it
    pub new: PathBuf,
    /// Another run like BASE: several on a side show how much runs differ; may be repeated
    #[arg(long = "base", value_name = "RUN", id = "more-base")]
    pub more_base: Vec<PathBuf>,
    /// Another run like NEW; may be repeated
    #[arg(long = "new", value_name = "RUN", id = "more-new")]
    pub more_new: Vec<PathBuf>,
    /// Slow-downs smaller than this are no regressions, however certain they are
    #[arg(long, value_parser = parse_fraction, value_name = "PERCENT")]
    pub threshold: Option<f64>,
    /// Only rows whose case, op or impl is like this; `*` stands for anything; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<String>,
    /// Exit with 4 if a slow-down of the threshold could have been missed, or a row is missing
    #[arg(long)]
    pub strict: bool,
    #[arg(long, default_value = "table", value_parser = clap::builder::PossibleValuesParser::new(crate::report::compared::FORMATS))]
    pub format: String,
    /// Print nothing; the exit code tells
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Args)]
#[command(after_help = help::HISTORY)]
pub struct HistoryArgs {
    /// Folders of runs, or folders that hold them
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// Show every case by itself instead of all cases of an op together
    #[arg(long)]
    pub cases: bool,
    /// Only rows whose case, op or impl is like this; `*` stands for anything; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<String>,
    /// Only runs with this tag; may be repeated
    #[arg(long, value_name = "NAME")]
    pub tag: Vec<String>,
    #[arg(long, default_value = "table", value_parser = clap::builder::PossibleValuesParser::new(crate::report::history::FORMATS))]
    pub format: String,
}

#[derive(Args)]
#[command(after_help = help::MERGE)]
pub struct MergeArgs {
    /// Folders of runs, or folders that were merged before
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// The folder that they go into; new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}
