//! Quantisation done wrong.

use super::{Blocks, largest, scale, to, up_to_pow2};
use crate::mutants::{Mutant, after, edited, read, write};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "amax-of-the-wrong-block",
        about: "1x128 takes the maximum of the row, 128x128 that of the block's first row",
        // One row in sixteen is large. Two maxima often have the same power of two above them.
        applies: |c| match c.attr("granularity") {
            "1x128" => c.axis("n") > 128 && c.axis("m") >= 4 && !c.flag("pow2"),
            "128x128" => c.axis("m") > 13,
            _ => false,
        },
        spoil: |right, c, b| {
            instead(right, c, b, |c, x| {
                let (n, blocks) = (c.axis("n"), Blocks::new(c));
                let of_band = |band: &[f64]| match blocks.rows {
                    1 => vec![blocks.amax(band).into_iter().fold(0.0, f64::max); blocks.across],
                    _ => blocks.amax(&band[..n]),
                };
                let scales = x.chunks(blocks.rows * n).flat_map(of_band).map(|amax| scale(c, amax)).collect();
                quantised(c, x, scales, |v| to(c).round(v))
            })
        },
    },
    Mutant {
        name: "tail-block-unscaled",
        about: "a last block that is not whole keeps the scale of the one before it",
        applies: |c| {
            let (n, single) = (c.axis("n"), c.axis("n") % 128 == 1);
            let shows = match c.attr("granularity") {
                // One element in four rows is never always in the reach of the largest of 128.
                "1x128" => c.axis("m") >= 4 && (single || !c.flag("pow2")),
                "128x128" => single && !c.flag("pow2"),
                _ => false,
            };
            n > 128 && !n.is_multiple_of(128) && shows
        },
        spoil: |right, c, b| {
            instead(right, c, b, |c, x| {
                let mut scales = right_scales(c, x);
                for row in scales.chunks_mut(Blocks::new(c).across) {
                    let last = row.len() - 1;
                    row[last] = row[last - 1];
                }
                quantised(c, x, scales, |v| to(c).round(v))
            })
        },
    },
    Mutant {
        name: "truncates",
        about: "rounds towards zero",
        applies: |c| c.axis("n") >= 32,
        spoil: |right, c, b| {
            instead(right, c, b, |c, x| {
                let cut = |v: f64| (v / to(c).spacing(v)).trunc() * to(c).spacing(v);
                quantised(c, x, right_scales(c, x), cut)
            })
        },
    },
    Mutant {
        name: "one-fraction-bit-short",
        about: "e4m3 with the two fraction bits of e5m2, e5m2 with one",
        applies: |c| c.axis("n") >= 32,
        spoil: |right, c, b| {
            instead(right, c, b, |c, x| {
                let max = largest(c);
                let coarse = |v: f64| {
                    let spacing = 2.0 * to(c).spacing(v);
                    ((v / spacing).round_ties_even() * spacing).clamp(-max, max)
                };
                quantised(c, x, right_scales(c, x), coarse)
            })
        },
    },
    Mutant {
        name: "scale-inverted",
        about: "the factor that x was multiplied with is stored, not the one that undoes it",
        applies: |_| true,
        spoil: |right, _, b| edited(right, b, "scale", |scales| scales.iter_mut().for_each(|s| *s = 1.0 / *s)),
    },
    Mutant {
        name: "clamp-missing",
        about: "a block of zeros has scale 0 and divides by it",
        applies: |_| true,
        spoil: |right, c, b| {
            instead(right, c, b, |c, x| {
                let (blocks, n) = (Blocks::new(c), c.axis("n"));
                let amax = x.chunks(blocks.rows * n).flat_map(|band| blocks.amax(band));
                let scales = amax.map(|amax| if amax == 0.0 { 0.0 } else { scale(c, amax) }).collect();
                quantised(c, x, scales, |v| to(c).round(v))
            })
        },
    },
    Mutant {
        name: "scale-before-the-clamp",
        about: "q is right, but the scale of a block of zeros is stored as 0",
        applies: |_| true,
        spoil: |right, c, b| {
            let (c, x, scale) = (c.clone(), b.get("x"), b.get("scale"));
            after(right, move || {
                let (mut scales, blocks) = (read(&scale), Blocks::new(&c));
                let amax: Vec<f64> =
                    read(&x).chunks(blocks.rows * c.axis("n")).flat_map(|band| blocks.amax(band)).collect();
                scales.iter_mut().zip(&amax).filter(|(_, amax)| **amax == 0.0).for_each(|(s, _)| *s = 0.0);
                write(&scale, &scales);
            })
        },
    },
    Mutant {
        name: "pow2-rounded-down",
        about: "scales are rounded down to powers of two, so that large values saturate",
        // In four rows the largest value is not each time 7 times a power of two.
        applies: |c| c.flag("pow2") && c.axis("m") >= 4 && c.attr("granularity") != "128x128",
        spoil: |right, c, b| {
            instead(right, c, b, |c, x| {
                let mut exact = c.clone();
                exact.attrs.insert("pow2".into(), "no".into());
                let down = |s: &f64| if up_to_pow2(*s) == *s { *s } else { up_to_pow2(*s) / 2.0 };
                let scales = right_scales(&exact, x).iter().map(down).collect();
                quantised(c, x, scales, |v| to(c).round(v))
            })
        },
    },
];

fn right_scales(c: &Case, x: &[f64]) -> Vec<f64> {
    let blocks = Blocks::new(c);
    x.chunks(blocks.rows * c.axis("n")).flat_map(|band| blocks.amax(band)).map(|amax| scale(c, amax)).collect()
}

/// q and scales.
type Quantised = (Vec<f64>, Vec<f64>);

/// x with these scales and this rounding.
fn quantised(c: &Case, x: &[f64], scales: Vec<f64>, round: impl Fn(f64) -> f64) -> Quantised {
    let (blocks, max) = (Blocks::new(c), largest(c));
    let q = x.iter().enumerate().map(|(i, x)| round((x / scales[blocks.of(i)]).clamp(-max, max))).collect();
    (q, scales)
}

/// Runs the right impl, then writes what `f` makes of x.
fn instead(right: Box<dyn Launch>, c: &Case, b: &Buffers, f: fn(&Case, &[f64]) -> Quantised) -> Box<dyn Launch> {
    let (case, x, q, scale) = (c.clone(), b.get("x"), b.get("q"), b.get("scale"));
    after(right, move || {
        let (values, scales) = f(&case, &read(&x));
        write(&q, &values);
        write(&scale, &scales);
    })
}
