//! Memory traffic on the CPU.

use super::{CHUNK, plain};
use crate::cpu::{CpuImpl, Elem, Jobs, PIECE, Real, Row, by_float, each_job, naive, put, simd, sum};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("streaming stores, all cores", include_str!("cpu.rs"), bind),
];

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let n = c.axis("n");
    let kind = c.attr("kind").to_string();
    if kind == "read" {
        let (x, sums) = (b.get("x"), b.get("sums"));
        return by_float!(c.dtype, T => Box::new(move || {
            let (x, mut sums) = (x.read::<T>(), sums.write::<<T as Elem>::Acc>());
            let jobs = Jobs::rows(n.div_ceil(CHUNK), CHUNK);
            each_job(jobs.ranges().zip(jobs.split(&mut sums, 1)), |(at, sums)| {
                simd(#[inline(always)] || read_block::<T>(&x[at.start * CHUNK..], sums))
            });
        }));
    }
    // What the block reads by kind: x; s; a and b and s.
    let inputs: Vec<_> = b.0.iter().filter(|b| b.spec().role.is_input()).cloned().collect();
    let y = b.get("y");
    by_float!(c.dtype, T => Box::new(move || {
        let inputs: Vec<_> = inputs.iter().map(|b| b.read::<T>()).collect();
        let mut y = y.write::<T>();
        let jobs = Jobs::rows(n.div_ceil(PIECE), PIECE);
        each_job(jobs.ranges().zip(jobs.split(&mut y, PIECE)), |(at, y)| {
            let start = at.start * PIECE;
            match (kind.as_str(), &inputs[..]) {
                ("copy", [x]) => copy_block::<T>(&x[start..], y, n),
                ("write", [s]) => write_block::<T>(s[0], y, n),
                (_, [a, b, s]) => simd(#[inline(always)] || triad_block::<T>(&a[start..], &b[start..], s[0], y, n)),
                _ => unreachable!("the op has these kinds"),
            }
        });
    }))
}

/// Piece `i` of `from` for an output piece of `len`, and the piece after it.
#[inline(always)]
fn now_and_next<T>(from: &[T], i: usize, len: usize) -> (&[T], &[T]) {
    let (now, later) = from[i * PIECE..].split_at(len);
    (now, &later[..PIECE.min(later.len())])
}

fn copy_block<T: Elem>(x: &[T], y: &mut [T], n: usize) {
    put(y, n, |i, len| now_and_next(x, i, len));
}

fn write_block<T: Elem>(s: T, y: &mut [T], n: usize) {
    let piece = vec![s; PIECE.min(y.len())];
    put(y, n, |_, len| (&piece[..len], &[]));
}

#[inline(always)]
fn triad_block<T: Elem>(a: &[T], b: &[T], s: T, y: &mut [T], n: usize) {
    let len = PIECE.min(y.len());
    let (mut a_row, mut b_row, mut output) = (Row::<T>::new(len, 0), Row::<T>::new(len, 0), Row::<T>::new(len, n));
    let s = s.up();
    for (i, y) in y.chunks_mut(PIECE).enumerate() {
        let (a, next) = now_and_next(a, i, y.len());
        let (b, _) = now_and_next(b, i, y.len());
        let (a, b) = (a_row.load(a), b_row.load(b));
        output.store(y, next, [a, b], |[a, b]| a + s * b);
    }
}

/// Some sums; `x` starts at the first of their chunks and goes on to the end.
#[inline(always)]
fn read_block<T: Elem>(x: &[T], sums: &mut [T::Acc]) {
    let mut row = Row::<T>::new(PIECE.min(x.len()), 0);
    for (x, total) in x.chunks(CHUNK).zip(sums) {
        *total = T::Acc::ZERO;
        for piece in x.chunks(PIECE) {
            *total += sum(row.load(piece), |v| v);
        }
    }
}

#[cfg(test)]
mod tests {
    use kmark_core::case::DEFAULT_SEED;
    use kmark_core::dtype::DType;
    use kmark_device::cpu::Cpu;
    use kmark_device::workload::verify;

    /// Several chunks, several jobs and streamed outputs, which random cases are too small for.
    #[test]
    fn large_tensors_are_right() {
        for kind in ["copy", "read", "write", "triad"] {
            for dtype in [DType::F32, DType::Bf16] {
                let axes = [("n".to_string(), 1_500_001)].into_iter().collect();
                let attrs = [("kind".to_string(), kind.to_string())].into_iter().collect();
                let case = super::super::ENTRY.op.case(dtype, &axes, &attrs, DEFAULT_SEED).unwrap();
                for imp in super::IMPLS {
                    let v = verify(&Cpu::new("test"), super::super::ENTRY.op, *imp, &case).unwrap();
                    assert!(v.ok(), "{} {}: {:?}", case.id, imp.name(), v.problems);
                }
            }
        }
    }
}
