//! The engine for functions that are no impl of an op: nothing is verified, everything else is as in a run.

use crate::{open, to_python};
use kmark_core::record::{Calibration, Mode, Status};
use kmark_core::stats::median;
use kmark_core::stop::StopRule;
use kmark_core::turns::VISIT_PRECISION;
use kmark_core::wire::Warmup;
use kmark_device::buffer::Buffers;
use kmark_device::cuda::Cuda;
use kmark_device::measure::{self, Unchecked};
use kmark_device::{Device, Fault, Launch, Timed, kind_of};
use kmark_worker::device::Choice;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde_json::json;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

/// More than the last cache of any CPU of today holds.
const FLUSH_BYTES: usize = 512 << 20;

/// A device that only the thread that opened it may use. A GPU's context belongs to a thread.
struct Opened {
    device: ManuallyDrop<Box<dyn Device>>,
    by: ThreadId,
}

// SAFETY: the device is reached through `here` and `drop` alone, which look at the thread first.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Opened {
    fn here(&self) -> PyResult<&dyn Device> {
        if self.by == thread::current().id() {
            return Ok(&**self.device);
        }
        Err(PyRuntimeError::new_err("a session belongs to the thread that opened it; open one in each"))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.by == thread::current().id() {
            // SAFETY: nobody uses it afterwards. Elsewhere it is left to the end of the process.
            unsafe { ManuallyDrop::drop(&mut self.device) }
        }
    }
}

/// A device with a clock that has been checked.
#[pyclass(frozen, module = "kmark._kmark")]
pub struct Session {
    opened: Opened,
    flush: Mutex<Vec<u8>>,
    #[pyo3(get)]
    device: Py<PyAny>,
    #[pyo3(get)]
    calibration: Py<PyAny>,
}

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (device="auto", stream=None))]
    fn new(py: Python<'_>, device: &str, stream: Option<usize>) -> PyResult<Session> {
        let choice = Choice::parse(device).map_err(|e| PyRuntimeError::new_err(e.message))?;
        let opened = open(choice, stream).map_err(failed)?;
        let calibration =
            Calibration { empty_call_ns: empty_call(py, &*opened)?, ..opened.calibrate().map_err(failed)? };
        let calibration = to_python(py, &serde_json::to_value(calibration).expect("plain data"))?;
        let device = to_python(py, &serde_json::to_value(opened.id()).expect("plain data"))?;
        let opened = Opened { device: ManuallyDrop::new(opened), by: thread::current().id() };
        Ok(Session { opened, flush: Mutex::default(), device, calibration })
    }

    /// One turn: warm up, then sample until the rule says stop.
    #[pyo3(signature = (function, *, mode, budget_ns, precision, min_samples, max_samples, warmup_ns=None))]
    #[allow(clippy::too_many_arguments)]
    fn visit(
        &self,
        py: Python<'_>,
        function: Py<PyAny>,
        mode: &str,
        budget_ns: u64,
        precision: f64,
        min_samples: usize,
        max_samples: usize,
        warmup_ns: Option<u64>,
    ) -> PyResult<Py<PyAny>> {
        let modes = [Mode::Cold, Mode::Hot, Mode::Graph, Mode::E2e];
        let mode = modes
            .into_iter()
            .find(|m| m.word() == mode)
            .ok_or_else(|| PyValueError::new_err(format!("mode {mode:?} is none of cold, hot, graph and e2e")))?;
        let raised = Rc::new(RefCell::new(None));
        let mut launch: Box<dyn Launch> = Box::new(Call { function, raised: Rc::clone(&raised) });
        let precision = VISIT_PRECISION * precision;
        // A number that is fixed is taken, whatever the budget.
        let most_ns = if min_samples == max_samples { u64::MAX } else { budget_ns };
        let (min_samples, max_samples) = (min_samples.max(1), max_samples.max(1));
        let rule = StopRule { precision, budget_ns: most_ns, min_samples, max_samples };
        let warmup = match warmup_ns {
            Some(ns) => Warmup::For { ns },
            None => Warmup::UntilSteady { limit_ns: budget_ns / 4 },
        };
        let device = self.opened.here()?;
        let nothing = Buffers(Vec::new());
        let on_host = kind_of::<Cuda>(device).is_none();
        let prepare = || {
            if on_host && mode == Mode::Cold {
                self.fill_caches();
            }
            Ok(())
        };
        let visit = (|| {
            if mode == Mode::Graph {
                launch.launch()?; // what it does once, it does outside the graph
                device.wait()?;
                launch = device.capture(launch)?;
            }
            device.conditions();
            let (launch, buffers, prepare) = (&mut *launch, &nothing, &prepare);
            let mut source = Unchecked { device, launch, buffers, prepare, mode, repeats: true };
            measure::visit(device, &mut source, mode, &rule, warmup)
        })();
        let visit = visit.map_err(|f| raised.take().unwrap_or_else(|| failed(f)))?;
        let dict = json!({
            "samples_ns": visit.samples_ns,
            "clock_mhz": visit.clock_mhz,
            "stop": visit.stop,
            "conditions": device.conditions(),
        });
        to_python(py, &dict)
    }
}

impl Session {
    /// Writes a buffer larger than any cache: what the function reads comes from memory.
    fn fill_caches(&self) {
        let mut bytes = self.flush.lock().expect("nobody panics here");
        bytes.resize(FLUSH_BYTES, 0);
        bytes.chunks_mut(64).for_each(|line| line[0] = line[0].wrapping_add(1));
    }
}

/// Calls in one sample, and samples.
const EMPTY: (u32, usize) = (2000, 9);

/// What calling a Python function costs that does nothing, where calls are timed by the host's clock.
fn empty_call(py: Python<'_>, device: &dyn Device) -> PyResult<Option<f64>> {
    if kind_of::<Cuda>(device).is_some() {
        return Ok(None);
    }
    let function = py.eval(c"lambda: None", None, None)?.unbind();
    let (mut launch, buffers) = (Call { function, raised: Rc::default() }, Buffers(Vec::new()));
    let mut samples = Vec::new();
    for _ in 0..EMPTY.1 {
        let prepare = &|| Ok(());
        let (launch, buffers) = (&mut launch as &mut dyn Launch, &buffers);
        let timed = Timed { launch, buffers, prepare, check: None, mode: Mode::Hot, batch: EMPTY.0 };
        samples.push(device.sample(timed).map_err(failed)?.ns);
    }
    Ok(Some(median(&samples)))
}

/// A function without arguments. What it raises is kept for whoever asked.
struct Call {
    function: Py<PyAny>,
    raised: Rc<RefCell<Option<PyErr>>>,
}

impl Launch for Call {
    fn launch(&mut self) -> Result<(), Fault> {
        Python::attach(|py| match self.function.call0(py) {
            Ok(_) => Ok(()),
            Err(e) => {
                let fault = Fault::new(Status::Crashed, e.to_string());
                self.raised.replace(Some(e));
                Err(fault)
            }
        })
    }
}

fn failed(fault: Fault) -> PyErr {
    PyRuntimeError::new_err(fault.message)
}
