//! `kmark compare`: two sides of runs in, verdicts and an exit code out.

use super::{print, print_text};
use crate::cli::CompareArgs;
use crate::compare::compared;
use crate::error::{Error, Result, SLOWER, UNDECIDED, exit_code};
use crate::report::{Options, compared as report};
use crate::store::{Loaded, folders, load};
use std::path::{Path, PathBuf};

pub fn run(args: CompareArgs) -> Result<u8> {
    let side = |first: &Path, more: &[PathBuf]| -> Result<Vec<Loaded>> {
        let mut runs = Vec::new();
        for path in std::iter::once(first).chain(more.iter().map(PathBuf::as_path)) {
            runs.extend(folders(path)?);
        }
        runs.iter().map(|path| load(path)).collect()
    };
    let (base, new) = (side(&args.base, &args.more_base)?, side(&args.new, &args.more_new)?);
    let compared = compared(&base, &new, args.threshold.unwrap_or(0.0), &args.filter);
    if compared.rows.is_empty() {
        let why = if args.filter.is_empty() { "" } else { " that --filter leaves" };
        return Err(Error::usage(format!("the runs have no row with times{why}; `kmark report` shows what they have")));
    }
    if !args.quiet {
        let options = Options { color: super::color(), width: super::terminal_width(), ..Options::default() };
        let text = report::render(&args.format, &compared, &options);
        if args.format == "table" { print_text(&text) } else { print(&text) }?;
    }
    let broken = exit_code(compared.rows.iter().filter_map(|r| r.status), false);
    Ok(match () {
        _ if broken != 0 => broken,
        _ if compared.rows.iter().any(|r| r.regression) => SLOWER,
        _ if args.strict && compared.rows.iter().any(|r| r.undecided) => UNDECIDED,
        _ => 0,
    })
}
