//! The runs that a report shows: their records become rows as they are read, are compared, and then filtered. The way from
//! `store` to `report`, which do not know each other.

use crate::error::{Error, Result};
use crate::report::against::judge;
use crate::report::keep::Kept;
use crate::report::{
    chosen,
    rows::{Keep, Row},
};
use crate::store::{Loaded, folders, load_as};
use indexmap::IndexSet;
use kmark_core::record::Record;
use kmark_core::run::Run;
use kmark_core::spelling::unknown;
use std::path::PathBuf;

/// In place of a baseline's name: in every case the fastest impl that is not ours, whatever the run's own baseline.
const FASTEST: &str = "fastest";

/// The rows of all runs at `paths`. A baseline counts even where `filter` does not show it.
pub fn rows(paths: &[PathBuf], keep: &Keep, baseline: Option<&str>, filter: &[String]) -> Result<Vec<Loaded<Row>>> {
    let (mut runs, mut kept) = (Vec::new(), Kept::default());
    for path in paths {
        for folder in folders(path)? {
            let name = folder.display().to_string();
            let new = |run: &Run, r: Record| Row::new(&name, run, &r, keep);
            runs.push(load_as(&folder, new, |row| kept.settle(row, keep, chosen(row, filter)))?);
        }
    }
    if let Some(name) = baseline.filter(|name| *name != FASTEST) {
        let mut known: IndexSet<&str> = runs.iter().flat_map(|l| &l.records).map(|r| r.impl_name.as_str()).collect();
        known.insert(FASTEST);
        if !known.contains(name) {
            return Err(Error::usage(unknown("baseline", name, known)));
        }
    }
    for l in &mut runs {
        let baseline = baseline.or(l.run.settings.baseline.as_deref());
        judge(&mut l.records, baseline.filter(|name| *name != FASTEST));
    }
    if !filter.is_empty() {
        for l in &mut runs {
            l.records.retain(|r| chosen(r, filter));
        }
        if runs.iter().all(|l| l.records.is_empty()) {
            return Err(Error::usage(format!("no row is like --filter {}", filter.join(" --filter "))));
        }
    }
    Ok(runs)
}
