//! What the engine needs of Python while a function is under test, taken before the function's file is loaded: nothing
//! that the file replaces later is ever called. All of it is compiled code of the interpreter and of the array libraries;
//! no line of Python runs between two launches, and no method of what a launch returns.

use crate::dlpack::{self, Kind};
use crate::foreign::Foreign;
use kmark_core::dtype::DType;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub struct Tools {
    collect: Py<PyAny>,
    disable: Py<PyAny>,
    freeze: Py<PyAny>,
    /// A collection that takes longer, in ms, looks through more than what a case brings.
    much: AtomicU64,
    numpy: OnceLock<Numpy>,
    torch: OnceLock<Torch>,
}

struct Numpy {
    array: Py<PyType>,
    /// Gives a capsule with what [`ArrayInterface`] says.
    interface: Py<PyAny>,
}

struct Torch {
    tensor: Py<PyType>,
    to_dlpack: Py<PyAny>,
    contiguous: Py<PyAny>,
    view: Py<PyAny>,
    dtype: Py<PyAny>,
    bytes: Py<PyAny>,
    /// How many modes are on that run Python code inside of other functions; none where torch is older than them.
    function_modes: Option<Py<PyAny>>,
    dispatch_modes: Option<Py<PyAny>>,
    memory: Option<Py<PyAny>>,
}

/// `PyArrayInterface`.
#[repr(C)]
struct ArrayInterface {
    two: c_int,
    nd: c_int,
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *const c_void,
}

/// Elements in the order of bytes that this machine has.
const NATIVE_ORDER: c_int = 0x200;

impl Tools {
    pub fn take(py: Python<'_>) -> PyResult<Tools> {
        let gc = py.import("gc")?;
        let of = |name: &str| gc.getattr(name).map(Bound::unbind);
        let (collect, disable, freeze) = (of("collect")?, of("disable")?, of("freeze")?);
        Ok(Tools { collect, disable, freeze, much: AtomicU64::new(5), numpy: OnceLock::new(), torch: OnceLock::new() })
    }

    /// Takes what it needs of the array libraries that are loaded, or with `import` of all that are there.
    pub fn take_libraries(&self, py: Python<'_>, import: bool) {
        let module = |name: &str| match import {
            true => py.import(name).ok().map(Bound::into_any),
            false => py.import("sys").ok()?.getattr("modules").ok()?.get_item(name).ok(),
        };
        if self.numpy.get().is_none()
            && let Some(Ok(numpy)) = module("numpy").map(|m| Numpy::take(&m))
        {
            let _ = self.numpy.set(numpy);
        }
        if self.torch.get().is_none()
            && let Some(Ok(torch)) = module("torch").map(|m| Torch::take(&m))
        {
            let _ = self.torch.set(torch);
        }
    }

    /// Frees what nobody can reach, and gives the pages to the system: what is free inside the heap would count as in use.
    pub fn collect_garbage(&self, py: Python<'_>) {
        let _ = self.collect.call0(py); // a finaliser that raises is nobody's result
        #[cfg(target_env = "gnu")]
        // SAFETY: takes no pointer, and may be called by any thread at any time.
        unsafe {
            libc::malloc_trim(0);
        }
    }

    /// When nothing of a case is left: if there is much to look through, what lives now, modules above all, is not looked
    /// through again. Of torch and its compiler that is 0.2 s for every collection, several of which every impl of every case
    /// has. What dies later stays, so it is done a few times at most.
    pub fn set_aside(&self, py: Python<'_>) {
        let start = Instant::now();
        self.collect_garbage(py);
        let (took, much) = (start.elapsed().as_millis() as u64, self.much.load(Ordering::Relaxed));
        if took > much {
            let _ = self.freeze.call0(py);
            self.much.store(4 * much, Ordering::Relaxed);
        }
    }

    /// A collection in the middle of a sample is nobody's time.
    pub fn stop_collecting(&self, py: Python<'_>) {
        let _ = self.disable.call0(py);
    }

    /// Bytes that torch has handed out on the current GPU.
    pub fn card_bytes(&self, py: Python<'_>, ordinal: i32) -> Option<i64> {
        let stats = self.torch.get()?.memory.as_ref()?.call1(py, (ordinal,)).ok()?;
        let current =
            ["allocated_bytes", "all", "current"].iter().try_fold(stats.into_bound(py), |at, k| at.get_item(k));
        current.ok()?.extract().ok()
    }

    /// An array as it lies in memory; `Err` says why it is not taken.
    pub fn array(&self, value: &Bound<'_, PyAny>) -> Result<Foreign, String> {
        let of = |kind: &Py<PyType>| value.get_type().as_ptr() == kind.as_ptr();
        let raised = |e: PyErr| format!("an array that was returned cannot be read: {e}");
        if let Some(numpy) = self.numpy.get().filter(|n| of(&n.array)) {
            return numpy.read(value).map_err(raised);
        }
        if let Some(torch) = self.torch.get().filter(|t| of(&t.tensor)) {
            return torch.read(value).map_err(raised)?;
        }
        let name = value.get_type().fully_qualified_name().map(|n| n.to_string()).unwrap_or_default();
        Err(format!(
            "a launch returned a {name}; only numpy.ndarray and torch.Tensor themselves are taken, alone or in a dict, \
             list or tuple"
        ))
    }
}

impl Numpy {
    fn take(module: &Bound<'_, PyAny>) -> PyResult<Numpy> {
        let array = module.getattr("ndarray")?.cast_into::<PyType>()?;
        let interface = array.getattr("__array_struct__")?.getattr("__get__")?.unbind();
        Ok(Numpy { array: array.unbind(), interface })
    }

    fn read(&self, value: &Bound<'_, PyAny>) -> PyResult<Foreign> {
        let capsule = self.interface.bind(value.py()).call1((value,))?;
        // SAFETY: the capsule comes from NumPy's own code, which puts this struct there and keeps the array alive.
        unsafe {
            let i: *const ArrayInterface = ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()).cast();
            if i.is_null() {
                return Err(PyErr::fetch(value.py()));
            }
            let i = &*i;
            let list = |p: *const isize| (0..i.nd as usize).map(|k| *p.add(k) as i64).collect::<Vec<i64>>();
            let code = match i.typekind as u8 {
                _ if i.flags & NATIVE_ORDER == 0 && i.itemsize > 1 => u8::MAX,
                b'i' => 0,
                b'u' => 1,
                b'f' => 2,
                b'c' => 5,
                b'b' => 6,
                _ => u8::MAX,
            };
            let kind = Kind { code, bits: (8 * i.itemsize).clamp(0, 255) as u8, lanes: 1 };
            let (shape, strides) = (list(i.shape), list(i.strides));
            Ok(Foreign::new(kind, (i.data as u64, false), shape, strides, capsule.unbind()))
        }
    }
}

impl Torch {
    fn take(module: &Bound<'_, PyAny>) -> PyResult<Torch> {
        let own = module.getattr("_C")?;
        let base = own.getattr("TensorBase").or_else(|_| own.getattr("_TensorBase"))?;
        let optional = |name: &str| own.getattr(name).ok().map(Bound::unbind);
        Ok(Torch {
            tensor: module.getattr("Tensor")?.cast_into::<PyType>()?.unbind(),
            to_dlpack: own.getattr("_to_dlpack")?.unbind(),
            contiguous: base.getattr("contiguous")?.unbind(),
            view: base.getattr("view")?.unbind(),
            dtype: base.getattr("dtype")?.getattr("__get__")?.unbind(),
            bytes: module.getattr("uint8")?.unbind(),
            function_modes: optional("_len_torch_function_stack"),
            dispatch_modes: optional("_len_torch_dispatch_stack"),
            memory: optional("_cuda_memoryStats"),
        })
    }

    fn read(&self, value: &Bound<'_, PyAny>) -> PyResult<Result<Foreign, String>> {
        let py = value.py();
        let on = |modes: &Option<Py<PyAny>>| -> PyResult<bool> {
            Ok(modes.as_ref().map_or(Ok(0), |m| m.call0(py)?.extract::<usize>(py))? > 0)
        };
        if on(&self.dispatch_modes)? {
            return Ok(Err("a mode of torch's that dispatches to Python was left on".into()));
        }
        let export = |tensor: &Bound<'_, PyAny>| -> PyResult<Foreign> {
            let capsule = self.to_dlpack.bind(py).call1((tensor,))?;
            Ok(Foreign::of_dlpack(dlpack::describe(&capsule)?, capsule.unbind()))
        };
        let (plain, python_runs) = (export(value), on(&self.function_modes)?);
        match plain {
            Ok(foreign) if foreign.is_dense() => Ok(Ok(foreign)),
            _ if python_runs => Ok(Err("a mode of torch's was left on, and what was returned must be copied".into())),
            Ok(_) => export(&self.contiguous.bind(py).call1((value,))?).map(Ok),
            Err(error) => {
                // DLPack's older form has no fp8: it travels as bytes.
                let dtype = self.dtype.bind(py).call1((value,))?.repr()?.to_string();
                let known = [("float8_e4m3fn", DType::F8e4m3), ("float8_e5m2", DType::F8e5m2)];
                let Some((_, f8)) = known.iter().find(|(name, _)| dtype.ends_with(name)) else { return Err(error) };
                let dense = self.contiguous.bind(py).call1((value,))?;
                Ok(Ok(export(&self.view.bind(py).call1((dense, &self.bytes))?)?.named(*f8)))
            }
        }
    }
}
