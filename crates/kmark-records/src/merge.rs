//! Runs into one folder: of other machines, GPUs, libraries. Each stays a run of its own, with its environment and its
//! roofs, under a name that follows from what it was; so the order of merging does not matter, nor how often a run comes.
//! Nothing is averaged, chosen among or left out.

use crate::error::{Error, Result};
use crate::store::{Loaded, MERGED, Store, folders, load};
use indexmap::IndexMap;
use kmark_core::record::{Record, SCHEMA};
use kmark_core::run::Run;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Runs by name.
pub type Merged = BTreeMap<String, Loaded>;

pub fn merge(paths: &[PathBuf]) -> Result<Merged> {
    let mut merged = Merged::new();
    for path in paths {
        for folder in folders(path)? {
            let new = load(&folder)?;
            let name = name(&new.run);
            let both = match merged.remove(&name) {
                None => new,
                Some(old) => union(old, new)?,
            };
            merged.insert(name, both);
        }
    }
    Ok(merged)
}

pub fn write(merged: &Merged, out: &Path) -> Result<()> {
    fresh(out)?;
    for (name, run) in merged {
        let (mut store, _) = Store::open(&out.join(name), &run.run, false)?;
        store.append(&run.records)?;
    }
    seal(out)
}

/// A folder to merge into holds nothing yet.
pub fn fresh(out: &Path) -> Result<()> {
    if std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::usage(format!("--out {} exists and is not empty", out.display())));
    }
    std::fs::create_dir_all(out).map_err(|e| Error::usage(format!("--out {}: {e}", out.display())))
}

/// Comes last: what was cut off before is no merged folder.
pub fn seal(out: &Path) -> Result<()> {
    std::fs::write(out.join(MERGED), format!("{{\"schema\": {SCHEMA}}}\n"))
        .map_err(|e| Error::usage(format!("--out {}: {e}", out.display())))
}

/// What a run is called: its GPU, its start, and a hash of everything that was the same from its beginning to its end;
/// driver, GPU and settings are among it.
pub fn name(run: &Run) -> String {
    let what = (&run.kmark, &run.started, &run.command, &run.selection, &run.settings, &run.device, &run.environment);
    let hash = blake3::hash(serde_json::to_string(&what).expect("plain data").as_bytes()).to_hex();
    let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
    let start: String = plain(&run.started).chars().take(19).collect();
    let gpu: String = plain(&run.device.name).chars().take(60).collect();
    format!("{gpu}_{start}_{}", &hash[..8])
}

/// Two copies of one run, of which one may have more records: a run that went on after it was copied.
fn union(a: Loaded, b: Loaded) -> Result<Loaded> {
    // The longer one first, so that records stay in the order of measuring whichever came first.
    let later =
        |l: &Loaded| (l.records.len(), l.run.finished.clone(), serde_json::to_string(&l.run).unwrap_or_default());
    let (first, second) = if later(&a) >= later(&b) { (a, b) } else { (b, a) };
    let records: IndexMap<_, Record> = first.records.into_iter().map(|r| (r.key(), r)).collect();
    let mut more: Vec<Record> = Vec::new();
    for r in second.records {
        match records.get(&r.key()) {
            None => more.push(r),
            Some(same) if *same == r => {}
            Some(_) => {
                let (case, name, _) = r.key();
                return Err(Error::usage(format!(
                    "{} and {} are copies of one run, but differ in {case} {name}: one of them was changed",
                    first.name, second.name
                )));
            }
        }
    }
    more.sort_by_key(|r| (r.case.clone(), r.impl_name.clone()));
    let records = records.into_values().chain(more).collect();
    Ok(Loaded { name: first.name, run: first.run, records })
}

/// Impls whose code is not the same in all runs that have them on one case: a reader should not take them for one thing.
pub fn other_code(merged: &Merged) -> BTreeSet<&str> {
    let mut hashes = HashMap::new();
    let mut differs = BTreeSet::new();
    for r in merged.values().flat_map(|run| &run.records) {
        if *hashes.entry(r.key()).or_insert(&r.impl_hash) != &r.impl_hash {
            differs.insert(r.impl_name.as_str());
        }
    }
    differs
}
