//! Memory of somebody else's array, exactly as it is: where it lies, what its elements are, how they are laid out. Made
//! by `tools`; here are only numbers and bytes.

use crate::dlpack::{self, Described, Kind};
use kmark_core::dtype::DType;
use kmark_device::Span;
use pyo3::prelude::*;

pub struct Foreign {
    pub address: u64,
    pub on_gpu: bool,
    pub kind: Kind,
    /// As we name it, or as its library does.
    pub dtype: String,
    pub shape: Vec<i64>,
    /// Bytes from one index to the next.
    pub strides: Vec<i64>,
    /// Keeps the memory alive.
    _owner: Py<PyAny>,
}

/// `DLDataTypeCode`s of 8-bit floats, of libraries that know them; to us they are bytes.
const F8: [(u8, DType); 2] = [(10, DType::F8e4m3), (12, DType::F8e5m2)];

impl Foreign {
    pub fn new(kind: Kind, place: (u64, bool), shape: Vec<i64>, strides: Vec<i64>, owner: Py<PyAny>) -> Foreign {
        let known = DType::ALL.iter().find(|d| d.size() > 1 && dlpack::kind(**d) == kind);
        let f8 = F8.iter().find(|(code, _)| *code == kind.code && kind.bits == 8).map(|(_, d)| d);
        let dtype = known.or(f8).map_or_else(|| other(kind), |d| d.name().to_string());
        let kind = f8.map_or(kind, |d| dlpack::kind(*d));
        Foreign { address: place.0, on_gpu: place.1, kind, dtype, shape, strides, _owner: owner }
    }

    /// A tensor in the form of DLPack, which counts strides in elements.
    pub fn of_dlpack(d: Described, owner: Py<PyAny>) -> Foreign {
        let size = i64::from(d.kind.bits) / 8;
        let strides = d.strides.map_or_else(|| dense(&d.shape, size), |s| s.iter().map(|n| n * size).collect());
        Foreign::new(d.kind, (d.address, d.device_type != dlpack::CPU), d.shape, strides, owner)
    }

    /// The same memory, whose bytes are of this type.
    pub fn named(self, dtype: DType) -> Foreign {
        Foreign { dtype: dtype.name().into(), ..self }
    }

    pub fn size(&self) -> usize {
        self.kind.bits as usize / 8
    }

    pub fn elems(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    pub fn is_dense(&self) -> bool {
        let want = dense(&self.shape, self.size() as i64);
        let relevant = self.shape.iter().zip(&self.strides).zip(want);
        self.elems() == 0 || relevant.filter(|((n, _), _)| **n > 1).all(|((_, have), want)| *have == want)
    }

    /// From the first byte that belongs to an element to the last.
    pub fn span(&self) -> Span {
        if self.elems() == 0 {
            return Span { address: self.address, bytes: 0 };
        }
        let reach = |forward: bool| -> i64 {
            let far = self.shape.iter().zip(&self.strides).map(|(n, s)| (n - 1) * s);
            far.filter(|f| (*f > 0) == forward).sum()
        };
        let (low, high) = (reach(false), reach(true));
        Span { address: self.address.wrapping_add_signed(low), bytes: (high - low) as usize + self.size() }
    }

    /// Where element `index` lies, counted along the rows.
    pub fn at(&self, mut index: usize) -> u64 {
        let mut offset = 0;
        for (n, stride) in self.shape.iter().zip(&self.strides).rev() {
            offset += (index as i64 % n) * stride;
            index /= *n as usize;
        }
        self.address.wrapping_add_signed(offset)
    }

    /// The bytes of element `index` of an array in the host's memory.
    pub fn element(&self, index: usize) -> [u8; 8] {
        let mut bytes = [0; 8];
        let size = self.size().min(8);
        // SAFETY: the array says that this element is its, and its owner keeps it alive. Another thread may write to it
        // meanwhile; as whole bytes, whatever they are, that is what is to be found out.
        unsafe { std::ptr::copy_nonoverlapping(self.at(index) as *const u8, bytes.as_mut_ptr(), size) };
        bytes
    }

    /// Copies the elements of an array in the host's memory into `rows`, one after the other.
    pub fn copy_to(&self, rows: &mut [u8]) {
        let size = self.size();
        let row = self.shape.last().map_or(1, |n| *n as usize);
        if self.is_dense() {
            assert_eq!(rows.len(), self.elems() * size);
            // SAFETY: as above; the places do not overlap, since one is ours alone while it is borrowed.
            unsafe { std::ptr::copy(self.address as *const u8, rows.as_mut_ptr(), rows.len()) };
            return;
        }
        let adjacent = self.strides.last().is_some_and(|s| *s == size as i64);
        let step = if adjacent { row } else { 1 };
        for (i, chunk) in rows.chunks_mut(step * size).enumerate() {
            // SAFETY: as above; `step` elements from there on are adjacent.
            unsafe { std::ptr::copy(self.at(i * step) as *const u8, chunk.as_mut_ptr(), chunk.len()) };
        }
    }
}

fn other(kind: Kind) -> String {
    let word = match kind.code {
        0 => "int",
        1 => "uint",
        2 => "float",
        5 => "complex",
        6 => "bool",
        _ => return "another type".into(),
    };
    format!("{word}{}", kind.bits)
}

fn dense(shape: &[i64], size: i64) -> Vec<i64> {
    let mut strides = vec![size; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}
