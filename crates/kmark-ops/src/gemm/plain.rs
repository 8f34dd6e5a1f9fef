//! Products of matrices in plain loops, right and wrong.

use super::{across, out_dtype, scale_spans};
use crate::contract::*;
use crate::truth::product::{Scales, dot};

/// What kernels get wrong, each as it is right.
pub struct How {
    /// Of a row of a and a column of b; the type is that of d.
    sum: fn(&[f64], &[f64], DType) -> f64,
    /// What row i and column j get of all biases.
    bias: fn(&[f64], usize, usize) -> f64,
    /// Changes the scales of a, so many of which belong to a row.
    change_scales: fn(&mut [f64], usize),
    scales_b: bool,
    transposes_b: bool,
}

pub const RIGHT: How = How {
    sum: |a, b, _| dot(a, b),
    bias: |bias, _, j| bias[j],
    change_scales: |_, _| (),
    scales_b: true,
    transposes_b: false,
};

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (n, k, out) = (c.axis("n"), c.axis("k"), out_dtype(c));
        let mut a = vectors(t.get("a"), k, across(c).0);
        let mut b = vectors(t.get("b"), k, across(c).1 != self.transposes_b);
        if let Some([span_a, span_b, width]) = scale_spans(c) {
            let mut values = t.get("a_scale");
            (self.change_scales)(&mut values, width);
            Scales { values, width, span: span_a }.apply(0, &mut a, k);
            if self.scales_b {
                Scales { values: t.get("b_scale"), width, span: span_b }.apply(0, &mut b, k);
            }
        }
        let bias = if c.flag("bias") { t.get("bias") } else { vec![0.0; n] };
        let mut d = Vec::new();
        for (i, a) in a.chunks(k).enumerate() {
            d.extend(b.chunks(k).enumerate().map(|(j, b)| (self.sum)(a, b, out) + (self.bias)(&bias, i, j)));
        }
        t.put("d", d);
    }
}

/// Vectors of length `k` one after the other, if need be from a matrix whose rows run across them.
fn vectors(data: Vec<f64>, k: usize, across: bool) -> Vec<f64> {
    let count = data.len() / k;
    if across { (0..data.len()).map(|i| data[i % k * count + i / k]).collect() } else { data }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("k-tail-skipped", "the last tile of 64 along k is left out if it is not whole")
        .plain(&How { sum: shared::sum_without_tail, ..RIGHT })
        .on(|c| !c.axis("k").is_multiple_of(64) && many(c)),
    Mutant::new("accumulates-in-bf16", "every partial sum is rounded to bf16")
        .plain(&How {
            sum: |a: &[f64], b: &[f64], _| a.iter().zip(b).fold(0.0, |sum, (a, b)| DType::Bf16.round(sum + a * b)),
            ..RIGHT
        })
        // A few partial sums in 16 bits are what loose kernels have.
        .on(|c| c.dtype.size() <= 2 && c.axis("k") >= 512 && many(c)),
    Mutant::new("tf32", "f32 operands are rounded to 11 bits, as matrix units take them when nobody asks")
        // f16 has as many bits; its range is wide enough for what stands here.
        .plain(&How { sum: |a, b, _| sum_of(a, b, |a, b| DType::F16.round(a) * DType::F16.round(b)), ..RIGHT })
        .on(|c| full_f32(c) && c.axis("k") >= 16 && many(c)),
    Mutant::new("bf16-for-tf32", "operands of TF32 are rounded to bf16")
        .plain(&How { sum: |a, b, _| sum_of(a, b, |a, b| DType::Bf16.round(a) * DType::Bf16.round(b)), ..RIGHT })
        .on(|c| c.flag("tf32") && c.attr("out") == "same" && many(c)),
    Mutant::new(
        "three-bf16-products",
        "f32 operands are split into two bf16 each, and the product of the smaller parts is left out",
    )
    .plain(&How {
        sum: |a: &[f64], b: &[f64], _| {
            let split = |v: f64| (DType::Bf16.round(v), DType::Bf16.round(v - DType::Bf16.round(v)));
            sum_of(a, b, |a, b| {
                let ((a, a_low), (b, b_low)) = (split(a), split(b));
                a * b + a * b_low + a_low * b
            })
        },
        ..RIGHT
    })
    .on(|c| full_f32(c) && c.axis("k") >= 16 && many(c)),
    Mutant::new(
        "unscaled-half-tile",
        "rows of the second half of each tile of 16 take the scales of the tile's first row",
    )
    .plain(&How {
        change_scales: |scales: &mut [f64], width: usize| {
            for row in (0..scales.len() / width).filter(|row| row % 16 >= 8) {
                scales.copy_within(row / 16 * 16 * width..(row / 16 * 16 + 1) * width, row * width);
            }
        },
        ..RIGHT
    })
    .on(|c| matches!(c.attr("scale"), "row" | "block") && c.axis("m") >= 16 && c.axis("k") >= 16),
    Mutant::new("scale-one-too-far", "each scale of a is the next one in memory")
        .plain(&How { change_scales: |scales, _| scales.rotate_left(1), ..RIGHT })
        .on(|c| {
            let several = c.axis("m") > 1 || (c.attr("scale") == "block" && c.axis("k") > 128);
            matches!(c.attr("scale"), "row" | "block") && several && c.axis("k") >= 16
        }),
    Mutant::new("scale-of-b-missing", "b is not scaled")
        .plain(&How { scales_b: false, ..RIGHT })
        .on(|c| c.attr("scale") != "none" && c.axis("k") >= 16),
    Mutant::new("transpose-forgotten", "b is read as if it were stored the other way round")
        .plain(&How { transposes_b: true, ..RIGHT })
        .on(|c| c.axis("n") >= 7 && c.axis("k") >= 5),
    Mutant::new("bias-twice", "the bias is added by the epilogue and as the first value of the sum")
        .plain(&How { bias: |bias, _, j| 2.0 * bias[j], ..RIGHT })
        .on(|c| c.flag("bias") && many(c)),
    Mutant::new("bias-of-the-row", "row i gets bias[i] instead of column j bias[j]")
        .plain(&How { bias: |bias, i, _| bias[i % bias.len()], ..RIGHT })
        .on(|c| c.flag("bias") && many(c)),
    Mutant::new("tail-columns-shifted", "columns behind the last whole 8 are those of 8 before")
        .of(|right, c, b| {
            let n = c.axis("n");
            edited(right, b, "d", move |d| {
                d.chunks_mut(n).for_each(|row| (n / 8 * 8..n).for_each(|j| row[j] = row[j - 8]));
            })
        })
        .on(|c| c.axis("n") > 8 && !c.axis("n").is_multiple_of(8) && many(c) && c.axis("k") >= 5),
    Mutant::loose("split-in-half", "k is split in four, and each part of the sum is rounded to the output's type")
        .plain(&How { sum: shared::sum_of_four_rounded, ..RIGHT })
        // 8-bit products are off by as much where the output has more bits, or the sum few terms; then only the RMS shows it.
        .on(|c| match c.dtype.size() {
            2 => out_dtype(c).size() == 2 && c.axis("k") >= 64 && many(c),
            1 => out_dtype(c) == DType::Bf16 && c.axis("k") >= 512 && c.axis("m") * c.axis("n") >= 8192,
            _ => false,
        }),
    Mutant::loose("split-in-place", "twelve parts of k are added up in the output, each sum rounded to its type")
        .plain(&How { sum: shared::sum_of_twelve_in_place, ..RIGHT })
        .on(|c| c.dtype.size() == 2 && out_dtype(c).size() == 2 && c.axis("k") >= 64 && many(c)),
];

fn sum_of(a: &[f64], b: &[f64], product: impl Fn(f64, f64) -> f64) -> f64 {
    a.iter().zip(b).map(|(a, b)| product(*a, *b)).sum()
}

/// Every bit of the operands counts, and of the result.
fn full_f32(c: &Case) -> bool {
    c.dtype == DType::F32 && !c.flag("tf32") && c.attr("out") == "same"
}

/// Enough rows and columns that one value that happens to be small hides nothing.
fn many(c: &Case) -> bool {
    c.axis("m") >= 7 && c.axis("n") >= 7
}
