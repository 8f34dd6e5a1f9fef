//! Python does what only Python can: find out what an interpreter has, run pip, read wheels. A script gets its job as
//! JSON and answers in JSON; what it says on the way goes to standard error.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const COMMON: &str = include_str!("common.py");
const HOUSE: &str = include_str!("house.py");

/// The texts that make a script, after the one that all share.
pub type Script = &'static [&'static str];
pub const PROBE: Script = &[include_str!("probe.py")];
pub const CHECK: Script = &[include_str!("check.py")];
pub const INSTALL: Script = &[HOUSE, include_str!("install.py")];
pub const BUNDLE: Script = &[HOUSE, include_str!("bundle.py")];

/// What an interpreter is.
#[derive(Debug, Deserialize)]
pub struct Facts {
    pub python: String,
    pub executable: String,
    pub platform: String,
    pub torch: Option<Torch>,
}

#[derive(Debug, Deserialize)]
pub struct Torch {
    pub version: String,
    pub cuda: Option<String>,
}

impl Facts {
    /// `3.12` of `3.12.1`.
    pub fn minor(&self) -> &str {
        let end = self.python.match_indices('.').nth(1).map_or(self.python.len(), |(at, _)| at);
        &self.python[..end]
    }
}

pub fn probe(python: &Path) -> Result<Facts> {
    let answer = call(python, PROBE, &Value::Null)?;
    serde_json::from_value(answer).map_err(|_| no_python(python, "it does not answer as one"))
}

/// Runs a script to its end.
pub fn call(python: &Path, script: Script, job: &impl Serialize) -> Result<Value> {
    let text = std::iter::once(COMMON).chain(script.iter().copied()).collect::<Vec<_>>().join("\n\n");
    let mut command = Command::new(python);
    // A file json.py in the folder that one happens to be in is not the json module.
    command.arg("-c").arg(text).env("PYTHONSAFEPATH", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    if script == PROBE {
        command.stderr(Stdio::null());
    }
    let mut child = command.spawn().map_err(|e| no_python(python, &e.to_string()))?;
    let job = serde_json::to_vec(job).expect("plain data");
    // An interpreter that ends at once says why by its exit code.
    let _ = child.stdin.take().expect("it was asked for").write_all(&job);
    let done = child.wait_with_output().map_err(|e| no_python(python, &e.to_string()))?;
    let answer: Value = serde_json::from_slice(&done.stdout).map_err(|_| match done.status.code() {
        Some(code) if code < 128 => no_python(python, "it does not run Python 3"),
        _ => Error::own(format!("{} was stopped ({})", python.display(), done.status)),
    })?;
    match answer.get("error").and_then(Value::as_str) {
        Some(line) if answer["usage"] == true => Err(Error::usage(line)),
        Some(line) => Err(Error::own(line)),
        None => Ok(answer),
    }
}

fn no_python(python: &Path, why: &str) -> Error {
    let way = "--python PATH or KMARK_PYTHON names another";
    Error::usage(format!("{} is no interpreter to work with: {why}; {way}", python.display()))
}
