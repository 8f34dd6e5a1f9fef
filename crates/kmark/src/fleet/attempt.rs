//! One attempt of a task at its shard: where and when it ran, how it ended if it got to say so, and the run in it.

use super::{read, write};
use crate::error::{Error, Result};
use crate::store;
use kmark_core::record::{Record, Status};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const TOLD: &str = "attempt.json";

/// What an attempt says of itself. Without an end it is under way, or was cut off.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Told {
    /// The job's number in the queue, and how often it was requeued.
    pub job: Option<String>,
    pub restarts: Option<String>,
    pub node: Option<String>,
    pub started: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit: Option<u8>,
    /// Why it could not begin, or go on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// What is kept of a record.
pub struct Row {
    pub case: String,
    pub impl_name: String,
    pub status: Status,
    pub message: String,
}

pub struct Attempt {
    pub dir: PathBuf,
    pub told: Told,
    pub rows: Vec<Row>,
}

impl Attempt {
    pub fn begin(dir: PathBuf, told: Told) -> Result<Attempt> {
        let cannot = |e: std::io::Error| Error::own(format!("{}: {e}", dir.display()));
        std::fs::create_dir(&dir).map_err(cannot)?;
        write(&dir.join(TOLD), &told)?;
        Ok(Attempt { dir, told, rows: Vec::new() })
    }

    /// An attempt that was cut off before it wrote anything has said nothing.
    pub fn open(dir: PathBuf) -> Result<Attempt> {
        let told = if dir.join(TOLD).exists() { read(&dir.join(TOLD))? } else { Told::default() };
        let row = |r: Record| Row { case: r.case, impl_name: r.impl_name, status: r.status, message: r.message };
        let rows = if has_run(&dir) { store::load_whole(&run_of(&dir), row)?.records } else { Vec::new() };
        Ok(Attempt { dir, told, rows })
    }

    pub fn end(&mut self, exit: u8, error: Option<String>, now: String) -> Result<()> {
        (self.told.ended, self.told.exit, self.told.error) = (Some(now), Some(exit), error);
        write(&self.dir.join(TOLD), &self.told)
    }

    /// The folder of its run.
    pub fn run(&self) -> PathBuf {
        run_of(&self.dir)
    }
}

fn run_of(dir: &Path) -> PathBuf {
    dir.join("run")
}

/// A run is one once its run.json is in place.
fn has_run(dir: &Path) -> bool {
    run_of(dir).join(store::RUN).exists()
}
