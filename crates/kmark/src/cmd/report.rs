//! `kmark report`: records in, text out.

use super::print;
use crate::cli::ReportArgs;
use crate::error::{Error, Result};
use crate::report::{Options, RunData, render};
use crate::store::load;
use kmark_core::spelling::unknown;
use std::io::Write;

pub fn run(args: ReportArgs) -> Result<u8> {
    let loaded = args.runs.iter().map(|p| load(p)).collect::<Result<Vec<_>>>()?;
    if let Some(name) = &args.baseline {
        let mut known: Vec<&str> = loaded.iter().flat_map(|l| l.records.iter().map(|r| r.impl_name.as_str())).collect();
        known.sort();
        known.dedup();
        if !known.contains(&name.as_str()) {
            return Err(Error::usage(unknown("baseline", name, known)));
        }
    }
    let runs: Vec<RunData> =
        loaded.iter().map(|l| RunData { name: &l.name, run: &l.run, records: &l.records }).collect();
    let to_file = args.out.is_some();
    let options = Options {
        baseline: args.baseline.clone(),
        color: !to_file && super::color(),
        width: if to_file { None } else { super::terminal_width() },
    };
    let text = render(&args.format, &runs, &options);
    match &args.out {
        None => print(&text)?,
        Some(path) => std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .and_then(|mut f| f.write_all(text.as_bytes()))
            .map_err(|e| Error::usage(format!("--out {}: {e}", path.display())))?,
    }
    Ok(0)
}
