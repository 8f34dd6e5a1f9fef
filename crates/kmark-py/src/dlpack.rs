//! DLPack, the form in which array libraries hand each other memory: ours out to them, theirs in to us.

use kmark_core::dtype::DType;
use kmark_device::buffer::Buffer;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kind {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    kind: Kind,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;
const NAME: &CStr = c"dltensor";

/// How DLPack names a type. It has names for fp8 only since lately, so those travel as bytes and are viewed on arrival.
pub fn kind(dtype: DType) -> Kind {
    let (code, bits) = match dtype {
        DType::F64 => (2, 64),
        DType::F32 => (2, 32),
        DType::F16 => (2, 16),
        DType::Bf16 => (4, 16),
        DType::F8e4m3 | DType::F8e5m2 => (1, 8),
        DType::I32 => (0, 32),
        DType::I64 => (0, 64),
    };
    Kind { code, bits, lanes: 1 }
}

/// Elements from one index to the next, for each dimension.
pub fn strides(buffer: &Buffer) -> Vec<i64> {
    let spec = buffer.spec();
    let mut strides = vec![1; spec.shape.len()];
    let mut step = spec.pitch as i64;
    for (stride, len) in strides.iter_mut().zip(&spec.shape).rev().skip(1) {
        *stride = step;
        step *= *len as i64;
    }
    strides
}

/// What a capsule of ours keeps alive.
struct Keeper {
    managed: Managed,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _buffer: Buffer,
}

/// The buffer as a capsule, on device number `ordinal` if it lies on a GPU.
pub fn export(py: Python<'_>, buffer: &Buffer, ordinal: i32) -> PyResult<Py<PyAny>> {
    let (device_type, device_id) = if buffer.is_on_device() { (CUDA, ordinal) } else { (CPU, 0) };
    let tensor = Tensor {
        data: buffer.address() as *mut c_void,
        device_type,
        device_id,
        ndim: buffer.spec().shape.len() as i32,
        kind: kind(buffer.spec().dtype),
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let mut keeper = Box::new(Keeper {
        managed: Managed { tensor, manager: std::ptr::null_mut(), deleter: Some(delete) },
        shape: buffer.spec().shape.iter().map(|n| *n as i64).collect(),
        strides: strides(buffer),
        _buffer: buffer.clone(),
    });
    keeper.managed.tensor.shape = keeper.shape.as_mut_ptr();
    keeper.managed.tensor.strides = keeper.strides.as_mut_ptr();
    let keeper = Box::into_raw(keeper);
    // SAFETY: the keeper lives until its deleter is called, by whoever takes the tensor over or by the capsule's end.
    unsafe {
        (*keeper).managed.manager = keeper.cast();
        let capsule = ffi::PyCapsule_New((&raw mut (*keeper).managed).cast(), NAME.as_ptr(), Some(forget));
        Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
    }
}

/// Called once, by the last owner.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: `manager` is the box that `export` made.
    unsafe { drop(Box::from_raw((*managed).manager.cast::<Keeper>())) }
}

/// The end of a capsule that nobody took over.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that was taken over has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            let managed: *mut Managed = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast();
            if let Some(deleter) = (*managed).deleter {
                deleter(managed);
            }
        }
    }
}

/// What a capsule of somebody else's says: data, device, kind of elements, shape, and elements from index to index.
pub struct Described {
    pub address: u64,
    pub device_type: i32,
    pub kind: Kind,
    pub shape: Vec<i64>,
    pub strides: Option<Vec<i64>>,
}

pub fn describe(capsule: &Bound<'_, PyAny>) -> PyResult<Described> {
    // SAFETY: a capsule of this name holds a managed tensor, which lives as long as the capsule does.
    unsafe {
        let managed: *const Managed = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast();
        if managed.is_null() {
            return Err(PyErr::fetch(capsule.py()));
        }
        let t = &(*managed).tensor;
        let list = |p: *const i64| (0..t.ndim as usize).map(|i| *p.add(i)).collect::<Vec<i64>>();
        Ok(Described {
            address: t.data as u64 + t.byte_offset,
            device_type: t.device_type,
            kind: t.kind,
            shape: list(t.shape),
            strides: (!t.strides.is_null()).then(|| list(t.strides)),
        })
    }
}
