//! The engine for functions that are no impl of an op: nothing is verified, everything else is as in a run.

use crate::open;
use kmark_core::record::{Mode, Status};
use kmark_core::stop::StopRule;
use kmark_core::turns::VISIT_PRECISION;
use kmark_core::wire::Warmup;
use kmark_device::buffer::Buffers;
use kmark_device::cuda::Cuda;
use kmark_device::measure::{self, Unchecked};
use kmark_device::{Device, Fault, Launch, kind_of};
use kmark_worker::device::Choice;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde_json::json;
use std::cell::RefCell;
use std::rc::Rc;

/// More than the last cache of any CPU of today holds.
const FLUSH_BYTES: usize = 512 << 20;

/// A device with a clock that has been checked.
#[pyclass(unsendable, module = "kmark._kmark")]
pub struct Session {
    opened: Box<dyn Device>,
    flush: RefCell<Vec<u8>>,
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
        let calibration = opened.calibrate().map_err(failed)?;
        let calibration = to_python(py, &serde_json::to_value(calibration).expect("plain data"))?;
        let device = to_python(py, &serde_json::to_value(opened.id()).expect("plain data"))?;
        Ok(Session { opened, flush: RefCell::default(), device, calibration })
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
        let rule = StopRule { precision, budget_ns, min_samples: min_samples.max(1), max_samples: max_samples.max(1) };
        let warmup = match warmup_ns {
            Some(ns) => Warmup::For { ns },
            None => Warmup::UntilSteady { limit_ns: budget_ns / 4 },
        };
        let nothing = Buffers(Vec::new());
        let on_host = kind_of::<Cuda>(&*self.opened).is_none();
        let prepare = || {
            if on_host && mode == Mode::Cold {
                self.fill_caches();
            }
            Ok(())
        };
        let device = &*self.opened;
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
        let mut bytes = self.flush.borrow_mut();
        bytes.resize(FLUSH_BYTES, 0);
        bytes.chunks_mut(64).for_each(|line| line[0] = line[0].wrapping_add(1));
    }
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

fn to_python(py: Python<'_>, value: &serde_json::Value) -> PyResult<Py<PyAny>> {
    let loaded = py.import("json")?.call_method1("loads", (value.to_string(),))?;
    Ok(loaded.unbind())
}
