//! Quantisation to 8-bit floats on the CPU.

use super::{Blocks, largest, plain, to};
use crate::cpu::{CpuImpl, Elem, Jobs, Real, Row, by_f8, by_short_float, each_job, naive, simd};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("vectorised rows, all cores", include_str!("cpu.rs"), bind),
];

/// What a launch needs to find its way.
struct Plan {
    n: usize,
    pitch: usize,
    blocks: Blocks,
    clamp: f32,
    largest: f32,
    pow2: bool,
}

impl Plan {
    fn new(c: &Case, b: &Buffers) -> Plan {
        Plan {
            n: c.axis("n"),
            pitch: b.get("x").spec().pitch,
            blocks: Blocks::new(c),
            clamp: c.number("clamp") as f32,
            largest: largest(to(c)) as f32,
            pow2: c.flag("pow2"),
        }
    }

    fn scale(&self, amax: f32) -> f32 {
        // The quotient is a power of two exactly when it should be: 448 and 57344 are 7 times one.
        let scale = amax.max(self.clamp) / self.largest;
        let below = scale.to_bits() & 0xff80_0000;
        let up = if scale.to_bits() == below { below } else { below + 0x80_0000 };
        if self.pow2 { f32::from_bits(up) } else { scale }
    }
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (plan, to) = (Plan::new(c, b), to(c));
    let (x, q, scale) = (b.get("x"), b.get("q"), b.get("scale"));
    by_short_float!(c.dtype, T => Box::new(move || {
        let (x, mut scale) = (x.read::<T>(), scale.write::<f32>());
        by_f8!(to, Q => parallel::<T, Q>(&plan, &x, &mut q.write(), &mut scale))
    }))
}

fn parallel<T: Elem<Acc = f32>, Q: Elem<Acc = f32>>(plan: &Plan, x: &[T], q: &mut [Q], scale: &mut [f32]) {
    let (n, blocks) = (plan.n, &plan.blocks);
    let jobs = Jobs::rows(blocks.down, blocks.rows * n);
    let parts = jobs.ranges().zip(jobs.split(q, blocks.rows * n)).zip(jobs.split(scale, blocks.across));
    each_job(parts, |((downs, q), scale)| {
        let first = downs.start * blocks.rows;
        simd(
            #[inline(always)]
            || {
                let (mut row, mut amax) = (Row::<T>::new(n, 0), vec![0.0; blocks.across]);
                let bands = q.chunks_mut(blocks.rows * n).zip(scale.chunks_mut(blocks.across));
                for (i, (q, scale)) in bands.enumerate() {
                    let x = &x[(first + i * blocks.rows) * plan.pitch..];
                    band(plan, x, q, scale, &mut row, &mut amax);
                }
            },
        )
    });
}

/// The rows that share scales; `x` starts at the first of them. They are read twice: to find the scales, then from the
/// cache.
#[inline(always)]
fn band<T: Elem<Acc = f32>, Q: Elem<Acc = f32>>(
    plan: &Plan,
    x: &[T],
    q: &mut [Q],
    scale: &mut [f32],
    row: &mut Row<T>,
    amax: &mut [f32],
) {
    let (n, columns) = (plan.n, plan.blocks.columns);
    amax.fill(0.0);
    for x in x.chunks(plan.pitch).take(q.len() / n) {
        let wide = row.load(&x[..n]);
        wide.chunks(columns).zip(&mut *amax).for_each(|(part, amax)| *amax = largest_magnitude(part).larger(*amax));
    }
    scale.iter_mut().zip(amax).for_each(|(s, amax)| *s = plan.scale(*amax));
    for (x, q) in x.chunks(plan.pitch).zip(q.chunks_mut(n)) {
        let wide = row.load(&x[..n]);
        for ((part, q), s) in wide.chunks(columns).zip(q.chunks_mut(columns)).zip(&*scale) {
            quantise(part, q, 1.0 / s, plan.largest);
        }
    }
}

#[inline(always)]
fn largest_magnitude(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 64];
    let (chunks, rest) = x.as_chunks::<64>();
    for x in chunks {
        lanes = std::array::from_fn(|i| x[i].abs().larger(lanes[i]));
    }
    lanes.iter().chain(rest).fold(0.0, |m, v| v.abs().larger(m))
}

#[inline(always)]
fn quantise<Q: Elem<Acc = f32>>(x: &[f32], q: &mut [Q], inverse: f32, largest: f32) {
    let mut scaled = [0.0; 128];
    for (x, q) in x.chunks(128).zip(q.chunks_mut(128)) {
        let scaled = &mut scaled[..x.len()];
        scaled.iter_mut().zip(x).for_each(|(s, x)| *s = (x * inverse).clamp(-largest, largest));
        Q::narrow(scaled, q);
    }
}
