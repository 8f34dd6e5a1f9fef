//! Memory traffic on the CPU.

use super::CHUNK;
use crate::cpu::*;
use kmark_device::cpu::cache::{stream_copy, stream_fence};

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (n, kind) = (c.axis("n"), c.attr("kind").to_string());
    if kind == "read" {
        let (x, sums) = (b.get("x"), b.get("sums"));
        return by_acc!(c.dtype, A => Box::new(move || read::<A>(n, &x, &sums)));
    }
    // What is read by kind: x; s; a and b and s.
    let inputs: Vec<_> = b.0.iter().filter(|b| b.spec().role.is_input()).cloned().collect();
    let (y, size) = (b.get("y"), c.dtype.size());
    by_acc!(c.dtype, A => Box::new(move || {
        let held: Vec<_> = inputs.iter().map(|b| b.read::<u8>()).collect();
        let mut bytes = y.write::<u8>();
        let (jobs, stream) = (Jobs::rows(n.div_ceil(PIECE), PIECE), streams(n * size));
        each_job(jobs.ranges().zip(jobs.split(&mut bytes, PIECE * size)), |(at, part)| {
            let first = at.start * PIECE;
            match (kind.as_str(), &held[..]) {
                ("copy", [x]) => copy(&x[first * size..], part, PIECE * size, stream),
                ("write", [s]) => write(s, part, PIECE * size, stream),
                (_, [a, b, s]) => {
                    let input = |which: usize, bytes, row| In::<A>::new(inputs[which].spec(), bytes, row);
                    let (a, b, s) = (input(0, a, first), input(1, b, first), input(2, s, 0).at(0, 0));
                    simd(#[inline(always)] || triad(a, b, s, Out::new(y.spec(), part)))
                }
                _ => unreachable!("the op has these kinds"),
            }
        });
    }))
}

fn copy(x: &[u8], y: &mut [u8], piece: usize, stream: bool) {
    for (i, y) in y.chunks_mut(piece).enumerate() {
        let (now, later) = x[i * piece..].split_at(y.len());
        if stream { stream_copy(y, now, &later[..piece.min(later.len())]) } else { y.copy_from_slice(now) }
    }
    stream_fence();
}

fn write(s: &[u8], y: &mut [u8], piece: usize, stream: bool) {
    let filled = s.repeat(piece.min(y.len()) / s.len());
    for y in y.chunks_mut(piece) {
        let now = &filled[..y.len()];
        if stream { stream_copy(y, now, &[]) } else { y.copy_from_slice(now) }
    }
    stream_fence();
}

#[inline(always)]
fn triad<A: Real>(mut a: In<A>, mut b: In<A>, s: A, mut y: Out<A>) {
    for at in (0..y.rows()).step_by(PIECE) {
        let len = PIECE.min(y.rows() - at);
        let ((a, next), (b, _)) = (a.piece(at, 0, len), b.piece(at, 0, len));
        y.store_piece(at, 0, len, next, [a, b], |[a, b]| a + s * b);
    }
}

fn read<A: Real>(n: usize, x: &Buffer, sums: &Buffer) {
    let (bytes, mut sums) = (x.read::<u8>(), sums.write::<A>());
    let jobs = Jobs::rows(n.div_ceil(CHUNK), CHUNK);
    each_job(jobs.ranges().zip(jobs.split(&mut sums, 1)), |(at, sums)| {
        let mut x = In::<A>::new(x.spec(), &bytes, 0);
        simd(
            #[inline(always)]
            || {
                for (chunk, total) in at.zip(sums) {
                    *total = A::ZERO;
                    for at in (chunk * CHUNK..n.min((chunk + 1) * CHUNK)).step_by(PIECE) {
                        *total += sum(x.piece(at, 0, PIECE.min(n - at)).0, |v| v);
                    }
                }
            },
        )
    });
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
                for imp in super::super::ENTRY.cpu {
                    let v = verify(&Cpu::new("test"), super::super::ENTRY.op, *imp, &case).unwrap();
                    assert!(v.ok(), "{} {}: {:?}", case.id, imp.name(), v.problems);
                }
            }
        }
    }
}
