//! A run on disk: `run.json` and `records.jsonl`. Records are appended whole and in one write; what is there is never
//! overwritten. A run that was cut off loses at most the case it was at.

use crate::error::{Error, Result};
use kmark_core::record::Record;
use kmark_core::run::Run;
use rayon::prelude::*;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub const RUN: &str = "run.json";
pub const RECORDS: &str = "records.jsonl";
/// What tells a folder of merged runs from any other.
pub const MERGED: &str = "merged.json";
/// What run.json is called while it is being written.
const NEW_RUN: &str = ".run.json.new";
/// A record has at most some 20,000 samples; a longer line is not one.
const MAX_LINE: u64 = 16 << 20;

/// So many bytes of lines are read at once and taken apart by all cores.
const BATCH: usize = 2 << 20;

/// A run as read back; its records, or what was kept of each.
pub struct Loaded<T = Record> {
    pub name: String,
    pub run: Run,
    pub records: Vec<T>,
}

/// A run being written.
pub struct Store {
    dir: PathBuf,
    records: File,
    /// Length of the whole lines in the file.
    good: u64,
}

impl Store {
    /// A new run in `dir`, which must not hold anything yet; or, with `resume`, the run that is there. A run that was
    /// cut off before it wrote anything is simply begun.
    pub fn open(dir: &Path, run: &Run, resume: bool) -> Result<(Store, Option<Loaded>)> {
        if resume && dir.join(RUN).exists() {
            let (store, loaded) = Store::resume(dir)?;
            return Ok((store, Some(loaded)));
        }
        let cannot = |e: std::io::Error| Error::usage(format!("--out {}: {e}", dir.display()));
        match std::fs::read_dir(dir) {
            Ok(entries) => {
                let in_the_way = entries.flatten().any(|e| !(resume && is_leftover(&e)));
                if in_the_way && resume {
                    return Err(Error::usage(format!("--resume: {} holds no run to go on with", dir.display())));
                } else if in_the_way {
                    let hint = if dir.join(RUN).exists() { "; add --resume to go on with that run" } else { "" };
                    return Err(Error::usage(format!("--out {} exists and is not empty{hint}", dir.display())));
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => std::fs::create_dir_all(dir).map_err(cannot)?,
            Err(e) => return Err(cannot(e)),
        }
        let records =
            OpenOptions::new().create(true).append(true).read(true).open(dir.join(RECORDS)).map_err(cannot)?;
        lock(&records, dir)?;
        let store = Store { dir: dir.to_path_buf(), records, good: 0 };
        store.write_run(run)?;
        Ok((store, None))
    }

    /// Goes on with the run in `dir`. A last line that was cut off in the middle is dropped; anything else that is
    /// broken is an error and stays as it is.
    fn resume(dir: &Path) -> Result<(Store, Loaded)> {
        let path = dir.join(RECORDS);
        let records =
            OpenOptions::new().append(true).read(true).open(&path).map_err(|e| {
                Error::usage(format!("--resume: {}: {e}; there is no run to go on with", path.display()))
            })?;
        lock(&records, dir)?;
        let run = read_run(dir)?;
        let (list, good) = read_records(&path, true, |r| r, |_| {})?;
        let length = records.metadata().map_err(|e| Error::own(format!("{}: {e}", path.display())))?.len();
        if good < length {
            records.set_len(good).map_err(|e| Error::own(format!("{}: {e}", path.display())))?;
        }
        let loaded = Loaded { name: dir.display().to_string(), run, records: list };
        Ok((Store { dir: dir.to_path_buf(), records, good }, loaded))
    }

    /// Appends records in one write. If the disk is full, what was there stays whole.
    pub fn append(&mut self, records: &[Record]) -> Result<()> {
        let mut text = String::new();
        for r in records {
            r.validate().map_err(|e| Error::own(format!("{} {}: {e}", r.case, r.impl_name)))?;
            text.push_str(&serde_json::to_string(r).expect("records are plain data"));
            text.push('\n');
        }
        match self.records.write_all(text.as_bytes()).and_then(|()| self.records.flush()) {
            Ok(()) => {
                self.good += text.len() as u64;
                Ok(())
            }
            Err(e) => {
                // Take back the part of a line that did get written.
                let _ = self.records.set_len(self.good);
                let _ = self.records.seek(SeekFrom::End(0));
                Err(Error::own(format!(
                    "cannot write {}: {e}; the records so far are safe, go on later with --out {} --resume",
                    self.dir.join(RECORDS).display(),
                    self.dir.display()
                )))
            }
        }
    }

    /// Replaces run.json as a whole: a reader sees the old one or the new one.
    pub fn write_run(&self, run: &Run) -> Result<()> {
        let (path, temporary) = (self.dir.join(RUN), self.dir.join(NEW_RUN));
        let text = serde_json::to_string_pretty(run).expect("a run is plain data") + "\n";
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|e| Error::own(format!("cannot write {}: {e}", path.display())))
    }
}

/// What a run leaves that was killed before its run.json was in place.
fn is_leftover(entry: &std::fs::DirEntry) -> bool {
    let empty = entry.metadata().is_ok_and(|m| m.len() == 0);
    entry.file_name() == NEW_RUN || (entry.file_name() == RECORDS && empty)
}

/// Two processes must not write into one run.
fn lock(file: &File, dir: &Path) -> Result<()> {
    file.try_lock().map_err(|_| Error::usage(format!("{}: another kmark is writing this run", dir.display())))
}

/// The folder of a run that is named by itself, or by its records.jsonl or run.json.
pub fn folder(path: &Path) -> &Path {
    match path.file_name().and_then(|n| n.to_str()) {
        Some(RUN | RECORDS) => path.parent().unwrap_or(Path::new(".")),
        _ => path,
    }
}

/// Reads a run.
pub fn load(path: &Path) -> Result<Loaded> {
    load_as(path, |_, r| r, |_| {})
}

/// The same for runs that need not fit into memory: of each record stays what `keep` makes of it, on whichever core, and
/// `settle` leaves of that, one after the other.
pub fn load_as<T: Send>(
    path: &Path,
    keep: impl Fn(&Run, Record) -> T + Sync,
    settle: impl FnMut(&mut T),
) -> Result<Loaded<T>> {
    let dir = folder(path);
    if !dir.is_dir() {
        let why = if dir.exists() { "is not the folder of a run" } else { "does not exist" };
        return Err(Error::usage(format!("{} {why}", dir.display())));
    }
    let run = read_run(dir)?;
    let (records, _) = read_records(&dir.join(RECORDS), false, |r| keep(&run, r), settle)?;
    Ok(Loaded { name: dir.display().to_string(), run, records })
}

/// A run that may be going on, or was cut off: what `keep` makes of its whole lines.
pub fn load_whole<T: Send>(dir: &Path, keep: impl Fn(Record) -> T + Sync) -> Result<Loaded<T>> {
    let run = read_run(dir)?;
    let (records, _) = read_records(&dir.join(RECORDS), true, keep, |_| {})?;
    Ok(Loaded { name: dir.display().to_string(), run, records })
}

/// Copies the records whose numbers, from 0, are wanted: line by line, since numbers that are read and written again may
/// differ in their last digit.
pub fn copy_records(from: &Path, to: &mut impl Write, wanted: impl Fn(usize) -> bool) -> Result<()> {
    let path = from.join(RECORDS);
    let cannot = |e: std::io::Error| Error::own(format!("{}: {e}", path.display()));
    let mut file = BufReader::with_capacity(1 << 20, File::open(&path).map_err(cannot)?);
    let mut line = Vec::new();
    for number in 0.. {
        line.clear();
        if file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(cannot)? == 0 {
            break;
        }
        if wanted(number) {
            to.write_all(&line).map_err(|e| Error::own(format!("cannot copy {}: {e}", path.display())))?;
        }
    }
    Ok(())
}

/// The folders of the runs at `path`: itself, or those in it where `kmark merge` made it.
pub fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.join(MERGED).exists() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = std::fs::read_dir(path).map_err(|e| Error::usage(format!("{}: {e}", path.display())))?;
    let mut runs: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.join(RUN).exists()).collect();
    runs.sort();
    Ok(runs)
}

/// The folders of the runs at `path` or in it, whoever put them there.
pub fn folders_below(path: &Path) -> Result<Vec<PathBuf>> {
    if path.join(RUN).exists() || !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = std::fs::read_dir(path).map_err(|e| Error::usage(format!("{}: {e}", path.display())))?;
    let mut found = Vec::new();
    for entry in entries.flatten().map(|e| e.path()) {
        let is_run = entry.join(RUN).exists();
        found.extend(if is_run || entry.join(MERGED).exists() { folders(&entry)? } else { Vec::new() });
    }
    found.sort();
    Ok(found)
}

pub fn read_run(dir: &Path) -> Result<Run> {
    let path = dir.join(RUN);
    let bad = |what: String| Error::usage(format!("{}: {what}", path.display()));
    let file = File::open(&path).map_err(|e| bad(format!("{e}; is this the folder of a run?")))?;
    let mut text = String::new();
    file.take(MAX_LINE).read_to_string(&mut text).map_err(|e| bad(e.to_string()))?;
    check_schema(&text).map_err(bad)?;
    let run: Run = serde_json::from_str(&text).map_err(|e| bad(one_line(&e)))?;
    run.validate().map_err(bad)?;
    Ok(run)
}

/// What `keep` makes of each record, and the length of the whole lines. With `repair`, an incomplete last line is left
/// out instead of being an error.
fn read_records<T: Send>(
    path: &Path,
    repair: bool,
    keep: impl Fn(Record) -> T + Sync,
    mut settle: impl FnMut(&mut T),
) -> Result<(Vec<T>, u64)> {
    let bad = |number: usize, what: &str| Error::usage(format!("{}:{number}: {what}", path.display()));
    let cannot = |e: std::io::Error| Error::usage(format!("{}: {e}", path.display()));
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(cannot)?);
    let (mut kept, mut seen, mut good, mut number) = (Vec::new(), HashSet::new(), 0, 0);
    let mut lines = Lines::read(&mut file).map_err(cannot)?;
    loop {
        // The next lines are read while these are taken apart.
        let one = |line: &Vec<u8>| record(line).map(|r| (r.key(), keep(r)));
        let (records, next) =
            rayon::join(|| lines.whole.par_iter().map(one).collect::<Vec<_>>(), || Lines::read(&mut file));
        for record in records {
            number += 1;
            let (key, mut record) = record.map_err(|what| bad(number, &what))?;
            if let Some((case, impl_name, _)) = seen.replace(key) {
                return Err(bad(number, &format!("a second record of {case} {impl_name}")));
            }
            settle(&mut record);
            kept.push(record);
        }
        good += lines.whole.iter().map(|l| l.len() as u64).sum::<u64>();
        match lines.cut_off {
            Some(MAX_LINE) => return Err(bad(number + 1, "the line is too long for a record")),
            Some(_) if !repair => {
                return Err(bad(number + 1, "the last line is cut off; `kmark run --out DIR --resume` mends it"));
            }
            None if !lines.whole.is_empty() => lines = next.map_err(cannot)?,
            _ => return Ok((kept, good)),
        }
    }
}

/// Some lines of a file.
#[derive(Default)]
struct Lines {
    whole: Vec<Vec<u8>>,
    /// The length of a last one that has no end.
    cut_off: Option<u64>,
}

impl Lines {
    /// The next lines; none where the file ends.
    fn read(file: &mut impl BufRead) -> std::io::Result<Lines> {
        let (mut lines, mut length) = (Lines::default(), 0);
        while length < BATCH {
            let mut line = Vec::new();
            length += file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
            match line.last() {
                None => break,
                Some(b'\n') => lines.whole.push(line),
                Some(_) => {
                    lines.cut_off = Some(line.len() as u64);
                    break;
                }
            }
        }
        Ok(lines)
    }
}

fn record(line: &[u8]) -> std::result::Result<Record, String> {
    let record = Record::parse(line).map_err(|e| match std::str::from_utf8(line) {
        Err(_) => "not text".to_string(),
        // A line of another version need not be a record of this one.
        Ok(text) => check_schema(text).err().unwrap_or_else(|| one_line(&e)),
    })?;
    record.validate()?;
    Ok(record)
}

/// Says "another schema version" rather than which field of it is missing.
fn check_schema(text: &str) -> std::result::Result<(), String> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema: serde_json::Value,
    }
    let known = kmark_core::record::SCHEMA;
    match serde_json::from_str::<Version>(text) {
        Ok(v) if v.schema == known => Ok(()),
        Ok(v) => Err(format!("schema {} is not {known}, the version this kmark reads", v.schema)),
        Err(e) if e.is_data() => Err("not a kmark file: it has no schema version".into()),
        Err(e) => Err(one_line(&e)),
    }
}

fn one_line(e: &serde_json::Error) -> String {
    e.to_string().lines().next().unwrap_or("broken JSON").to_string()
}
