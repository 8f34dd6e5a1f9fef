//! A tensor of a case as Python sees it: the engine's own memory, guard bands around it, without a copy.

use crate::dlpack;
use kmark_core::tensor::Role;
use kmark_device::buffer::Buffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

#[pyclass(frozen, module = "kmark._kmark")]
pub struct Tensor {
    buffer: Buffer,
    ordinal: i32,
}

impl Tensor {
    pub fn new(buffer: Buffer, ordinal: i32) -> Tensor {
        Tensor { buffer, ordinal }
    }
}

#[pymethods]
impl Tensor {
    #[getter]
    fn name(&self) -> &'static str {
        self.buffer.spec().name
    }
    /// `f32`, `bf16`, `f8e4m3`, …
    #[getter]
    fn dtype(&self) -> &'static str {
        self.buffer.spec().dtype.name()
    }
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.buffer.spec().shape)
    }
    /// In elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, dlpack::strides(&self.buffer))
    }
    /// `in`, `out` or `inout`.
    #[getter]
    fn role(&self) -> &'static str {
        match self.buffer.spec().role {
            Role::In => "in",
            Role::Out => "out",
            Role::InOut => "inout",
        }
    }
    #[getter]
    fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// The consumer works on the stream that we use, so there is nothing to wait for.
    #[pyo3(signature = (**_asked))]
    fn __dlpack__(&self, py: Python<'_>, _asked: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyAny>> {
        dlpack::export(py, &self.buffer, self.ordinal)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        if self.buffer.is_on_device() { (dlpack::CUDA, self.ordinal) } else { (dlpack::CPU, 0) }
    }

    /// What NumPy takes an array from; there is none for memory of a GPU, nor for types that NumPy has not.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (spec, kind) = (self.buffer.spec(), dlpack::kind(self.buffer.spec().dtype));
        let letter = match kind.code {
            2 => 'f',
            0 => 'i',
            _ => 'u', // as bytes
        };
        if self.buffer.is_on_device() {
            let message = format!("{} lies on a GPU, where NumPy does not reach", spec.name);
            return Err(pyo3::exceptions::PyAttributeError::new_err(message));
        }
        let size = i64::from(kind.bits / 8);
        let dict = PyDict::new(py);
        dict.set_item("version", 3)?;
        dict.set_item("typestr", format!("<{letter}{size}"))?;
        dict.set_item("data", (self.buffer.address(), false))?;
        dict.set_item("shape", PyTuple::new(py, &spec.shape)?)?;
        dict.set_item("strides", PyTuple::new(py, dlpack::strides(&self.buffer).iter().map(|s| s * size))?)?;
        Ok(dict)
    }
}
