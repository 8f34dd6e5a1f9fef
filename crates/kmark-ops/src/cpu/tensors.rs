//! Tensors by rows: widened on the way in, rounded on the way out. Outputs too large for the cache go past it.

use super::ahead::Ahead;
use super::elem::{Real, narrow, narrow_here, widen_here};
use super::room::Room;
use super::rows::{exp, exp_sum, map, max, powers_sum};
use bytemuck::{cast_slice, cast_slice_mut};
use kmark_core::dtype::DType;
use kmark_core::tensor::{Role, TensorSpec};
use kmark_device::cpu::cache::{prefetch, stream_copy, stream_fence};

/// Elements that are worked on at a time where a row need not be held: their accumulators fit the first-level cache.
pub const PIECE: usize = 4096;
/// Elements that are rounded and streamed at a time: enough to make up for the call.
const CHUNK: usize = 256;
/// Longer rows are left to the processor's own prefetching.
const AHEAD_BYTES: usize = 64 << 10;
/// Outputs beyond this are streamed: they would not survive in a core's own cache anyway.
const STREAM_BYTES: usize = 2 << 20;

/// Whether an output of so many bytes goes past the cache.
pub fn streams(bytes: usize) -> bool {
    bytes > STREAM_BYTES
}

/// Elements from one row of a tensor to the next; a vector has one per row.
pub fn per_row(spec: &TensorSpec) -> usize {
    if spec.shape.len() == 1 { 1 } else { spec.pitch }
}

/// Elements of a row.
fn width(spec: &TensorSpec) -> usize {
    if spec.shape.len() == 1 { 1 } else { spec.row_len() }
}

/// A tensor from the first row of a job on, to its end.
#[derive(Clone)]
pub struct In<'a, A> {
    bytes: &'a [u8],
    dtype: DType,
    per_row: usize,
    /// Elements of a row.
    pub n: usize,
    wide: Room<A>,
}

impl<'a, A: Real> In<'a, A> {
    pub fn new(spec: &TensorSpec, bytes: &'a [u8], first_row: usize) -> In<'a, A> {
        let (per_row, n) = (per_row(spec), width(spec));
        In {
            bytes: &bytes[first_row * per_row * spec.dtype.size()..],
            dtype: spec.dtype,
            per_row,
            n,
            wide: Room::new(),
        }
    }

    #[inline(always)]
    fn span(&self, start: usize, len: usize) -> &'a [u8] {
        let size = self.dtype.size();
        &self.bytes[start * size..(start + len) * size]
    }

    /// `len` elements from column `at` of a row on, and those behind them.
    #[inline(always)]
    pub fn piece(&mut self, row: usize, at: usize, len: usize) -> (&[A], Ahead<'a>) {
        let start = row * self.per_row + at;
        let next = self.ahead(start + len, len);
        (self.wide(start, len), next)
    }

    /// A row, and the one after it.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> (&[A], Ahead<'a>) {
        let next = self.ahead((row + 1) * self.per_row, self.n);
        (self.wide(row * self.per_row, self.n), next)
    }

    /// One element.
    #[inline(always)]
    pub fn at(&mut self, row: usize, column: usize) -> A {
        self.wide(row * self.per_row + column, 1)[0]
    }

    /// Elements as accumulators: their own memory if they are of that type, else a widened copy.
    #[inline(always)]
    fn wide(&mut self, start: usize, len: usize) -> &[A] {
        let bytes = self.span(start, len);
        if self.dtype == A::DTYPE {
            return cast_slice(bytes);
        }
        let wide = self.wide.get(len);
        widen_here(self.dtype, bytes, wide);
        wide
    }

    /// Nothing if it is so long that it would push out what is worked on.
    #[inline(always)]
    fn ahead(&self, start: usize, len: usize) -> Ahead<'a> {
        let (size, end) = (self.dtype.size(), self.bytes.len());
        let bytes = &self.bytes[(start * size).min(end)..((start + len) * size).min(end)];
        if bytes.len() > AHEAD_BYTES { Ahead::NOTHING } else { Ahead { bytes, size } }
    }

    /// Maximum of a row and the sum of exp(x - max) in one pass over memory: in pieces, the sum so far scaled down
    /// whenever a piece raises the maximum.
    #[inline(always)]
    pub fn max_exp_sum(&mut self, row: usize) -> (A, A) {
        let (mut highest, mut total) = (A::LOWEST, A::ZERO);
        for at in (0..self.n).step_by(PIECE) {
            let (wide, _) = self.piece(row, at, PIECE.min(self.n - at));
            let raised = highest.larger(max(wide));
            total = total * exp(highest - raised) + powers_sum(wide, raised);
            highest = raised;
        }
        (highest, total)
    }

    /// Writes exp(x - max) for a row and returns the sum. What must be widened is so where the powers will be.
    #[inline(always)]
    pub fn exp_sum(&self, row: usize, powers: &mut [A]) -> A {
        let (bytes, next) = (self.span(row * self.per_row, self.n), self.ahead((row + 1) * self.per_row, self.n));
        if self.dtype == A::DTYPE {
            return exp_sum::<A, false>(cast_slice(bytes), next, powers);
        }
        widen_here(self.dtype, bytes, powers);
        exp_sum::<A, true>(&[], next, powers)
    }
}

/// The rows of a job of an output.
pub struct Out<'a, A> {
    bytes: &'a mut [u8],
    dtype: DType,
    per_row: usize,
    n: usize,
    stream: bool,
    wide: Room<A>,
    rounded: Vec<u64>,
}

impl<'a, A: Real> Out<'a, A> {
    /// What is computed in place was just read and lies in the cache: nothing is won by streaming past it.
    pub fn new(spec: &TensorSpec, bytes: &'a mut [u8]) -> Out<'a, A> {
        let (per_row, n) = (per_row(spec), width(spec));
        let stream = spec.role == Role::Out && streams(spec.elems() * spec.dtype.size());
        Out { bytes, dtype: spec.dtype, per_row, n, stream, wide: Room::new(), rounded: Vec::new() }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn rows(&self) -> usize {
        (self.bytes.len() / self.dtype.size()).div_ceil(self.per_row)
    }

    /// Stores `f` of the inputs for a whole row. `next` is what will be read after it.
    #[inline(always)]
    pub fn store<const K: usize>(&mut self, row: usize, next: Ahead, inputs: [&[A]; K], f: impl Fn([A; K]) -> A) {
        self.store_piece(row, 0, self.n, next, inputs, f);
    }

    /// The same for `len` elements from column `at` on.
    #[inline(always)]
    pub fn store_piece<const K: usize>(
        &mut self,
        row: usize,
        at: usize,
        len: usize,
        next: Ahead,
        inputs: [&[A]; K],
        f: impl Fn([A; K]) -> A,
    ) {
        let (size, start) = (self.dtype.size(), row * self.per_row + at);
        let dst = &mut self.bytes[start * size..(start + len) * size];
        let direct = self.dtype == A::DTYPE && !self.stream;
        let chunk = if direct { len } else { (if self.stream { CHUNK } else { PIECE }).min(len) };
        let wide = self.wide.get(if direct { 0 } else { chunk });
        // Streaming needs whole cache lines: what lies before the first is stored by itself.
        let head = if self.stream { dst.as_ptr().align_offset(64) / size } else { 0 };
        let mut done = 0;
        while done < len {
            let now = if done == 0 && head > 0 { head } else { chunk }.min(len - done);
            let dst = &mut dst[done * size..(done + now) * size];
            let inputs = inputs.map(|s| &s[done..done + now]);
            map(if direct { cast_slice_mut(dst) } else { &mut wide[..now] }, inputs, &f);
            if self.stream {
                self.rounded.resize(CHUNK, 0);
                stream(self.dtype, &wide[..now], dst, &mut self.rounded, next.part(done, now));
            } else if !direct {
                narrow_here(self.dtype, &wide[..now], dst);
            }
            done += now;
        }
    }

    /// A row that is rounded already.
    pub fn copy(&mut self, row: usize, next: Ahead, rounded: &[u8]) {
        let start = row * self.per_row * self.dtype.size();
        let dst = &mut self.bytes[start..start + rounded.len()];
        if self.stream { stream_copy(dst, rounded, next.bytes) } else { dst.copy_from_slice(rounded) }
    }

    /// One element.
    #[inline(always)]
    pub fn put(&mut self, row: usize, column: usize, value: A) {
        let (size, start) = (self.dtype.size(), row * self.per_row + column);
        narrow_here(self.dtype, &[value], &mut self.bytes[start * size..(start + 1) * size]);
    }

    /// `len` elements from column `at` of a row on as they are now, widened.
    #[inline(always)]
    pub fn load(&mut self, row: usize, at: usize, len: usize) -> &[A] {
        let (size, start) = (self.dtype.size(), row * self.per_row + at);
        let wide = self.wide.get(len);
        widen_here(self.dtype, &self.bytes[start * size..(start + len) * size], wide);
        wide
    }
}

/// Rounds accumulators and stores them past the cache; meanwhile `next` is asked for.
fn stream<A: Real>(dtype: DType, src: &[A], dst: &mut [u8], room: &mut [u64], next: &[u8]) {
    prefetch(next);
    if dtype == A::DTYPE {
        return stream_copy(dst, cast_slice(src), &[]);
    }
    let rounded = &mut cast_slice_mut(room)[..dst.len()];
    narrow(dtype, src, rounded);
    stream_copy(dst, rounded, &[]);
}

impl<A> Drop for Out<'_, A> {
    /// What was streamed must have arrived before the job counts as done.
    fn drop(&mut self) {
        if self.stream {
            stream_fence();
        }
    }
}
