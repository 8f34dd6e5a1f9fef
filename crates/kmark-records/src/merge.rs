//! Runs into one folder: of other machines, GPUs, libraries. Each stays a run of its own, with its environment and its
//! roofs, under a name that follows from what it was; so the order of merging does not matter, nor how often a run comes.
//! Nothing is averaged, chosen among or left out. Lines are copied as they are, and no samples stay in memory.

use crate::error::{Error, Result};
use crate::store::{Loaded, MERGED, RECORDS, RUN, copy_records, folder, folders, load_as, read_run};
use indexmap::IndexMap;
use indexmap::map::Entry;
use kmark_core::record::{Mode, Record, SCHEMA};
use kmark_core::run::Run;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Runs by name.
pub type Merged = BTreeMap<String, One>;

/// A run: its copies, of which the first has most records.
pub struct One {
    copies: Vec<Copy>,
}

/// A folder with the run, or with the part of it that was there when it was copied.
struct Copy {
    folder: PathBuf,
    run: Run,
    records: Vec<Kept>,
}

/// What is kept of a record.
struct Kept {
    key: (String, String, Mode),
    impl_hash: String,
    /// Everything in it, where there are copies to hold it against.
    content: Option<blake3::Hash>,
    /// Whether a copy before this one has it.
    again: bool,
}

impl One {
    pub fn run(&self) -> &Run {
        &self.copies[0].run
    }

    /// How many records it has.
    pub fn count(&self) -> usize {
        self.records().count()
    }

    fn records(&self) -> impl Iterator<Item = &Kept> {
        self.copies.iter().flat_map(|c| &c.records).filter(|r| !r.again)
    }
}

pub fn merge(paths: &[PathBuf]) -> Result<Merged> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in paths {
        for one in folders(folder(path))? {
            found.entry(name(&read_run(&one)?)).or_default().push(one);
        }
    }
    found.into_iter().map(|(name, folders)| Ok((name, union(folders)?))).collect()
}

/// Copies of one run, of which some may have more records than others: a run that went on after it was copied.
fn union(mut folders: Vec<PathBuf>) -> Result<One> {
    folders.sort();
    folders.dedup();
    let several = folders.len() > 1;
    let keep = |r: Record| {
        let text = several.then(|| serde_json::to_string(&r).expect("plain data"));
        let content = text.map(|t| blake3::hash(t.as_bytes()));
        Kept { key: r.key(), impl_hash: r.impl_hash, content, again: false }
    };
    let mut copies = Vec::new();
    for folder in folders {
        let loaded = load_as(&folder, |_, r| keep(r), |_| {})?;
        copies.push(Copy { folder, run: loaded.run, records: loaded.records });
    }
    if several {
        // The longest first, so that records stay in the order of measuring whichever came first.
        copies.sort_by_cached_key(|c| {
            let keys: Vec<_> = c.records.iter().map(|r| (r.key.0.clone(), r.key.1.clone())).collect();
            let told = std::fs::read_to_string(c.folder.join(RUN)).unwrap_or_default();
            std::cmp::Reverse((keys.len(), c.run.finished.clone(), told, keys))
        });
        let mut known = HashMap::new();
        for at in 0..copies.len() {
            for number in 0..copies[at].records.len() {
                let Kept { key, content, .. } = &copies[at].records[number];
                let (first, same) = *known.entry(key.clone()).or_insert((at, *content));
                if same != *content {
                    let (one, other) = (copies[first].folder.display(), copies[at].folder.display());
                    let (case, name, _) = key;
                    return Err(Error::usage(format!(
                        "{one} and {other} are copies of one run, but differ in {case} {name}: one of them was changed"
                    )));
                }
                copies[at].records[number].again = first < at;
            }
        }
    }
    Ok(One { copies })
}

pub fn write(merged: &Merged, out: &Path) -> Result<()> {
    fresh(out)?;
    for (name, one) in merged {
        let parts =
            one.copies.iter().map(|c| (c.folder.as_path(), |at: usize| c.records.get(at).is_some_and(|r| !r.again)));
        write_run(&out.join(name), parts)?;
    }
    seal(out)
}

/// A run as it is, with the records that are wanted of each folder.
pub fn write_run<'a, W: Fn(usize) -> bool>(to: &Path, parts: impl Iterator<Item = (&'a Path, W)>) -> Result<()> {
    let cannot = |e: std::io::Error| Error::own(format!("{}: {e}", to.display()));
    std::fs::create_dir(to).map_err(cannot)?;
    let mut lines = BufWriter::with_capacity(1 << 20, File::create_new(to.join(RECORDS)).map_err(cannot)?);
    for (at, (from, wanted)) in parts.enumerate() {
        if at == 0 {
            std::fs::copy(from.join(RUN), to.join(RUN)).map_err(cannot)?;
        }
        copy_records(from, &mut lines, wanted)?;
    }
    lines.flush().map_err(cannot)
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

/// Each run once, where it first came: of copies the one with most records.
pub fn each_once<T>(runs: Vec<Loaded<T>>) -> Vec<Loaded<T>> {
    let mut once: IndexMap<String, Loaded<T>> = IndexMap::new();
    for run in runs {
        match once.entry(name(&run.run)) {
            Entry::Occupied(mut known) if known.get().records.len() < run.records.len() => drop(known.insert(run)),
            Entry::Occupied(_) => {}
            Entry::Vacant(new) => drop(new.insert(run)),
        }
    }
    once.into_values().collect()
}

/// Impls whose code is not the same in all runs that have them on one case: a reader should not take them for one thing.
pub fn other_code(merged: &Merged) -> BTreeSet<&str> {
    let mut hashes = HashMap::new();
    let mut differs = BTreeSet::new();
    for r in merged.values().flat_map(One::records) {
        if *hashes.entry(&r.key).or_insert(&r.impl_hash) != &r.impl_hash {
            differs.insert(r.key.1.as_str());
        }
    }
    differs
}
