//! Quantisation in plain loops, right and wrong.

use super::{Blocks, largest, scale, to, up_to_pow2};
use crate::contract::*;

pub fn right(c: &Case, t: &mut Tensors) {
    plain(c, t, &RIGHT)
}

/// What kernels get wrong, each as it is right.
struct How {
    /// Largest magnitude of each of the blocks beside each other.
    amax: fn(&Blocks, &[f64]) -> Vec<f64>,
    scale: fn(&Case, f64) -> f64,
    /// What is stored of a scale and its block's largest magnitude.
    stored: fn(f64, f64) -> f64,
    round: fn(DType, f64) -> f64,
}

const RIGHT: How = How { amax: Blocks::amax, scale, stored: |scale, _| scale, round: DType::round };

fn plain(c: &Case, t: &mut Tensors, how: &How) {
    let (n, blocks, to, max) = (c.axis("n"), Blocks::new(c), to(c), largest(to(c)));
    let (mut q, mut stored) = (t.get("x"), Vec::new());
    for band in q.chunks_mut(blocks.rows * n) {
        let amax = (how.amax)(&blocks, band);
        let scales: Vec<f64> = amax.iter().map(|amax| (how.scale)(c, *amax)).collect();
        for (i, v) in band.iter_mut().enumerate() {
            *v = (how.round)(to, (*v / scales[i % n / blocks.columns]).clamp(-max, max));
        }
        stored.extend(scales.iter().zip(amax).map(|(scale, amax)| (how.stored)(*scale, amax)));
    }
    t.put("q", q);
    t.put("scale", stored);
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::plain(
        "amax-of-the-wrong-block",
        "1x128 takes the maximum of the row, 128x128 that of the block's first row",
        |c, t| {
            let amax = |blocks: &Blocks, band: &[f64]| match blocks.rows {
                1 => vec![blocks.amax(band).into_iter().fold(0.0, f64::max); blocks.across],
                _ => blocks.amax(&band[..blocks.n]),
            };
            plain(c, t, &How { amax, ..RIGHT })
        },
    )
    // One row in sixteen is large. Two maxima often have the same power of two above them.
    .on(|c| match c.attr("granularity") {
        "1x128" => c.axis("n") > 128 && c.axis("m") >= 4 && !c.flag("pow2"),
        "128x128" => c.axis("m") > 13,
        _ => false,
    }),
    Mutant::plain(
        "tail-block-unscaled",
        "a last block that is not whole keeps the scale of the one before it",
        |c, t| {
            let amax = |blocks: &Blocks, band: &[f64]| {
                let mut amax = blocks.amax(band);
                amax[blocks.across - 1] = amax[blocks.across - 2];
                amax
            };
            plain(c, t, &How { amax, ..RIGHT })
        },
    )
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
    Mutant::plain("truncates", "rounds towards zero", |c, t| {
        let round = |to: DType, v: f64| (v / to.spacing(v)).trunc() * to.spacing(v);
        plain(c, t, &How { round, ..RIGHT })
    })
    .on(|c| c.axis("n") >= 32),
    Mutant::plain("one-fraction-bit-short", "e4m3 with the two fraction bits of e5m2, e5m2 with one", |c, t| {
        let round = |to: DType, v: f64| {
            let (spacing, max) = (2.0 * to.spacing(v), largest(to));
            ((v / spacing).round_ties_even() * spacing).clamp(-max, max)
        };
        plain(c, t, &How { round, ..RIGHT })
    })
    .on(|c| c.axis("n") >= 32),
    Mutant::plain(
        "scale-inverted",
        "the factor that x was multiplied with is stored, not the one that undoes it",
        |c, t| plain(c, t, &How { stored: |scale, _| 1.0 / scale, ..RIGHT }),
    ),
    Mutant::plain("clamp-missing", "a block of zeros has scale 0 and divides by it", |c, t| {
        plain(c, t, &How { scale: |c, amax| if amax == 0.0 { 0.0 } else { scale(c, amax) }, ..RIGHT })
    }),
    Mutant::plain("scale-before-the-clamp", "q is right, but the scale of a block of zeros is stored as 0", |c, t| {
        plain(c, t, &How { stored: |scale, amax| if amax == 0.0 { 0.0 } else { scale }, ..RIGHT })
    }),
    Mutant::plain(
        "pow2-rounded-down",
        "scales are rounded down to powers of two, so that large values saturate",
        |c, t| {
            let scale = |c: &Case, amax: f64| {
                let exact = amax.max(c.number("clamp")) / largest(to(c));
                if up_to_pow2(exact) == exact { exact } else { up_to_pow2(exact) / 2.0 }
            };
            plain(c, t, &How { scale, ..RIGHT })
        },
    )
    // In four rows the largest value is not each time 7 times a power of two.
    .on(|c| c.flag("pow2") && c.axis("m") >= 4 && c.attr("granularity") != "128x128"),
];
