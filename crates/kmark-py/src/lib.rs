//! Kernelmark inside a Python process, on that process's CUDA context and stream: the worker's side of the protocol for
//! Python libraries, and the engine for people's own functions. Knows no library; everything that does is Python.

mod dlpack;
mod files;
mod foreign;
mod judge;
mod launch;
mod ledger;
mod own;
mod processor;
mod returned;
mod session;
mod tensor;
mod tools;

use kmark_core::across::{self, Scatter};
use kmark_core::stats::{Typical, midmean, quantile};
use kmark_core::turns::Turns;
use kmark_core::verdict::{OTHER_CLOCK, Round, Series, Verdict, clocks_explain, clocks_explain_ns, compare};
use kmark_device::cuda::Cuda;
use kmark_device::{Device, Fault};
use kmark_worker::device::{Choice, kernel_cache};
use kmark_worker::worker;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The device that was asked for, on `stream` if there is one.
fn open(choice: Choice, stream: Option<usize>) -> Result<Box<dyn Device>, Fault> {
    match (choice, stream) {
        (Choice::Cuda(ordinal), Some(stream)) => {
            let stream = stream as *mut std::ffi::c_void;
            // SAFETY: Python gave us its own stream and keeps it as long as the process lives; a stream of another device
            // is refused by the driver.
            let cuda = unsafe { Cuda::borrow(ordinal, stream, kernel_cache(), kmark_ops::headers())? };
            Ok(Box::new(cuda))
        }
        _ => choice.open(),
    }
}

/// Answers the host's requests on file descriptors 3 and 4 until it leaves. `adapters` binds, and says what exceptions mean.
#[pyfunction]
#[pyo3(signature = (family, device, stream, adapters))]
fn serve(py: Python<'_>, family: &str, device: &str, stream: Option<usize>, adapters: Py<PyAny>) -> PyResult<()> {
    let choice = Choice::parse(device).map_err(|e| e.message);
    let device = || choice.and_then(|c| open(c, stream).map_err(|f| f.message));
    if family.starts_with("judge:") {
        kmark_core::own::ask(Box::new(own::Here(adapters.clone_ref(py))));
    }
    let adapters = launch::Adapters::new(py, family, adapters)?;
    worker::serve(family, device, &adapters).map_err(|e| PyRuntimeError::new_err(e.message))
}

/// The time that is shown for these visits, and its 95 % interval.
#[pyfunction(name = "time")]
fn time_of(visits: Vec<Vec<f64>>) -> PyResult<(f64, f64, f64)> {
    let time = Typical::of(visits.iter().map(Vec::as_slice)).ok_or_else(|| PyValueError::new_err("no samples"))?;
    Ok((time.value, time.lo, time.hi))
}

#[pyfunction]
fn percentile(samples: Vec<f64>, q: f64) -> PyResult<f64> {
    if samples.is_empty() || !(0.0..=1.0).contains(&q) {
        return Err(PyValueError::new_err("percentile needs samples and a q from 0 to 1"));
    }
    Ok(quantile(&samples, q))
}

/// One side of a comparison: a list of visits, two of them a round, the time that is shown, and the clock of a CPU's core.
type Side = (Vec<Vec<f64>>, f64, Option<f64>);

/// Whether `new` is faster than `base`. `across` is the kind of device where the two took no turns: what it differs from run
/// to run is allowed for.
#[pyfunction]
#[pyo3(signature = (base, new, across=None))]
fn verdict<'py>(py: Python<'py>, base: Side, new: Side, across: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
    if base.0.iter().chain(&new.0).any(|visit| visit.is_empty()) {
        return Err(PyValueError::new_err("a visit without samples"));
    }
    let (ours, theirs) = ((new.1, new.2), (base.1, base.2));
    let series = |(visits, time_ns, _): Side| Series {
        time_ns,
        rounds: visits.chunks_exact(2).map(|v| Round { first: midmean(&v[0]), second: midmean(&v[1]) }).collect(),
    };
    let (base, new) = (series(base), series(new));
    let mut c = match across {
        None => compare(&new, &base, clocks_explain_ns(ours, theirs)),
        Some("cpu") => across::compare(&[new], &[base], Scatter::CPU),
        Some(_) => across::compare(&[new], &[base], Scatter::GPU),
    };
    let by_clocks = across.is_some() && clocks_explain(c.speedup, ours.1, theirs.1);
    if by_clocks {
        c.verdict = Verdict::Ambiguous;
    }
    let dict = PyDict::new(py);
    dict.set_item("verdict", c.verdict.word())?;
    dict.set_item("note", if by_clocks { OTHER_CLOCK } else { "" })?;
    dict.set_item("ratio", c.speedup)?;
    dict.set_item("low", c.lo)?;
    dict.set_item("high", c.hi)?;
    dict.set_item("sees", c.visible)?;
    Ok(dict)
}

/// The visits of a round, by number of the function; `spent_ns` is what each has taken so far.
#[pyfunction]
fn turns(rounds: u32, budget_ns: u64, key: u64, round: u32, spent_ns: Vec<u64>) -> Vec<usize> {
    Turns { rounds, budget_ns, key }.round(round, &spent_ns)
}

fn to_python(py: Python<'_>, value: &serde_json::Value) -> PyResult<Py<PyAny>> {
    let loaded = py.import("json")?.call_method1("loads", (value.to_string(),))?;
    Ok(loaded.unbind())
}

#[pymodule]
fn _kmark(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::Session>()?;
    module.add_class::<tensor::Tensor>()?;
    module.add_function(wrap_pyfunction!(serve, module)?)?;
    module.add_function(wrap_pyfunction!(judge::judge, module)?)?;
    module.add_function(wrap_pyfunction!(files::append_run, module)?)?;
    module.add_function(wrap_pyfunction!(files::load_runs, module)?)?;
    module.add_function(wrap_pyfunction!(files::compare_runs, module)?)?;
    module.add_function(wrap_pyfunction!(time_of, module)?)?;
    module.add_function(wrap_pyfunction!(percentile, module)?)?;
    module.add_function(wrap_pyfunction!(verdict, module)?)?;
    module.add_function(wrap_pyfunction!(turns, module)?)?;
    module.add_function(wrap_pyfunction!(own::own_case, module)?)?;
    module.add_function(wrap_pyfunction!(own::own_maker, module)?)?;
    module.add_function(wrap_pyfunction!(own::own_inputs, module)?)?;
    module.add_function(wrap_pyfunction!(own::own_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(own::own_judge, module)?)
}
