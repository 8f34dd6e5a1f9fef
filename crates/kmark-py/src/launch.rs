//! A Python callable as a launch: bound by an adapter, called once per sample. What it returns is taken outside the
//! interval, by our own code: which outputs those are and how they lie in memory is settled by the first launch.

use crate::foreign::Foreign;
use crate::ledger::{self, Page};
use crate::own;
use crate::processor;
use crate::returned::{Plan, Returned};
use crate::tensor::Tensor;
use crate::tools::Tools;
use kmark_core::case::Case;
use kmark_core::gate::Verify;
use kmark_core::op::Op;
use kmark_core::record::{Status, holds_python};
use kmark_core::tensor::{Role, View};
use kmark_device::buffer::Buffers;
use kmark_device::cuda::Cuda;
use kmark_device::{Built, Device, Fault, Impl, Launch, Span, kind_of};
use kmark_ops::Entry;
use kmark_worker::worker::{BuiltIn, Found, Impls};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use std::time::Instant;

/// Python's side: `has(op, name)`, `bind(case, name, device, tensors, file)`, `explain(exception)`, `forget()` and `release()`.
/// What it has not may be built in.
pub struct Adapters {
    python: Py<PyAny>,
    tools: Arc<Tools>,
    /// Functions in a user's file, not adapters of the package.
    of_a_file: bool,
}

impl Adapters {
    /// Before any file of a user's is loaded.
    pub fn new(py: Python<'_>, family: &str, python: Py<PyAny>) -> PyResult<Adapters> {
        let (tools, of_a_file) = (Tools::take(py)?, holds_python(family));
        if of_a_file {
            tools.take_libraries(py, true);
        }
        Ok(Adapters { python, tools: Arc::new(tools), of_a_file })
    }
}

impl Impls for Adapters {
    fn find(&self, family: &str, entry: &'static Entry, kind: &str, name: &str) -> Found {
        Python::attach(|py| {
            let known = self.python.call_method1(py, "has", (entry.op.name, name));
            match known.and_then(|k| k.extract::<bool>(py)).map_err(|e| explained(py, &self.python, e, true))? {
                true => {
                    let (python, tools) = (self.python.clone_ref(py), Arc::clone(&self.tools));
                    let adapter = PythonImpl { python, tools, of_a_file: self.of_a_file, name: name.to_string() };
                    Ok(Box::new(adapter) as Box<dyn Impl>)
                }
                false => BuiltIn.find(family, entry, kind, name),
            }
        })
    }

    fn release(&self) {
        Python::attach(|py| {
            ledger::forget();
            // Whatever is wrong with the process shows in the next request.
            let _ = self.python.call_method0(py, "forget");
            self.tools.set_aside(py);
            let _ = self.python.call_method0(py, "release");
        });
    }

    fn judge(&self, op: &'static Op, case: &Case, outputs: &View) -> Result<Verify, Fault> {
        Python::attach(|py| {
            let judge = || {
                let text = serde_json::to_string(case).expect("cases are plain data");
                let truth = self.python.call_method1(py, "truth", (text, own::inputs(py, op, case)?))?;
                own::judge(py, outputs, &truth)
            };
            judge().map_err(|e| explained(py, &self.python, e, true))
        })
    }

    fn make(&self, _: &'static Op, case: &Case, tensor: &str) -> Result<Vec<f64>, Fault> {
        Python::attach(|py| own::made(py, &self.python, case, tensor).map_err(|e| explained(py, &self.python, e, true)))
    }
}

/// What an exception means for a record. Only who binds can know that a library is missing or that it does not do a case;
/// a launch that says so has failed.
fn explained(py: Python<'_>, adapters: &Py<PyAny>, error: PyErr, binding: bool) -> Fault {
    let text = error.to_string();
    let said = adapters.call_method1(py, "explain", (error.into_value(py),));
    let said = said.and_then(|s| s.extract::<(String, String, String)>(py));
    let (word, message, traceback) = said.unwrap_or_else(|e| (String::new(), format!("{text} ({e})"), String::new()));
    let status: Status = serde_json::from_value(word.into()).unwrap_or(Status::Crashed);
    if status.is_failure() || binding && matches!(status, Status::Unsupported | Status::Unavailable) {
        return Fault { traceback, ..Fault::new(status, message) };
    }
    Fault { traceback, ..Fault::new(Status::Crashed, text) }
}

struct PythonImpl {
    python: Py<PyAny>,
    tools: Arc<Tools>,
    of_a_file: bool,
    name: String,
}

impl Impl for PythonImpl {
    fn name(&self) -> &str {
        &self.name
    }
    fn about(&self) -> std::borrow::Cow<'_, str> {
        "a Python adapter".into()
    }
    /// The host states it, which has read the adapter's file.
    fn hash(&self) -> String {
        String::new()
    }
    fn supports(&self, _: &'static Op, _: &Case) -> Result<(), String> {
        Ok(())
    }

    fn bind(
        &self,
        device: &dyn Device,
        _: &'static Op,
        case: &Case,
        buffers: &Buffers,
    ) -> Result<Box<dyn Launch>, Fault> {
        let cuda = kind_of::<Cuda>(device).cloned();
        let ordinal = cuda.as_ref().map(Cuda::ordinal);
        Python::attach(|py| {
            let bind = || -> PyResult<PythonLaunch> {
                let tensors = PyDict::new(py);
                for buffer in &buffers.0 {
                    tensors.set_item(buffer.spec().name, Tensor::new(buffer.clone(), ordinal.unwrap_or(0)))?;
                }
                let text = serde_json::to_string(case).expect("cases are plain data");
                // Where an op of a user's is defined.
                let file = kmark_core::own::find(&case.op).map(|(own, _)| own.file.as_str());
                let bound =
                    self.python.call_method1(py, "bind", (text, &self.name, device.id().kind, tensors, file))?;
                let get = |name: &str| bound.getattr(py, name);
                let built = Built {
                    build_ns: get("build_ns")?.extract(py)?,
                    tune_ns: get("tune_ns")?.extract(py)?,
                    aside_ns: 0.0,
                    kernels: Vec::new(),
                    notes: get("notes")?.extract(py)?,
                    libraries: get("libraries")?.extract(py)?,
                    contract: get("contract")?.extract(py)?,
                };
                Ok(PythonLaunch {
                    launch: get("launch")?,
                    refresh: get("refresh")?.extract(py)?,
                    python: self.python.clone_ref(py),
                    tools: Arc::clone(&self.tools),
                    built,
                    page: Page::new(ordinal),
                    launches: 0,
                    result: None,
                    plan: Plan::default(),
                    seen: Vec::new(),
                    buffers: buffers.clone(),
                    cuda,
                })
            };
            let mut bound = processor::kept(bind).map_err(|e| explained(py, &self.python, e, true));
            let start = Instant::now();
            if !self.of_a_file {
                self.tools.take_libraries(py, false);
            }
            self.tools.collect_garbage(py);
            self.tools.stop_collecting(py);
            if let Ok(launch) = &mut bound {
                launch.built.aside_ns = start.elapsed().as_nanos() as f64;
            }
            bound
        })
        .map(|launch| Box::new(launch) as Box<dyn Launch>)
    }
}

/// By this launch everything that is allocated once is there.
const SETTLED: u64 = 5;

struct PythonLaunch {
    launch: Py<PyAny>,
    /// Brings arranged inputs up to date; adapters of the package may have it.
    refresh: Option<Py<PyAny>>,
    python: Py<PyAny>,
    tools: Arc<Tools>,
    built: Built,
    page: Page,
    launches: u64,
    /// What the last launch returned.
    result: Option<Py<PyAny>>,
    plan: Plan,
    /// What was returned as it was when the timer stopped.
    seen: Vec<Returned>,
    buffers: Buffers,
    cuda: Option<Cuda>,
}

impl Launch for PythonLaunch {
    fn launch(&mut self) -> Result<(), Fault> {
        self.launches += 1;
        Python::attach(|py| {
            // While the last result is still there, as it is when memory is looked at again.
            if !self.page.has_the_turn() || self.launches == SETTLED {
                self.page.begin_turn(py, &self.tools, self.launches >= SETTLED);
            }
            self.seen.clear();
            self.result = None; // so that its memory can be used again
            let result = processor::kept(|| self.launch.call0(py));
            self.result = Some(result.map_err(|e| explained(py, &self.python, e, false))?);
            Ok(())
        })
    }

    fn witness(&mut self) -> Result<(), Fault> {
        Python::attach(|py| {
            self.seen = self.collect(py)?;
            self.seen.iter_mut().for_each(Returned::glimpse);
            self.page.tidy(py, &self.tools, self.launches);
            Ok(())
        })
    }

    fn settle(&mut self) -> Result<(), Fault> {
        Python::attach(|py| {
            self.page.check(py, &self.tools, self.launches)?;
            let known = std::mem::take(&mut self.seen);
            let returned = if known.is_empty() { self.collect(py)? } else { known };
            returned.iter().try_for_each(|r| r.put(&self.buffers.0[r.output], self.cuda.as_ref()))
        })?;
        match &self.cuda {
            Some(cuda) => cuda.wait(),
            None => Ok(()),
        }
    }

    fn refresh(&mut self) -> Result<(), Fault> {
        let Some(refresh) = &self.refresh else { return Ok(()) };
        Python::attach(|py| refresh.call0(py).map(drop).map_err(|e| explained(py, &self.python, e, false)))
    }

    fn returned(&self) -> Option<Vec<Span>> {
        let arrays = Python::attach(|py| self.read(py)).unwrap_or_default();
        let dense = arrays.iter().map(|(_, a)| a).filter(|a| a.on_gpu && a.is_dense());
        Some(dense.map(Foreign::span).collect())
    }

    fn settles(&self) -> bool {
        self.plan.returns()
    }

    fn built(&self) -> Built {
        self.built.clone()
    }
}

impl PythonLaunch {
    /// What the last launch returned, by output; `Err` if it is not what was returned before, or no result at all.
    fn collect(&mut self, py: Python<'_>) -> Result<Vec<Returned>, Fault> {
        let arrays = self.read(py)?;
        for (output, array) in &arrays {
            crate::returned::check(&self.buffers, *output, array).map_err(wrong)?;
        }
        self.plan.hold(&arrays).map_err(wrong)?;
        Ok(arrays.into_iter().map(|(output, array)| Returned::new(output, array)).collect())
    }

    fn read(&self, py: Python<'_>) -> Result<Vec<(usize, Foreign)>, Fault> {
        let Some(result) = &self.result else { return Ok(Vec::new()) };
        let outputs = self.buffers.0.iter().enumerate().filter(|(_, b)| b.spec().role != Role::In);
        let outputs: Vec<(usize, &str)> = outputs.map(|(i, b)| (i, b.spec().name)).collect();
        crate::returned::arrays(&self.tools, result.bind(py), &outputs).map_err(wrong)
    }
}

fn wrong(message: String) -> Fault {
    Fault::new(Status::Wrong, message)
}
