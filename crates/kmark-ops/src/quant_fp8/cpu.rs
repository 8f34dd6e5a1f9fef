//! Quantisation to 8-bit floats on the CPU.

use super::{Blocks, largest, to};
use crate::cpu::*;
use kmark_core::dtype::DType;

/// How a block's scale follows from its largest magnitude.
struct Format {
    to: DType,
    largest: f32,
    clamp: f32,
    pow2: bool,
}

impl Format {
    fn scale(&self, amax: f32) -> f32 {
        // The quotient is a power of two exactly when it should be: 448 and 57344 are 7 times one.
        let scale = amax.max(self.clamp) / self.largest;
        let below = scale.to_bits() & 0xff80_0000;
        let up = if scale.to_bits() == below { below } else { below + 0x80_0000 };
        if self.pow2 { f32::from_bits(up) } else { scale }
    }
}

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (largest, clamp) = (largest(to(c)) as f32, c.number("clamp") as f32);
    let (blocks, format) = (Blocks::new(c), Format { to: to(c), largest, clamp, pow2: c.flag("pow2") });
    let (x, q, scale) = (b.get("x"), b.get("q"), b.get("scale"));
    Box::new(move || {
        let (bytes, mut q, mut scale) = (x.read::<u8>(), q.write::<u8>(), scale.write::<f32>());
        let (jobs, per_band) = (Jobs::rows(blocks.down, blocks.rows * blocks.n), blocks.rows * blocks.n);
        let parts = jobs.ranges().zip(jobs.split(&mut q, per_band)).zip(jobs.split(&mut scale, blocks.across));
        each_job(parts, |((downs, q), scale)| {
            let mut x = In::new(x.spec(), &bytes, downs.start * blocks.rows);
            simd(
                #[inline(always)]
                || {
                    let mut amax = vec![0.0; blocks.across];
                    let bands = q.chunks_mut(per_band).zip(scale.chunks_mut(blocks.across));
                    for (i, (q, scale)) in bands.enumerate() {
                        band(&format, &blocks, &mut x, i * blocks.rows, q, scale, &mut amax);
                    }
                },
            )
        });
    })
}

/// The rows from `first` on that share scales. They are read twice: to find the scales, then from the cache.
#[inline(always)]
fn band(f: &Format, blocks: &Blocks, x: &mut In<f32>, first: usize, q: &mut [u8], scale: &mut [f32], amax: &mut [f32]) {
    let (n, columns) = (blocks.n, blocks.columns);
    amax.fill(0.0);
    for row in 0..q.len() / n {
        let (wide, _) = x.row(first + row);
        wide.chunks(columns).zip(&mut *amax).for_each(|(part, amax)| *amax = max_of(part, f32::abs).larger(*amax));
    }
    scale.iter_mut().zip(amax).for_each(|(s, amax)| *s = f.scale(*amax));
    for (row, q) in q.chunks_mut(n).enumerate() {
        let (wide, _) = x.row(first + row);
        for ((part, q), s) in wide.chunks(columns).zip(q.chunks_mut(columns)).zip(&*scale) {
            quantise(part, f.to, q, 1.0 / s, f.largest);
        }
    }
}

#[inline(always)]
fn quantise(x: &[f32], to: DType, q: &mut [u8], inverse: f32, largest: f32) {
    let mut scaled = [0.0; 128];
    for (x, q) in x.chunks(128).zip(q.chunks_mut(128)) {
        let scaled = &mut scaled[..x.len()];
        scaled.iter_mut().zip(x).for_each(|(s, x)| *s = (x * inverse).clamp(-largest, largest));
        narrow(to, scaled, q);
    }
}
