//! A run that was handed to a cluster, on disk: what was asked (`submit.json`), which cases each task has (`plan.json`),
//! the script that nodes run (`job.sh`), and in `shards` what the tasks recorded, attempt by attempt. Knows no scheduler.
//!
//! A task may be killed, requeued, even run twice at once: a lock keeps attempts at a shard apart, each writes a run of
//! its own, and an attempt leaves out the cases that earlier ones have whole.

mod attempt;
mod survey;

pub use attempt::{Attempt, Row, Told};
pub use survey::{Standing, Survey};

use crate::error::{Error, Result};
use crate::plan::Plan;
use indexmap::IndexMap;
use kmark_core::record::SCHEMA;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

const SUBMIT: &str = "submit.json";
const PLAN: &str = "plan.json";
pub const SCRIPT: &str = "job.sh";
pub const LOGS: &str = "log";
const SHARDS: &str = "shards";
/// What has been collected.
pub const COLLECTED: &str = "collected";

/// What was asked of the cluster.
#[derive(Serialize, Deserialize)]
pub struct Submitted {
    pub schema: u32,
    /// Version of kmark, which nodes must have.
    pub kmark: String,
    /// Tells this folder from another of its name: nodes must see this one.
    pub token: String,
    pub command: Vec<String>,
    /// The folder that it was typed in.
    pub folder: PathBuf,
    pub tasks: usize,
    /// Options of sbatch, but for those that name tasks and files.
    pub options: Vec<String>,
    pub jobs: Vec<Job>,
}

/// An array that was queued.
#[derive(Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    pub tasks: Vec<usize>,
}

/// A case of a task, and the impls that it needs records of, with their hashes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    pub case: String,
    pub impls: IndexMap<String, String>,
}

impl Wanted {
    pub fn of(plan: &Plan) -> Vec<Wanted> {
        // Hashing takes longer than all the rest; an impl of an op has one, whatever the case.
        let mut hashes: HashMap<(&str, &str), String> = HashMap::new();
        let mut wanted = Vec::new();
        for p in &plan.items {
            let mut impls = IndexMap::new();
            for i in &p.impls {
                let hash = hashes.entry((p.entry.op.name, i.name())).or_insert_with(|| i.hash());
                impls.insert(i.name().to_string(), hash.clone());
            }
            wanted.push(Wanted { case: p.case.id.clone(), impls });
        }
        wanted
    }
}

pub struct Fleet {
    pub dir: PathBuf,
    pub submitted: Submitted,
    /// The cases of each task; of all tasks, where each runs the whole.
    parts: Vec<Vec<Wanted>>,
}

impl Fleet {
    /// A new folder, which must be empty.
    pub fn create(dir: &Path, submitted: Submitted, parts: Vec<Vec<Wanted>>) -> Result<Fleet> {
        let cannot = |e: std::io::Error| Error::usage(format!("--out {}: {e}", dir.display()));
        if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
            let hint = if dir.join(SUBMIT).exists() { "; `kmark submit --resume` goes on with it" } else { "" };
            return Err(Error::usage(format!("--out {} exists and is not empty{hint}", dir.display())));
        }
        std::fs::create_dir_all(dir.join(LOGS)).map_err(cannot)?;
        std::fs::create_dir(dir.join(SHARDS)).map_err(cannot)?;
        let fleet = Fleet { dir: dir.to_path_buf(), submitted, parts };
        write(&dir.join(PLAN), &fleet.parts)?;
        fleet.save()?;
        Ok(fleet)
    }

    pub fn open(dir: &Path) -> Result<Fleet> {
        if !dir.join(SUBMIT).exists() {
            return Err(Error::usage(format!("{} is not the folder of a submitted run", dir.display())));
        }
        let submitted: Submitted = read(&dir.join(SUBMIT))?;
        if submitted.schema != SCHEMA {
            let (has, knows) = (submitted.schema, SCHEMA);
            return Err(Error::usage(format!("{}: schema {has} is not {knows}", dir.join(SUBMIT).display())));
        }
        let parts: Vec<Vec<Wanted>> = read(&dir.join(PLAN))?;
        if parts.len() != 1 && parts.len() != submitted.tasks {
            return Err(Error::usage(format!("{} has other tasks than {SUBMIT}", dir.join(PLAN).display())));
        }
        Ok(Fleet { dir: dir.to_path_buf(), submitted, parts })
    }

    pub fn save(&self) -> Result<()> {
        write(&self.dir.join(SUBMIT), &self.submitted)
    }

    /// Takes back a folder that nobody was told of.
    pub fn discard(&self) {
        for name in [SUBMIT, PLAN, SCRIPT] {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        for name in [LOGS, SHARDS] {
            let _ = std::fs::remove_dir(self.dir.join(name));
        }
        let _ = std::fs::remove_dir(&self.dir);
    }

    /// The numbers of its tasks.
    pub fn tasks(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.submitted.tasks
    }

    /// Whether every task runs all cases.
    pub fn is_whole(&self) -> bool {
        self.parts.len() < self.submitted.tasks
    }

    /// What a task has to do.
    pub fn wanted(&self, task: usize) -> &[Wanted] {
        if self.parts.len() == 1 { &self.parts[0] } else { &self.parts[task - 1] }
    }

    fn shard(&self, task: usize) -> PathBuf {
        self.dir.join(SHARDS).join(task.to_string())
    }

    /// Waits until no other attempt at the shard is under way; while the file is held, none begins.
    pub fn lock(&self, task: usize) -> Result<File> {
        let dir = self.shard(task);
        let cannot = |e: std::io::Error| Error::own(format!("{}: {e}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(cannot)?;
        let file = File::create(dir.join("lock")).map_err(cannot)?;
        file.lock().map_err(cannot)?;
        Ok(file)
    }

    /// The attempts at a shard, in their order.
    pub fn attempts(&self, task: usize) -> Result<Vec<Attempt>> {
        let Ok(entries) = std::fs::read_dir(self.shard(task)) else { return Ok(Vec::new()) };
        let number = |e: std::fs::DirEntry| e.file_name().to_str().and_then(|n| n.parse::<usize>().ok());
        let mut numbers: Vec<usize> = entries.flatten().filter_map(number).collect();
        numbers.sort();
        numbers.into_iter().map(|n| Attempt::open(self.shard(task).join(n.to_string()))).collect()
    }

    /// Begins another attempt.
    pub fn attempt(&self, task: usize, told: Told) -> Result<Attempt> {
        let earlier = self.attempts(task)?;
        let number = earlier.iter().filter_map(|a| a.dir.file_name()?.to_str()?.parse::<usize>().ok()).max();
        Attempt::begin(self.shard(task).join((number.unwrap_or(0) + 1).to_string()), told)
    }

    /// The cases that an attempt has whole, each with the first attempt that has it. Impls of a case are in one attempt:
    /// a ratio between two is none.
    pub fn done(&self, task: usize, attempts: &[Attempt]) -> IndexMap<&str, usize> {
        let mut done = IndexMap::new();
        for (at, attempt) in attempts.iter().enumerate() {
            let recorded: HashSet<(&str, &str)> =
                attempt.rows.iter().map(|r| (r.case.as_str(), r.impl_name.as_str())).collect();
            for w in self.wanted(task) {
                if w.impls.keys().all(|i| recorded.contains(&(w.case.as_str(), i.as_str()))) {
                    done.entry(w.case.as_str()).or_insert(at);
                }
            }
        }
        done
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bad = |what: String| Error::usage(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| bad(e.to_string()))
}

/// Replaces a file as a whole.
fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).expect("plain data") + "\n";
    let new = path.with_extension("json.new");
    std::fs::write(&new, text)
        .and_then(|()| std::fs::rename(&new, path))
        .map_err(|e| Error::own(format!("cannot write {}: {e}", path.display())))
}
