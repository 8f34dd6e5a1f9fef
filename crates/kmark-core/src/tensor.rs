//! What a tensor of a case is (name, role, type, shape, distribution) and a typed view of host memory holding some.
//! Knows no device: the bytes are somebody else's.

use crate::dtype::DType;
use crate::fill::Fill;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    In,
    Out,
    /// Read and overwritten by the op: an input whose memory becomes an output.
    InOut,
}

impl Role {
    pub fn is_input(self) -> bool {
        self != Role::Out
    }
    pub fn is_output(self) -> bool {
        self != Role::In
    }
}

#[derive(Clone, Debug)]
pub struct TensorSpec {
    pub name: &'static str,
    pub role: Role,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub fill: Fill,
}

impl TensorSpec {
    pub fn input(name: &'static str, dtype: DType, shape: &[usize], fill: Fill) -> Self {
        TensorSpec { name, role: Role::In, dtype, shape: shape.to_vec(), fill }
    }
    pub fn output(name: &'static str, dtype: DType, shape: &[usize]) -> Self {
        TensorSpec { name, role: Role::Out, dtype, shape: shape.to_vec(), fill: Fill::Constant(0.0) }
    }
    pub fn inout(name: &'static str, dtype: DType, shape: &[usize], fill: Fill) -> Self {
        TensorSpec { name, role: Role::InOut, dtype, shape: shape.to_vec(), fill }
    }
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }
    pub fn bytes(&self) -> usize {
        self.elems() * self.dtype.size()
    }
    /// Row and column of a flat index, as people write it: `[3, 17]`.
    pub fn place(&self, mut index: usize) -> String {
        let mut at = vec![0; self.shape.len()];
        for (a, len) in at.iter_mut().zip(&self.shape).rev() {
            *a = index % len;
            index /= len;
        }
        format!("{at:?}")
    }
}

/// Host bytes of a case's tensors, read as f64. Inputs only, or outputs only, as the holder decides: a tensor that is
/// not held is an error of the caller.
pub struct View<'a> {
    pub specs: &'a [TensorSpec],
    pub bytes: Vec<Option<&'a [u8]>>,
}

impl<'a> View<'a> {
    pub fn raw(&self, name: &str) -> (&'a TensorSpec, &'a [u8]) {
        let i = self.specs.iter().position(|s| s.name == name).unwrap_or_else(|| panic!("no tensor {name}"));
        (&self.specs[i], self.bytes[i].unwrap_or_else(|| panic!("tensor {name} is not held here")))
    }

    /// Elements `start ..` of tensor `name`, as many as `out` takes.
    pub fn read(&self, name: &str, start: usize, out: &mut [f64]) {
        let (spec, bytes) = self.raw(name);
        let size = spec.dtype.size();
        spec.dtype.decode(&bytes[start * size..(start + out.len()) * size], out);
    }

    /// `count` elements from `start`, in a vector of their own.
    pub fn take(&self, name: &str, start: usize, count: usize) -> Vec<f64> {
        let mut v = vec![0.0; count];
        self.read(name, start, &mut v);
        v
    }

    pub fn all(&self, name: &str) -> Vec<f64> {
        self.take(name, 0, self.raw(name).0.elems())
    }
}
