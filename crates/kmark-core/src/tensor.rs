//! What a tensor of a case is (name, role, type, shape, distribution) and a typed view of host memory holding some.
//! Knows no device: the bytes are somebody else's.

use crate::dtype::DType;
use crate::fill::Fill;
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
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

/// A tensor: rows of its last dimension, one after the other, `pitch` elements apart.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    pub name: &'static str,
    pub role: Role,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub fill: Fill,
    /// Elements from the start of one row to the start of the next. What lies between rows belongs to nobody.
    pub pitch: usize,
    /// Elements by which the first lies past an aligned address.
    pub offset: usize,
    /// Of an output: which share of the slack the RMS error of a region may be.
    pub rms_share: f64,
}

/// Of slack that bounds what may happen at the worst.
const RMS_SHARE: f64 = 0.5;

impl TensorSpec {
    fn new(name: &'static str, role: Role, dtype: DType, shape: &[usize], fill: Fill) -> Self {
        let pitch = shape.last().copied().unwrap_or(1);
        TensorSpec { name, role, dtype, shape: shape.to_vec(), fill, pitch, offset: 0, rms_share: RMS_SHARE }
    }
    pub fn input(name: &'static str, dtype: DType, shape: &[usize], fill: Fill) -> Self {
        Self::new(name, Role::In, dtype, shape, fill)
    }
    pub fn output(name: &'static str, dtype: DType, shape: &[usize]) -> Self {
        Self::new(name, Role::Out, dtype, shape, Fill::Constant(0.0))
    }
    pub fn inout(name: &'static str, dtype: DType, shape: &[usize], fill: Fill) -> Self {
        Self::new(name, Role::InOut, dtype, shape, fill)
    }
    /// Where slack is so many standard deviations that half of it hides what the RMS can show.
    pub fn with_rms_share(mut self, share: f64) -> Self {
        self.rms_share = share;
        self
    }
    /// Laid out as attribute [`MEMORY`](crate::op::MEMORY) says: `strided` rows lie 8 to 15 elements apart, each at a
    /// multiple of 8 elements; an `unaligned` tensor starts one element past an aligned address.
    pub fn laid_out(mut self, memory: &str) -> Self {
        match memory {
            "strided" => self.pitch = self.row_len() / 8 * 8 + 16,
            "unaligned" => self.offset = 1,
            _ => {}
        }
        self
    }
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }
    pub fn rows(&self) -> usize {
        self.elems() / self.row_len().max(1)
    }
    /// Bytes from the first element to the end of the last row's gap.
    pub fn bytes(&self) -> usize {
        self.rows() * self.pitch * self.dtype.size()
    }
    /// Byte ranges of the gaps behind the rows; none if rows are adjacent.
    pub fn gaps(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (n, pitch, size) = (self.row_len(), self.pitch, self.dtype.size());
        let rows = if pitch > n { self.rows() } else { 0 };
        (0..rows).map(move |r| (r * pitch + n) * size..(r + 1) * pitch * size)
    }
    /// Elements `start ..` in row-major order as f64, as many as `out` takes. `bytes` is the tensor's memory.
    pub fn read(&self, bytes: &[u8], start: usize, out: &mut [f64]) {
        let mut done = 0;
        for at in self.runs(start, out.len()) {
            let count = at.len() / self.dtype.size();
            self.dtype.decode(&bytes[at], &mut out[done..done + count]);
            done += count;
        }
    }
    /// Rounds `values` to the dtype and writes them as elements `start ..` in row-major order.
    pub fn write(&self, values: &[f64], start: usize, bytes: &mut [u8]) {
        let mut done = 0;
        for at in self.runs(start, values.len()) {
            let count = at.len() / self.dtype.size();
            self.dtype.encode(&values[done..done + count], &mut bytes[at]);
            done += count;
        }
    }
    /// The byte ranges that hold `count` elements from `start` on: one if rows are adjacent, else one per row.
    fn runs(&self, start: usize, count: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (n, pitch, size) = (self.row_len(), self.pitch, self.dtype.size());
        let end = start + count;
        let mut next = start;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let stop = if pitch == n { end } else { end.min((next / n + 1) * n) };
            let first = next / n * pitch + next % n;
            let run = first * size..(first + stop - next) * size;
            next = stop;
            Some(run)
        })
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
    fn index(&self, name: &str) -> usize {
        self.specs.iter().position(|s| s.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// What the tensor is, held here or not.
    pub fn spec(&self, name: &str) -> &'a TensorSpec {
        &self.specs[self.index(name)]
    }

    /// Elements `start ..` of tensor `name`, as many as `out` takes.
    pub fn read(&self, name: &str, start: usize, out: &mut [f64]) {
        let i = self.index(name);
        let bytes = self.bytes[i].unwrap_or_else(|| panic!("tensor {name} is not held here"));
        self.specs[i].read(bytes, start, out);
    }

    /// `count` elements from `start`, in a vector of their own.
    pub fn take(&self, name: &str, start: usize, count: usize) -> Vec<f64> {
        let mut v = vec![0.0; count];
        self.read(name, start, &mut v);
        v
    }

    pub fn all(&self, name: &str) -> Vec<f64> {
        self.take(name, 0, self.spec(name).elems())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_rows_are_read_and_written_in_row_major_order() {
        let spec = TensorSpec::output("y", DType::F32, &[2, 3, 5]).laid_out("strided");
        assert_eq!((spec.rows(), spec.pitch, spec.bytes()), (6, 16, 6 * 16 * 4));
        let mut bytes = vec![0u8; spec.bytes()];
        let values: Vec<f64> = (1..=30).map(f64::from).collect();
        spec.write(&values[..7], 0, &mut bytes);
        spec.write(&values[7..], 7, &mut bytes);
        let mut back = vec![0.0; 11];
        spec.read(&bytes, 3, &mut back);
        assert_eq!(back, values[3..14]);
        assert!(spec.gaps().all(|g| bytes[g].iter().all(|b| *b == 0)));
        assert_eq!(spec.gaps().map(|g| g.len()).sum::<usize>(), 6 * 11 * 4);
    }
}
