//! A Python callable as a launch: bound by an adapter, called once per sample, and what it returns brought into the
//! case's tensors outside the interval.

use crate::dlpack::{self, Foreign};
use crate::tensor::Tensor;
use kmark::worker::{BuiltIn, Found, Impls};
use kmark_core::case::Case;
use kmark_core::record::Status;
use kmark_core::tensor::TensorSpec;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cuda::Cuda;
use kmark_device::{Built, Device, Fault, Impl, Launch, Span};
use kmark_ops::Entry;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::Cell;

/// Python's side: `has(op, name)`, `bind(case, name, device, tensors)`, `explain(exception)` and `release()`. What it has
/// not may be built in.
pub struct Adapters(pub Py<PyAny>);

impl Impls for Adapters {
    fn find(&self, family: &str, entry: &'static Entry, kind: &str, name: &str) -> Found {
        Python::attach(|py| {
            let known = self.0.call_method1(py, "has", (entry.op.name(), name));
            match known.and_then(|k| k.extract::<bool>(py)).map_err(|e| explained(py, &self.0, e))? {
                true => {
                    let adapter = PythonImpl { adapters: self.0.clone_ref(py), name: name.to_string() };
                    Ok(Box::new(adapter) as Box<dyn Impl>)
                }
                false => BuiltIn.find(family, entry, kind, name),
            }
        })
    }

    fn release(&self) {
        // Whatever is wrong with the process shows in the next request.
        let _ = Python::attach(|py| self.0.call_method0(py, "release"));
    }
}

/// What an exception means for a record.
fn explained(py: Python<'_>, adapters: &Py<PyAny>, error: PyErr) -> Fault {
    let text = error.to_string();
    let said = adapters.call_method1(py, "explain", (error.into_value(py),));
    let said = said.and_then(|s| s.extract::<(String, String)>(py));
    let (word, message) = said.unwrap_or_else(|e| (String::new(), format!("{text} ({e})")));
    let status = serde_json::from_value(word.into()).unwrap_or(Status::Crashed);
    Fault::new(status, message)
}

struct PythonImpl {
    adapters: Py<PyAny>,
    name: String,
}

impl Impl for PythonImpl {
    fn name(&self) -> &str {
        &self.name
    }
    fn about(&self) -> &str {
        "a Python adapter"
    }
    /// The host states it, which has read the adapter's file.
    fn hash(&self) -> String {
        String::new()
    }
    fn supports(&self, _case: &Case) -> Result<(), String> {
        Ok(())
    }

    fn bind(&self, device: &dyn Device, case: &Case, buffers: &Buffers) -> Result<Box<dyn Launch>, Fault> {
        let cuda = device.cuda().cloned();
        let ordinal = cuda.as_ref().map_or(0, Cuda::ordinal);
        Python::attach(|py| {
            let bind = || -> PyResult<PythonLaunch> {
                let tensors = PyDict::new(py);
                for buffer in &buffers.0 {
                    tensors.set_item(buffer.spec().name, Tensor::new(buffer.clone(), ordinal))?;
                }
                let text = serde_json::to_string(case).expect("cases are plain data");
                let bound = self.adapters.call_method1(py, "bind", (text, &self.name, device.id().kind, tensors))?;
                Ok(PythonLaunch {
                    launch: bound.getattr(py, "launch")?,
                    bound,
                    adapters: self.adapters.clone_ref(py),
                    id: NEXT.replace(NEXT.get() + 1),
                    launches: 0,
                    result: None,
                    buffers: buffers.clone(),
                    cuda,
                })
            };
            bind().map_err(|e| explained(py, &self.adapters, e))
        })
        .map(|launch| Box::new(launch) as Box<dyn Launch>)
    }
}

/// By this launch everything that is allocated once is there.
const SETTLED: u64 = 5;

thread_local! {
    /// Which launch was last launched, to know whose memory grows; and how they are told apart.
    static TURN: Cell<u64> = const { Cell::new(0) };
    static NEXT: Cell<u64> = const { Cell::new(1) };
}

struct PythonLaunch {
    launch: Py<PyAny>,
    /// Python's side of it: `launch`, `collect(result)`, and what binding took.
    bound: Py<PyAny>,
    adapters: Py<PyAny>,
    id: u64,
    launches: u64,
    /// What the last launch returned.
    result: Option<Py<PyAny>>,
    buffers: Buffers,
    cuda: Option<Cuda>,
}

impl Launch for PythonLaunch {
    fn launch(&mut self) -> Result<(), Fault> {
        self.launches += 1;
        Python::attach(|py| {
            let mut launch = || -> PyResult<Py<PyAny>> {
                // While the last result is still there, as it is when memory is looked at again.
                if TURN.replace(self.id) != self.id || self.launches == SETTLED {
                    self.bound.call_method1(py, "begin_turn", (self.launches >= SETTLED,))?;
                }
                self.result = None; // so that its memory can be used again
                self.launch.call0(py)
            };
            let result = launch();
            self.result = Some(result.map_err(|e| explained(py, &self.adapters, e))?);
            Ok(())
        })
    }

    fn settle(&mut self) -> Result<(), Fault> {
        Python::attach(|py| {
            let checked = self.bound.call_method1(py, "check_memory", (self.launches,));
            checked.map(drop).map_err(|e| explained(py, &self.adapters, e))
        })?;
        for (name, declared, array) in self.collect()? {
            let known = self.buffers.0.iter().find(|b| b.spec().name == name && b.spec().role.is_output());
            let buffer = known.ok_or_else(|| wrong(format!("{name} was returned, which is no output")))?;
            self.take(buffer, declared, &array)?;
        }
        match &self.cuda {
            Some(cuda) => cuda.wait(),
            None => Ok(()),
        }
    }

    fn settles(&self) -> bool {
        true
    }

    fn refresh(&mut self) -> Result<(), Fault> {
        Python::attach(|py| {
            let refreshed = self.bound.call_method0(py, "refresh");
            refreshed.map(drop).map_err(|e| explained(py, &self.adapters, e))
        })
    }

    fn returned(&self) -> Option<Vec<Span>> {
        let arrays = self.collect().unwrap_or_default();
        let span = |(_, _, a): &(String, String, Foreign)| Span {
            address: a.address,
            bytes: a.elems() * a.kind.bits as usize / 8,
        };
        Some(arrays.iter().filter(|(_, _, a)| a.on_card && a.is_dense()).map(span).collect())
    }

    fn built(&self) -> Built {
        Python::attach(|py| {
            let get = |name: &str| self.bound.getattr(py, name).ok();
            let ns = |name: &str| get(name).and_then(|v| v.extract::<Option<f64>>(py).ok()).flatten();
            Built {
                build_ns: ns("build_ns"),
                tune_ns: ns("tune_ns"),
                kernels: Vec::new(),
                notes: get("notes").and_then(|v| v.extract(py).ok()).unwrap_or_default(),
                contract: get("contract").and_then(|v| v.extract::<Option<String>>(py).ok()).flatten(),
            }
        })
    }
}

impl PythonLaunch {
    /// What the last launch returned: name, dtype as Python's side understands it, and the array.
    fn collect(&self) -> Result<Vec<(String, String, Foreign)>, Fault> {
        let Some(result) = &self.result else { return Ok(Vec::new()) };
        Python::attach(|py| {
            let collect = || -> PyResult<Vec<(String, String, Foreign)>> {
                let arrays = self.bound.call_method1(py, "collect", (result,))?;
                let arrays: Vec<(String, String, Py<PyAny>)> = arrays.extract(py)?;
                arrays.into_iter().map(|(n, d, a)| Ok((n, d, Foreign::of(a.bind(py))?))).collect()
            };
            collect().map_err(|e| explained(py, &self.adapters, e))
        })
    }

    /// Copies a returned array into its place, if it is what the contract says.
    fn take(&self, buffer: &Buffer, declared: String, array: &Foreign) -> Result<(), Fault> {
        let spec = buffer.spec();
        let name = spec.name;
        if declared != spec.dtype.name() || array.kind != dlpack::kind(spec.dtype) {
            return Err(wrong(format!("{name} was returned as {declared}, not as {}", spec.dtype.name())));
        }
        if array.shape.iter().map(|n| *n as usize).ne(spec.shape.iter().copied()) {
            return Err(wrong(format!("{name} was returned with shape {:?}, not {:?}", array.shape, spec.shape)));
        }
        if array.on_card != buffer.on_card().is_some() {
            let (is, should) = if array.on_card { ("a card", "the host") } else { ("the host", "the card") };
            return Err(wrong(format!("{name} was returned in the memory of {is}, not of {should}")));
        }
        if !array.is_dense() {
            return Err(wrong(format!("{name} was returned with gaps between its elements")));
        }
        match (&self.cuda, array.bytes()) {
            (Some(cuda), _) => copy_rows(spec, |to, from, bytes| {
                cuda.queue().copy(buffer.address() + to as u64, array.address + from as u64, bytes)
            }),
            (None, Some(bytes)) => {
                let mut into = buffer.write::<u8>();
                copy_rows(spec, |to, from, count| {
                    into[to..to + count].copy_from_slice(&bytes[from..from + count]);
                    Ok(())
                })
            }
            (None, None) => Err(wrong(format!("{name} was returned where the host cannot read it"))),
        }
    }
}

/// Calls `copy(to, from, bytes)` for every stretch of a dense array that goes into a tensor.
fn copy_rows(spec: &TensorSpec, mut copy: impl FnMut(usize, usize, usize) -> Result<(), Fault>) -> Result<(), Fault> {
    let size = spec.dtype.size();
    if spec.pitch == spec.row_len() {
        return copy(0, 0, spec.bytes());
    }
    let (row, pitch) = (spec.row_len() * size, spec.pitch * size);
    (0..spec.rows()).try_for_each(|r| copy(r * pitch, r * row, row))
}

fn wrong(message: String) -> Fault {
    Fault::new(Status::Wrong, message)
}
