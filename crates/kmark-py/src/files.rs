//! Folders of runs, as the command writes and reads them: what the Python API keeps is one of them.

use crate::to_python;
use kmark_core::error::Error;
use kmark_core::record::Record;
use kmark_core::run::Run;
use kmark_records::compare::compared;
use kmark_records::store::{Loaded, Store, folders, load};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::json;
use std::path::PathBuf;

/// Adds records to the run in `folder`, which is begun if there is none. All are JSON, as FORMAT.md has it.
#[pyfunction]
pub fn append_run(folder: PathBuf, run: &str, records: Vec<String>) -> PyResult<()> {
    let broken = |e: serde_json::Error| PyValueError::new_err(e.to_string());
    let run: Run = serde_json::from_str(run).map_err(broken)?;
    let records = records.iter().map(|r| Record::parse(r.as_bytes()).map_err(broken)).collect::<PyResult<Vec<_>>>()?;
    let finished = run.finished.clone();
    let begun = Run { finished: None, ..run };
    let (mut store, there) = Store::open(&folder, &begun, true).map_err(wrong)?;
    let mut run = begun;
    if let Some(Loaded { run: old, records: earlier, .. }) = there {
        let same = |a: &Run, b: &Run| a.device == b.device && a.settings == b.settings && a.kmark == b.kmark;
        if !same(&old, &run) {
            let message = format!("{} holds a run with another device, version or settings", folder.display());
            return Err(PyValueError::new_err(message));
        }
        for r in &records {
            if earlier.iter().any(|e| e.key() == r.key()) {
                let message = format!("{} has '{}' of '{}' already", folder.display(), r.impl_name, r.case);
                return Err(PyValueError::new_err(message));
            }
        }
        run = Run { environment: run.environment, ..old };
    }
    store.append(&records).map_err(wrong)?;
    run.finished = finished;
    store.write_run(&run).map_err(wrong)
}

/// The runs at a path: a run, one of its files, or what `kmark merge` made.
#[pyfunction]
pub fn load_runs(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
    let runs = all(&[path])?;
    let told: Vec<_> = runs.iter().map(|l| json!({"name": l.name, "run": l.run, "records": l.records})).collect();
    to_python(py, &json!(told))
}

/// Two sides of runs, row by row, as `kmark compare --format json` has it.
#[pyfunction]
pub fn compare_runs(py: Python<'_>, base: Vec<PathBuf>, new: Vec<PathBuf>, threshold: f64) -> PyResult<Py<PyAny>> {
    let found = compared(&all(&base)?, &all(&new)?, threshold, &[]);
    to_python(py, &serde_json::to_value(found).expect("plain data"))
}

fn all(paths: &[PathBuf]) -> PyResult<Vec<Loaded>> {
    let mut runs = Vec::new();
    for path in paths {
        for folder in folders(path).map_err(wrong)? {
            runs.push(load(&folder).map_err(wrong)?);
        }
    }
    Ok(runs)
}

/// Options of the command line mean nothing here.
fn wrong(error: Error) -> PyErr {
    PyValueError::new_err(error.message.trim_start_matches("--resume: ").trim_start_matches("--out ").to_string())
}
