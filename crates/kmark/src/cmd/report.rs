//! `kmark report`: records in, text out.

use super::{print, print_text};
use crate::cli::ReportArgs;
use crate::error::{Error, Result};
use crate::report::columns::{self, Column};
use crate::report::rows::Row;
use crate::report::{File, Options, Render, RunData, UNITS, format};
use crate::shown;
use kmark_core::spelling::unknown;
use std::io::Write;
use std::path::Path;

pub fn run(args: ReportArgs) -> Result<u8> {
    let format = format(&args.format);
    if !format.has_columns && (!args.columns.is_empty() || args.unit.is_some()) {
        return Err(Error::usage(format!("--format {} has no columns to choose and no unit", format.name)));
    }
    if args.dark && format.name != "png" {
        return Err(Error::usage("--dark is for --format png; svg and html follow their reader's mode"));
    }
    let mut loaded = shown::rows(&args.runs, &format.keep, args.baseline.as_deref(), &args.filter)?;
    let kept: Vec<Vec<Row>> = loaded.iter_mut().map(|l| std::mem::take(&mut l.records)).collect();
    let mut runs: Vec<RunData> = Vec::new();
    for (l, rows) in loaded.iter().zip(kept) {
        runs.push(RunData { name: &l.name, run: &l.run, rows });
    }
    let options = options(&args, &mut runs)?;
    match (&format.render, &args.out) {
        (Render::Text(render), None) if ["table", "families"].contains(&format.name) => {
            print_text(&render(&runs, &options))?
        }
        (Render::Text(render), None) => print(&render(&runs, &options))?,
        (Render::Text(render), Some(path)) => write(path, render(&runs, &options).as_bytes())?,
        (Render::Files(_), None) => {
            return Err(Error::usage(format!("--format {} makes several files; say where: --out DIR", format.name)));
        }
        (Render::Files(render), Some(dir)) => write_all(dir, &render(&runs, &options))?,
    }
    Ok(0)
}

/// A new file; what is there is never overwritten.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    new.and_then(|mut f| f.write_all(bytes)).map_err(|e| Error::usage(format!("--out {}: {e}", path.display())))
}

fn write_all(dir: &Path, files: &[File]) -> Result<()> {
    let cannot = |e: std::io::Error| Error::usage(format!("--out {}: {e}", dir.display()));
    if files.is_empty() {
        return Err(Error::usage("the runs have no rows to draw; `kmark report` shows what they have"));
    }
    std::fs::create_dir_all(dir).map_err(cannot)?;
    if std::fs::read_dir(dir).map_err(cannot)?.next().is_some() {
        return Err(Error::usage(format!("--out {} exists and is not empty", dir.display())));
    }
    for (name, bytes) in files {
        write(&dir.join(name), bytes)?;
    }
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    print(&(names.join("\n") + "\n"))
}

/// Sorts the rows as asked, and says how they are shown.
fn options(args: &ReportArgs, runs: &mut [RunData]) -> Result<Options> {
    let known = columns::all(runs);
    let column = |word: &String| -> Result<Column> {
        let found = known.iter().find(|c| c.name() == word).cloned();
        found.ok_or_else(|| Error::usage(unknown("column", word, known.iter().map(|c| c.name()))))
    };
    if let Some(word) = &args.sort {
        let (name, down) = word.strip_prefix('-').map_or((word.as_str(), false), |name| (name, true));
        let by = column(&name.to_string())?;
        for run in runs.iter_mut() {
            columns::sort(&mut run.rows, &by, down);
        }
    }
    let chosen = args.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
    let to_file = args.out.is_some();
    Ok(Options {
        color: !to_file && super::color(),
        width: if to_file { None } else { super::terminal_width() },
        columns: (!chosen.is_empty()).then_some(chosen),
        unit: args.unit.as_ref().and_then(|name| UNITS.iter().find(|u| u.name == name)).copied(),
        dark: args.dark,
    })
}
