//! Backward of SwiGLU on the CPU.

use super::plain;
use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Real, Row, ahead, by_float, each_job, naive, sigmoid, simd};
use kmark_core::case::Case;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// Where gate and up lie, and their gradients likewise: `n` columns each, `pitch` from row to row, up beginning at
/// column `up_at` of its tensor.
#[derive(Clone, Copy)]
struct Layout {
    n: usize,
    pitch: usize,
    up_at: usize,
    dy_pitch: usize,
}

/// What some rows read; every slice starts at the first of them.
struct Inputs<'a, T> {
    gate: &'a [T],
    up: &'a [T],
    dy: &'a [T],
}

/// Where the gradients of some rows go.
enum Gradients<'a, T> {
    Packed(&'a mut [T]),
    Separate(&'a mut [T], &'a mut [T]),
}

impl<T> Gradients<'_, T> {
    /// dgate and dup of a row.
    #[inline(always)]
    fn row(&mut self, row: usize, at: Layout) -> (&mut [T], &mut [T]) {
        let (start, n) = (row * at.pitch, at.n);
        match self {
            Gradients::Packed(dx) => dx[start..start + 2 * n].split_at_mut(n),
            Gradients::Separate(dgate, dup) => (&mut dgate[start..start + n], &mut dup[start..start + n]),
        }
    }
}

/// Buffers of gate, up and dy, and those of the gradients: one if they are packed.
fn operands(c: &Case, b: &Buffers) -> ([Buffer; 3], Buffer, Option<Buffer>, Layout) {
    let (n, dy) = (c.axis("n"), b.get("dy"));
    let (dy_pitch, x) = (dy.spec().pitch, b.0[0].spec().pitch);
    if c.attr("form") == "packed" {
        let at = Layout { n, pitch: x, up_at: n, dy_pitch };
        return ([b.get("x"), b.get("x"), dy], b.get("dx"), None, at);
    }
    let at = Layout { n, pitch: x, up_at: 0, dy_pitch };
    ([b.get("gate"), b.get("up"), dy], b.get("dgate"), Some(b.get("dup")), at)
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let (inputs, first, second, at) = operands(c, b);
    by_float!(c.dtype, T => Box::new(move || {
        let [gate, up, dy] = inputs.each_ref().map(|b| b.read::<T>());
        let (mut first, mut second) = (first.write::<T>(), second.as_ref().map(|b| b.write::<T>()));
        let jobs = Jobs::rows(m, n);
        let parts: Vec<Gradients<T>> = match &mut second {
            None => jobs.split(&mut first, at.pitch).map(Gradients::Packed).collect(),
            Some(second) => {
                let both = jobs.split(&mut first, at.pitch).zip(jobs.split(second, at.pitch));
                both.map(|(dgate, dup)| Gradients::Separate(dgate, dup)).collect()
            }
        };
        each_job(jobs.ranges().zip(parts), |(rows, out)| {
            let start = rows.start * at.pitch;
            let dy = &dy[rows.start * at.dy_pitch..];
            let inputs = Inputs { gate: &gate[start..], up: &up[start + at.up_at..], dy };
            simd(#[inline(always)] || block::<T>(inputs, out, rows.len(), at, m * n))
        });
    }))
}

/// Some rows. The sigmoid of a piece is computed once for both gradients.
#[inline(always)]
fn block<T: Elem>(a: Inputs<T>, mut out: Gradients<T>, rows: usize, at: Layout, elems: usize) {
    let len = at.n.min(PIECE);
    let [mut gate_row, mut up_row, mut dy_row] = [(); 3].map(|_| Row::<T>::new(len, 0));
    let (mut output, mut sigmoids) = (Row::<T>::new(len, elems), vec![T::Acc::ZERO; len]);
    let one = T::Acc::ONE;
    for row in 0..rows {
        let (dgate, dup) = out.row(row, at);
        for (piece, (dgate, dup)) in dgate.chunks_mut(PIECE).zip(dup.chunks_mut(PIECE)).enumerate() {
            let (start, len) = (row * at.pitch + piece * PIECE, dup.len());
            let ((gate, gate_later), (up, up_later)) = (a.gate[start..].split_at(len), a.up[start..].split_at(len));
            let (gate, up) = (gate_row.load(gate), up_row.load(up));
            let dy = dy_row.load(&a.dy[row * at.dy_pitch + piece * PIECE..][..len]);
            let s = &mut sigmoids[..len];
            for (s, gate) in s.iter_mut().zip(gate) {
                *s = sigmoid(*gate);
            }
            output.store(dgate, ahead(gate_later, PIECE), [gate, up, dy, s], |[gate, up, dy, s]| {
                dy * up * s * (one + gate * (one - s))
            });
            output.store(dup, ahead(up_later, PIECE), [gate, dy, s], |[gate, dy, s]| dy * gate * s);
        }
    }
}
