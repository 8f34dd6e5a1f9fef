//! SwiGLU on the CPU.

use super::plain;
use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Row, ahead, by_float, each_job, naive, sigmoid, simd};
use kmark_core::case::Case;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// Where gate and up lie: `n` columns each, `pitch` from row to row, up beginning at column `up_at` of its tensor.
#[derive(Clone, Copy)]
struct Layout {
    n: usize,
    pitch: usize,
    up_at: usize,
    y_pitch: usize,
}

fn operands(c: &Case, b: &Buffers) -> (Buffer, Buffer, Buffer, Layout) {
    let (n, packed, y) = (c.axis("n"), c.attr("form") == "packed", b.get("y"));
    let (gate, up) = if packed { (b.get("x"), b.get("x")) } else { (b.get("gate"), b.get("up")) };
    let (pitch, y_pitch) = (gate.spec().pitch, y.spec().pitch);
    (gate, up, y, Layout { n, pitch, up_at: if packed { n } else { 0 }, y_pitch })
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (m, n) = (c.axis("m"), c.axis("n"));
    let (gate, up, y, at) = operands(c, b);
    by_float!(c.dtype, T => Box::new(move || {
        let (gate, up, mut y) = (gate.read::<T>(), up.read::<T>(), y.write::<T>());
        let jobs = Jobs::rows(m, n);
        each_job(jobs.ranges().zip(jobs.split(&mut y, at.y_pitch)), |(rows, y)| {
            let start = rows.start * at.pitch;
            simd(#[inline(always)] || block::<T>(&gate[start..], &up[start + at.up_at..], y, at, m * n))
        });
    }))
}

/// Some rows; `gate` and `up` start at the first of them and go on to the end of their tensors.
#[inline(always)]
fn block<T: Elem>(gate: &[T], up: &[T], y: &mut [T], at: Layout, elems: usize) {
    let len = at.n.min(PIECE);
    let (mut gate_row, mut up_row, mut output) = (Row::<T>::new(len, 0), Row::<T>::new(len, 0), Row::new(len, elems));
    for (row, y) in y.chunks_mut(at.y_pitch).enumerate() {
        for (piece, y) in y[..at.n].chunks_mut(PIECE).enumerate() {
            let start = row * at.pitch + piece * PIECE;
            let (now, later) = gate[start..].split_at(y.len());
            let (gate, up) = (gate_row.load(now), up_row.load(&up[start..start + y.len()]));
            output.store(
                y,
                ahead(later, PIECE),
                [gate, up],
                #[inline(always)]
                |[gate, up]| gate * sigmoid(gate) * up,
            );
        }
    }
}
