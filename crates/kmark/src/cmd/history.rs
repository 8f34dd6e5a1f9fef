//! `kmark history`: many runs in the order of their start, and where times changed.

use super::{print, print_text, say};
use crate::cli::HistoryArgs;
use crate::error::{Error, Result};
use crate::history::{by_case, by_op, load};
use crate::merge::each_once;
use crate::report::{Options, history as report};
use crate::store::{Loaded, folders_below};
use kmark_core::record::Record;
use kmark_core::spelling::matches;

pub fn run(args: HistoryArgs) -> Result<u8> {
    let mut runs: Vec<Loaded> = Vec::new();
    for path in &args.dirs {
        for folder in folders_below(path)? {
            match load(&folder) {
                Ok(run) => runs.push(run),
                // One among many that was cut off does not hide the others.
                Err(e) if folder != *path => say(&format!("left out: {e}")),
                Err(e) => return Err(e),
            }
        }
    }
    let mut runs = each_once(runs);
    runs.retain(|r| args.tag.iter().all(|tag| r.run.tags.contains(tag)));
    runs.sort_by_key(|r| humantime::parse_rfc3339(&r.run.started).ok());
    let like = |p: &String, r: &Record| [&r.case, &r.op, &r.impl_name].into_iter().any(|name| matches(p, name));
    for run in runs.iter_mut().filter(|_| !args.filter.is_empty()) {
        run.records.retain(|r| args.filter.iter().any(|p| like(p, r)));
    }
    let mut lines = by_case(&runs);
    if lines.is_empty() {
        return Err(Error::usage("there is no run with times here, or none that --filter and --tag leave"));
    }
    if !args.cases {
        lines = by_op(&lines);
    }
    let options = Options { color: super::color(), width: super::terminal_width(), ..Options::default() };
    let text = report::render(&args.format, &lines, args.cases, &options);
    if args.format == "table" { print_text(&text) } else { print(&text) }?;
    Ok(0)
}
