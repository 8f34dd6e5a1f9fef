//! The operands of a product of matrices on the CPU, widened for the matrix kernels; and the way of its rows into an
//! output.

use super::{Elem, Jobs, Real, each_job, simd};
use kmark_device::cpu::matmul::{Mat, Scalar};

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
pub struct Side<'a, T> {
    pub data: &'a [T],
    pub count: usize,
    pub k: usize,
    /// Elements from one row in memory to the next.
    pub pitch: usize,
    /// Whether the rows in memory run across the vectors instead of along them.
    pub across: bool,
    pub scales: Option<Scales<'a>>,
}

impl<T: Elem> Side<'_, T>
where
    T::Acc: Scalar,
{
    /// The operand in accumulators, vectors as rows: its own memory if it is of that type, else a dense copy in `dense`.
    pub fn wide<'s>(&'s self, dense: &'s mut Vec<T::Acc>) -> Mat<'s, T::Acc> {
        let (rows, n) = if self.across { (self.k, self.count) } else { (self.count, self.k) };
        let mat = match T::same(self.data) {
            Some(same) if self.scales.is_none() => Mat::new(same, rows, n, self.pitch),
            _ => {
                dense.resize(rows * n, <T::Acc as Real>::ZERO);
                let jobs = Jobs::rows(rows, n);
                each_job(jobs.ranges().zip(jobs.split(dense, n)), |(at, dense)| {
                    simd(
                        #[inline(always)]
                        || {
                            for (row, dense) in at.zip(dense.chunks_mut(n)) {
                                T::widen(&self.data[row * self.pitch..][..n], dense);
                                self.scale_row(row, dense);
                            }
                        },
                    )
                });
                Mat::new(dense, rows, n, n)
            }
        };
        if self.across { mat.transposed() } else { mat }
    }

    /// Multiplies a row in memory with the scales of its elements.
    #[inline(always)]
    fn scale_row(&self, row: usize, wide: &mut [T::Acc]) {
        let Some(scales) = self.scales else { return };
        let factor = |s: f32| T::Acc::from_f64(s as f64);
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

/// Rounds rows of `n` into `out`, whose rows lie `pitch` apart, after `finish` has had each.
pub fn round_rows<A: Real, O: Elem>(
    rows: &mut [A],
    n: usize,
    out: &mut [O],
    pitch: usize,
    finish: impl Fn(&mut [A]) + Sync + Send,
) {
    let jobs = Jobs::rows(rows.len() / n, n);
    each_job(jobs.split(rows, n).zip(jobs.split(out, pitch)), |(rows, out)| {
        simd(
            #[inline(always)]
            || {
                let mut wide = vec![O::Acc::ZERO; n];
                for (row, out) in rows.chunks_mut(n).zip(out.chunks_mut(pitch)) {
                    finish(row);
                    wide.iter_mut().zip(row).for_each(|(w, v)| *w = O::Acc::from_f64(v.to_f64()));
                    O::narrow(&wide, &mut out[..n]);
                }
            },
        )
    });
}
