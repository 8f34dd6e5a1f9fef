//! Products of matrices done wrong.

use super::operands;
use crate::mutants::{Mutant, edited, inputs_of, read};
use crate::truth::product::{Operand, Vectors, dot};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::tensor::View;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "k-tail-skipped",
        about: "the last tile of 64 along k is left out if it is not whole",
        applies: |c| !c.axis("k").is_multiple_of(64) && many(c),
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let ((a, b), whole) = (operands(c, inputs), c.axis("k") / 64 * 64);
                let (mut a, b) = (a.all(), b.all());
                a.iter_mut().for_each(|row| row[whole..].fill(0.0));
                a.times(&b)
            })
        },
    },
    Mutant {
        name: "accumulates-in-bf16",
        about: "every partial sum is rounded to bf16",
        // A few partial sums in 16 bits are what loose kernels have.
        applies: |c| c.dtype.size() <= 2 && c.axis("k") >= 512 && many(c),
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (a, b) = operands(c, inputs);
                let (a, b) = (a.all(), b.all());
                let add = |sum: f64, (a, b): (&f64, &f64)| DType::Bf16.round(sum + a * b);
                let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0.0, add);
                a.iter().flat_map(|a| b.iter().map(move |b| sum(a, b))).collect()
            })
        },
    },
    Mutant {
        name: "tf32",
        about: "f32 operands are rounded to 11 bits, as matrix units take them when nobody asks",
        applies: |c| c.dtype == DType::F32 && c.attr("out") == "same" && c.axis("k") >= 16 && many(c),
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (a, b) = operands(c, inputs);
                let (mut a, mut b) = (a.all(), b.all());
                // f16 has as many bits; its range is wide enough for what stands here.
                let round = |v: &mut [f64]| v.iter_mut().for_each(|v| *v = DType::F16.round(*v));
                a.iter_mut().chain(b.iter_mut()).for_each(round);
                a.times(&b)
            })
        },
    },
    Mutant {
        name: "three-bf16-products",
        about: "f32 operands are split into two bf16 each, and the product of the smaller parts is left out",
        applies: |c| c.dtype == DType::F32 && c.attr("out") == "same" && c.axis("k") >= 16 && many(c),
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (a, b) = operands(c, inputs);
                let halves = |v: &Vectors| {
                    let high: Vec<f64> = v.data.iter().map(|x| DType::Bf16.round(*x)).collect();
                    let low = v.data.iter().zip(&high).map(|(x, high)| DType::Bf16.round(x - high)).collect();
                    [high, low].map(|data| Vectors { data, k: v.k })
                };
                let ([a, a_low], [b, b_low]) = (halves(&a.all()), halves(&b.all()));
                let products = [a.times(&b), a.times(&b_low), a_low.times(&b)];
                (0..products[0].len()).map(|i| products.iter().map(|p| p[i]).sum()).collect()
            })
        },
    },
    Mutant {
        name: "unscaled-half-tile",
        about: "rows of the second half of each tile of 16 take the scales of the tile's first row",
        applies: |c| matches!(c.attr("scale"), "row" | "block") && c.axis("m") >= 16 && c.axis("k") >= 16,
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (mut a, b) = operands(c, inputs);
                let (scales, width) = scales(&mut a);
                for row in (0..scales.len() / width).filter(|row| row % 16 >= 8) {
                    scales.copy_within(row / 16 * 16 * width..(row / 16 * 16 + 1) * width, row * width);
                }
                a.all().times(&b.all())
            })
        },
    },
    Mutant {
        name: "scale-one-too-far",
        about: "each scale of a is the next one in memory",
        applies: |c| {
            let several = c.axis("m") > 1 || (c.attr("scale") == "block" && c.axis("k") > 128);
            matches!(c.attr("scale"), "row" | "block") && several && c.axis("k") >= 16
        },
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (mut a, b) = operands(c, inputs);
                scales(&mut a).0.rotate_left(1);
                a.all().times(&b.all())
            })
        },
    },
    Mutant {
        name: "scale-of-b-missing",
        about: "b is not scaled",
        applies: |c| c.attr("scale") != "none" && c.axis("k") >= 16,
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (a, b) = operands(c, inputs);
                a.all().times(&Operand { scales: None, ..b }.all())
            })
        },
    },
    Mutant {
        name: "transpose-forgotten",
        about: "b is read as if it were stored the other way round",
        applies: |c| c.axis("n") >= 7 && c.axis("k") >= 5,
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (a, b) = operands(c, inputs);
                a.all().times(&Operand { across: !b.across, ..b }.all())
            })
        },
    },
    Mutant {
        name: "bias-twice",
        about: "the bias is added by the epilogue and as the first value of the sum",
        applies: |c| c.flag("bias") && many(c),
        spoil: |right, c, b| {
            let (n, bias) = (c.axis("n"), b.get("bias"));
            edited(right, b, "d", move |d| {
                let bias = read(&bias);
                d.iter_mut().enumerate().for_each(|(i, d)| *d += bias[i % n]);
            })
        },
    },
    Mutant {
        name: "bias-of-the-row",
        about: "row i gets bias[i] instead of column j bias[j]",
        applies: |c| c.flag("bias") && many(c),
        spoil: |right, c, b| {
            let (n, bias) = (c.axis("n"), b.get("bias"));
            edited(right, b, "d", move |d| {
                let bias = read(&bias);
                d.iter_mut().enumerate().for_each(|(i, d)| *d += bias[i / n % n] - bias[i % n]);
            })
        },
    },
    Mutant {
        name: "tail-columns-shifted",
        about: "columns behind the last whole 8 are those of 8 before",
        applies: |c| c.axis("n") > 8 && !c.axis("n").is_multiple_of(8) && many(c) && c.axis("k") >= 5,
        spoil: |right, c, b| {
            let n = c.axis("n");
            edited(right, b, "d", move |d| {
                d.chunks_mut(n).for_each(|row| (n / 8 * 8..n).for_each(|j| row[j] = row[j - 8]));
            })
        },
    },
];

pub const LOOSE: &[Mutant] = &[Mutant {
    name: "split-in-half",
    about: "k is split in four, and each part of the sum is rounded to the output's type",
    // 8-bit products are off by as much where the output has more bits, or the sum few terms; then only the RMS shows it.
    applies: |c| match c.dtype.size() {
        2 => super::out_dtype(c).size() == 2 && c.axis("k") >= 64 && many(c),
        1 => super::out_dtype(c) == DType::Bf16 && c.axis("k") >= 512 && c.axis("m") * c.axis("n") >= 8192,
        _ => false,
    },
    spoil: |right, c, b| {
        instead(right, c, b, |c, inputs| {
            let (a, b) = operands(c, inputs);
            let (a, b, out) = (a.all(), b.all(), super::out_dtype(c));
            let part = c.axis("k").div_ceil(4);
            let sum = |a: &[f64], b: &[f64]| -> f64 {
                a.chunks(part).zip(b.chunks(part)).map(|(a, b)| out.round(dot(a, b))).sum()
            };
            a.iter().flat_map(|a| b.iter().map(move |b| sum(a, b))).collect()
        })
    },
}];

/// Enough rows and columns that one value that happens to be small hides nothing.
fn many(c: &Case) -> bool {
    c.axis("m") >= 7 && c.axis("n") >= 7
}

/// The scales of an operand, and how many each vector has.
fn scales<'a>(operand: &'a mut Operand) -> (&'a mut [f64], usize) {
    let scales = operand.scales.as_mut().expect("the case has scales");
    (&mut scales.values, scales.width)
}

/// Runs the right impl, then writes what `f` says is the product; the bias is added to it.
fn instead(right: Box<dyn Launch>, c: &Case, b: &Buffers, f: fn(&Case, &View) -> Vec<f64>) -> Box<dyn Launch> {
    let (case, all) = (c.clone(), b.clone());
    edited(right, b, "d", move |d| {
        let n = case.axis("n");
        let (product, bias) =
            inputs_of(&all, |inputs| (f(&case, inputs), case.flag("bias").then(|| inputs.all("bias"))));
        for (i, (d, v)) in d.iter_mut().zip(product).enumerate() {
            *d = v + bias.as_ref().map_or(0.0, |b| b[i % n]);
        }
    })
}
