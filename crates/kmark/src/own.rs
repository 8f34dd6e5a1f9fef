//! Ops of users: files that Python reads for us, told to every process, and judged in a process of their own.

use crate::env;
use crate::error::{Error, Result};
use crate::python::{self, JUDGE, PythonImpl};
use crate::units;
use indexmap::IndexMap;
use kmark_core::case::Case;
use kmark_core::own::{self, OwnImpl, OwnOp};
use kmark_core::record::Status;
use kmark_core::spelling::unknown;
use kmark_device::{Fault, Impl};
use std::path::Path;
use std::sync::Mutex;

/// Whether a family's process runs a reference instead of impls.
pub fn is_judge(family: &str) -> bool {
    family.starts_with(JUDGE)
}

/// The process that runs the op's reference.
pub fn judge_of(own: &OwnOp) -> String {
    format!("{JUDGE}{}", own.file)
}

/// Path, and the op wanted of it.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.rsplit_once(':') {
        Some((path, op)) if !op.contains('/') && !op.is_empty() => (path, Some(op)),
        _ => (word, None),
    }
}

/// Whether a word on the command line is a file or folder that defines ops, by its name and what lies there.
pub fn is_file(word: &str) -> bool {
    let path = split(word).0;
    path.ends_with(".py") || Path::new(path).join("task.yml").is_file() || is_definition(path)
}

/// A JSON file with a reference is a problem; suites have none.
fn is_definition(path: &str) -> bool {
    let text = || std::fs::read(path).ok();
    let parse = |text: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&text).ok();
    path.ends_with(".json") && text().and_then(parse).is_some_and(|v| v.get("reference").is_some())
}

/// The ops of a file, learnt.
pub fn load(word: &str) -> Result<Vec<&'static OwnOp>> {
    let (path, wanted) = split(word);
    let mut loaded = LOADED.lock().expect("nobody panics while loading");
    if !loaded.iter().any(|(p, _)| p == path) {
        loaded.push((path.to_string(), python::describe(path)?));
    }
    let told: Vec<OwnOp> = loaded.iter().find(|(p, _)| p == path).map_or_else(Vec::new, |(_, ops)| ops.clone());
    drop(loaded);
    let known: Vec<&str> = told.iter().map(|o| o.name.as_str()).collect();
    if let Some(op) = wanted.filter(|w| !known.contains(w)) {
        return Err(Error::usage(format!("{path}: {}", unknown("op", op, known))));
    }
    let chosen = told.iter().filter(|o| wanted.is_none_or(|w| w == o.name));
    let mut learnt = Vec::new();
    for own in chosen {
        if kmark_ops::OPS.iter().any(|e| e.op.name == own.name) {
            return Err(Error::usage(format!("{path}: op {} is one of ours; give yours another name", own.name)));
        }
        own::learn(own).map_err(|why| Error::usage(format!("{path}: {why}")))?;
        learnt.push(own::find(&own.name).expect("just learnt").0);
    }
    Ok(learnt)
}

/// What Python said of a file: it is asked once.
static LOADED: Mutex<Vec<(String, Vec<OwnOp>)>> = Mutex::new(Vec::new());

/// The functions of an op's own file that compute it on a kind of device.
pub fn impls_of(op: &str, device: &str) -> Vec<&'static dyn Impl> {
    let Some((own, _)) = own::find(op) else { return Vec::new() };
    let here = own.impls.iter().filter(|i| i.devices.iter().any(|d| d == device));
    here.map(|i| as_impl(own, i)).collect()
}

/// Whether a function of an op's own file has that name.
pub fn has(impl_name: &str) -> bool {
    own::known().iter().any(|own| own.impls.iter().any(|i| name(own, i) == impl_name))
}

/// Its mutants: names by which its process knows them.
pub fn mutants_of(op: &str) -> Vec<String> {
    let Some((own, _)) = own::find(op) else { return Vec::new() };
    own.mutants.iter().map(|m| name(own, m)).collect()
}

fn name(own: &OwnOp, imp: &OwnImpl) -> String {
    format!("{}:{}", own.file, imp.name)
}

fn as_impl(own: &OwnOp, imp: &OwnImpl) -> &'static dyn Impl {
    static IMPLS: Mutex<Vec<&'static PythonImpl>> = Mutex::new(Vec::new());
    let mut all = IMPLS.lock().expect("nobody panics while looking");
    let wanted = name(own, imp);
    let known = all.iter().find(|i| i.name == wanted && i.op == own.name).copied();
    known.unwrap_or_else(|| {
        let (about, devices) = (imp.about.clone(), imp.devices.clone());
        let made = PythonImpl { op: own.name.clone(), name: wanted, about, hash: own.hash.clone(), devices };
        all.push(Box::leak(Box::new(made)));
        all[all.len() - 1]
    })
}

/// Bytes that a reference takes for each element of a case: about eight intermediates in fp64.
const REFERENCE_BYTES: u64 = 64;

/// Why the reference cannot judge a case here.
pub fn too_large(case: &Case) -> Option<Fault> {
    let (_, op) = own::find(&case.op)?;
    let elements: u64 = op.tensors(case).iter().map(|t| t.elems() as u64).sum();
    let (needs, available) = (REFERENCE_BYTES.saturating_mul(elements), env::available_memory());
    (needs > available).then(|| {
        let (needs, available) = (units::bytes(needs), units::bytes(available));
        let message = format!("its reference needs about {needs} in fp64; {available} are available");
        Fault::new(Status::OutOfMemory, message)
    })
}

/// Tries the reference of every op on its smallest case, so that what is wrong with it is said before anything is measured.
pub fn try_references<'a>(cases: impl Iterator<Item = &'a Case> + Clone) -> Result<()> {
    count_flops(cases.clone())?;
    let mut smallest: IndexMap<&str, (u64, &Case)> = IndexMap::new();
    for case in cases {
        let Some((own, op)) = own::find(&case.op) else { continue };
        let size = op.tensor_bytes(case);
        let least = smallest.entry(&own.name).or_insert((size, case));
        if size < least.0 {
            *least = (size, case);
        }
    }
    for (_, case) in smallest.values() {
        let own = own::find(&case.op).expect("it has cases").0;
        if let Some(fault) = too_large(case) {
            return Err(Error::usage(format!("{}: {}", case.id, fault.message)));
        }
        python::try_reference(&own.file, &[serde_json::to_string(case).expect("cases are plain data")])?;
    }
    Ok(())
}

/// Counts what ops do not state.
fn count_flops<'a>(cases: impl Iterator<Item = &'a Case>) -> Result<()> {
    let mut uncounted: IndexMap<&str, Vec<&Case>> = IndexMap::new();
    for case in cases {
        match own::find(&case.op) {
            Some((own, _)) if own.flops.is_none() && own.countable => {
                uncounted.entry(&own.file).or_default().push(case)
            }
            _ => {}
        }
    }
    for (file, cases) in uncounted {
        let texts: Vec<String> =
            cases.iter().map(|c| serde_json::to_string(c).expect("cases are plain data")).collect();
        let counts = python::count_flops(file, &texts)?;
        cases.iter().zip(counts).for_each(|(case, flops)| own::count(case, flops));
    }
    Ok(())
}

/// Ops that a suite file brings with it, by paths from its folder.
pub fn beside(suite: &str, path: &str) -> Result<()> {
    let folder = Path::new(suite).parent().unwrap_or(Path::new(""));
    let found = folder.join(path).display().to_string();
    if !is_file(&found) {
        return Err(Error::usage(format!("{suite}: ops: {found} is no Python file or problem")));
    }
    load(&found).map(drop)
}
