//! Quantisation in plain loops, right and wrong.

use super::{Blocks, largest, scale, to, up_to_pow2};
use crate::contract::*;

/// What kernels get wrong, each as it is right.
pub struct How {
    /// Largest magnitude of each of the blocks beside each other.
    amax: fn(&Blocks, &[f64]) -> Vec<f64>,
    scale: fn(&Case, f64) -> f64,
    /// What is stored of a scale and its block's largest magnitude.
    stored: fn(f64, f64) -> f64,
    round: fn(DType, f64) -> f64,
}

pub const RIGHT: How = How { amax: Blocks::amax, scale, stored: |scale, _| scale, round: DType::round };

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (n, blocks, to, max) = (c.axis("n"), Blocks::new(c), to(c), largest(to(c)));
        let (mut q, mut stored) = (t.get("x"), Vec::new());
        for band in q.chunks_mut(blocks.rows * n) {
            let amax = (self.amax)(&blocks, band);
            let scales: Vec<f64> = amax.iter().map(|amax| (self.scale)(c, *amax)).collect();
            for (i, v) in band.iter_mut().enumerate() {
                *v = (self.round)(to, (*v / scales[i % n / blocks.columns]).clamp(-max, max));
            }
            stored.extend(scales.iter().zip(amax).map(|(scale, amax)| (self.stored)(*scale, amax)));
        }
        t.put("q", q);
        t.put("scale", stored);
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("amax-of-the-wrong-block", "1x128 takes the maximum of the row, 128x128 that of the block's first row")
        .plain(&How {
            amax: |blocks: &Blocks, band: &[f64]| match blocks.rows {
                1 => vec![blocks.amax(band).into_iter().fold(0.0, f64::max); blocks.across],
                _ => blocks.amax(&band[..blocks.n]),
            },
            ..RIGHT
        })
        // One row in sixteen is large. Two maxima often have the same power of two above them.
        .on(|c| match c.attr("granularity") {
            "1x128" => c.axis("n") > 128 && c.axis("m") >= 4 && !c.flag("pow2"),
            "128x128" => c.axis("m") > 13,
            _ => false,
        }),
    Mutant::new("tail-block-unscaled", "a last block that is not whole keeps the scale of the one before it")
        .plain(&How {
            amax: |blocks: &Blocks, band: &[f64]| {
                let mut amax = blocks.amax(band);
                amax[blocks.across - 1] = amax[blocks.across - 2];
                amax
            },
            ..RIGHT
        })
        .on(|c| {
            let (n, single) = (c.axis("n"), c.axis("n") % 128 == 1);
            let shows = match c.attr("granularity") {
                // One element in four rows is never always in the reach of the largest of 128.
                "1x128" => c.axis("m") >= 4 && (single || !c.flag("pow2")),
                "128x128" => single && !c.flag("pow2"),
                _ => false,
            };
            n > 128 && !n.is_multiple_of(128) && shows
        }),
    Mutant::new("truncates", "rounds towards zero")
        .plain(&How { round: |to: DType, v: f64| (v / to.spacing(v)).trunc() * to.spacing(v), ..RIGHT })
        .on(|c| c.axis("n") >= 32),
    Mutant::new("one-fraction-bit-short", "e4m3 with the two fraction bits of e5m2, e5m2 with one")
        .plain(&How {
            round: |to: DType, v: f64| {
                let (spacing, max) = (2.0 * to.spacing(v), largest(to));
                ((v / spacing).round_ties_even() * spacing).clamp(-max, max)
            },
            ..RIGHT
        })
        .on(|c| c.axis("n") >= 32),
    Mutant::new("scale-inverted", "the factor that x was multiplied with is stored, not the one that undoes it")
        .plain(&How { stored: |scale, _| 1.0 / scale, ..RIGHT }),
    Mutant::new("clamp-missing", "a block of zeros has scale 0 and divides by it")
        .plain(&How { scale: |c, amax| if amax == 0.0 { 0.0 } else { scale(c, amax) }, ..RIGHT }),
    Mutant::new("scale-before-the-clamp", "q is right, but the scale of a block of zeros is stored as 0")
        .plain(&How { stored: |scale, amax| if amax == 0.0 { 0.0 } else { scale }, ..RIGHT }),
    Mutant::new("pow2-rounded-down", "scales are rounded down to powers of two, so that large values saturate")
        .plain(&How {
            scale: |c: &Case, amax: f64| {
                let exact = amax.max(c.number("clamp")) / largest(to(c));
                if up_to_pow2(exact) == exact { exact } else { up_to_pow2(exact) / 2.0 }
            },
            ..RIGHT
        })
        // In four rows the largest value is not each time 7 times a power of two.
        .on(|c| c.flag("pow2") && c.axis("m") >= 4 && c.attr("granularity") != "128x128"),
];
