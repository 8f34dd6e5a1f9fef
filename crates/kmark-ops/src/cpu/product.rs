//! The operands of a product of matrices on the CPU, widened for the matrix kernels; and the way of its rows into an
//! output.

use super::{Jobs, Real, each_job, narrow, simd, widen};
use kmark_core::dtype::DType;
use kmark_device::buffer::Buffer;
use kmark_device::cpu::matmul::Mat;

/// Elements of the inner dimension that share a block's scale, and columns of the second operand that do.
const BLOCK: usize = 128;

/// Scales of an operand: `width` for each `span` of its vectors, one per block of the inner dimension or one in all.
#[derive(Clone, Copy)]
pub struct Scales<'a> {
    pub values: &'a [f32],
    pub width: usize,
    pub span: usize,
}

impl Scales<'_> {
    #[inline(always)]
    fn of(&self, vector: usize) -> &[f32] {
        &self.values[vector / self.span * self.width..][..self.width]
    }
    #[inline(always)]
    fn at(&self, vector: usize, x: usize) -> f32 {
        self.of(vector)[(x / BLOCK).min(self.width - 1)]
    }
}

/// One operand: `count` vectors of length `k`, rows of the first operand or columns of the second.
pub struct Side<'a> {
    pub bytes: &'a [u8],
    pub dtype: DType,
    pub count: usize,
    pub k: usize,
    /// Elements from one row in memory to the next.
    pub pitch: usize,
    /// Whether the rows in memory run across the vectors instead of along them.
    pub across: bool,
    pub scales: Option<Scales<'a>>,
}

impl<'a> Side<'a> {
    /// Without scales.
    pub fn new(buffer: &Buffer, bytes: &'a [u8], count: usize, k: usize, across: bool) -> Side<'a> {
        Side { bytes, dtype: buffer.spec().dtype, count, k, pitch: buffer.spec().pitch, across, scales: None }
    }

    /// The operand in accumulators, vectors as rows: its own memory if it is of that type, else a dense copy in `dense`.
    pub fn wide<'s, A: Real>(&'s self, dense: &'s mut Vec<A>) -> Mat<'s, A> {
        let (rows, n) = if self.across { (self.k, self.count) } else { (self.count, self.k) };
        let mat = if self.dtype == A::DTYPE && self.scales.is_none() {
            Mat::new(bytemuck::cast_slice(self.bytes), rows, n, self.pitch)
        } else {
            dense.resize(rows * n, A::ZERO);
            let (jobs, size) = (Jobs::rows(rows, n), self.dtype.size());
            each_job(jobs.ranges().zip(jobs.split(dense, n)), |(at, dense)| {
                simd(
                    #[inline(always)]
                    || {
                        for (row, dense) in at.zip(dense.chunks_mut(n)) {
                            widen(self.dtype, &self.bytes[row * self.pitch * size..][..n * size], dense);
                            self.scale_row(row, dense);
                        }
                    },
                )
            });
            Mat::new(dense, rows, n, n)
        };
        if self.across { mat.transposed() } else { mat }
    }

    /// Multiplies a row in memory with the scales of its elements.
    #[inline(always)]
    fn scale_row<A: Real>(&self, row: usize, wide: &mut [A]) {
        let Some(scales) = self.scales else { return };
        let factor = |s: f32| A::from_f64(s as f64);
        if self.across {
            wide.iter_mut().enumerate().for_each(|(v, w)| *w = *w * factor(scales.at(v, row)));
            return;
        }
        let block = if scales.width == 1 { self.k } else { BLOCK };
        for (part, s) in wide.chunks_mut(block).zip(scales.of(row)) {
            let s = factor(*s);
            part.iter_mut().for_each(|w| *w = *w * s);
        }
    }
}

/// Rounds rows of `n` into `out` of `dtype`, whose rows lie `pitch` apart, after `finish` has had each.
pub fn round_rows<A: Real>(
    rows: &mut [A],
    n: usize,
    (dtype, out, pitch): (DType, &mut [u8], usize),
    finish: impl Fn(&mut [A]) + Sync,
) {
    let (jobs, size) = (Jobs::rows(rows.len() / n, n), dtype.size());
    each_job(jobs.split(rows, n).zip(jobs.split(out, pitch * size)), |(rows, out)| {
        for (row, out) in rows.chunks_mut(n).zip(out.chunks_mut(pitch * size)) {
            finish(row);
            narrow(dtype, row, &mut out[..n * size]);
        }
    });
}
