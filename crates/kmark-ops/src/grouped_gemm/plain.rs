//! Products of groups of rows in plain loops, right and wrong.

use super::{masked, out_dtype, rows_by_group, scaled};
use crate::contract::*;
use crate::truth::product::{BLOCK, Scales, dot};

/// What kernels get wrong, each as it is right. Rows are counted in their group.
pub struct How {
    /// Of a row of a and a column of b; the type is that of d.
    sum: fn(&[f64], &[f64], DType) -> f64,
    /// The row of a for row i of len.
    row: fn(usize, usize) -> usize,
    /// Whose scales row i of a takes.
    scales_of_row: fn(usize) -> usize,
    /// Whose scales the matrix of a group takes.
    scales_of_group: fn(usize) -> usize,
    /// The matrix for a group, and whether it is for the last of the group's rows.
    matrix: fn(usize, bool) -> usize,
}

pub const RIGHT: How = How {
    sum: |a, b, _| dot(a, b),
    row: |i, _| i,
    scales_of_row: |i| i,
    scales_of_group: |group| group,
    matrix: |group, _| group,
};

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (n, k, width) = (c.axis("n"), c.axis("k"), c.axis("k").div_ceil(BLOCK));
        let index: Vec<i32> = t.get(if masked(c) { "count" } else { "group" }).iter().map(|v| *v as i32).collect();
        let groups = rows_by_group(masked(c).then(|| c.axis("m")), &index);
        let (mut a, mut b) = (t.get("a"), t.get("b"));
        if scaled(c) {
            let scales = Scales { values: t.get("a_scale"), width, span: 1 };
            for (row, start) in groups.iter().flat_map(|(_, rows)| rows.clone().map(|row| (row, rows.start))) {
                scales.apply(start + (self.scales_of_row)(row - start), &mut a[row * k..(row + 1) * k], k);
            }
            let (scales, each) = (t.get("b_scale"), n.div_ceil(BLOCK) * width);
            for (group, b) in b.chunks_mut(n * k).enumerate() {
                let values = scales[(self.scales_of_group)(group) * each..][..each].to_vec();
                Scales { values, width, span: BLOCK }.apply(0, b, k);
            }
        }
        // What is padding stays.
        let mut d = t.get("d");
        for (group, rows) in groups {
            for row in rows.clone() {
                let a = &a[(rows.start + (self.row)(row - rows.start, rows.len())) * k..][..k];
                let matrix = (self.matrix)(group, row + 1 == rows.end).min(c.axis("g") - 1);
                let columns = b[matrix * n * k..].chunks(k);
                d[row * n..(row + 1) * n]
                    .iter_mut()
                    .zip(columns)
                    .for_each(|(d, b)| *d = (self.sum)(a, b, out_dtype(c)));
            }
        }
        t.put("d", d);
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("weights-of-the-neighbour", "the first group is multiplied with the matrix of the second")
        .plain(&How { matrix: |group, _| group.max(1), ..RIGHT })
        .on(|c| c.axis("g") > 1 && enough(c)),
    Mutant::new("boundary-off-by-one", "the last row of each group is taken for the first of the next")
        .plain(&How { matrix: |group, last| group + last as usize, ..RIGHT })
        .on(|c| c.axis("g") > 1 && enough(c)),
    Mutant::new("last-row-repeated", "the last row of each group is the one before it")
        .plain(&How { row: |i, len| i.min(len.max(2) - 2), ..RIGHT })
        .on(|c| c.axis("m") > 1 && enough(c)),
    Mutant::new("k-tail-skipped", "the last tile of 64 along k is left out if it is not whole")
        .plain(&How { sum: shared::sum_without_tail, ..RIGHT })
        .on(|c| !c.axis("k").is_multiple_of(64) && c.axis("m") >= 3 && c.axis("n") >= 8),
    Mutant::new("unscaled-half-tile", "rows of the second half of each tile of 4 take the scales of two rows above")
        .plain(&How { scales_of_row: |i| i & !2, ..RIGHT })
        .on(|c| scaled(c) && c.axis("m") >= 3 && enough(c)),
    Mutant::new("scales-of-the-first-group", "the scales of b are those of group 0 for every group")
        .plain(&How { scales_of_group: |_| 0, ..RIGHT })
        .on(|c| scaled(c) && c.axis("g") > 1 && enough(c)),
    Mutant::loose("split-in-half", "k is split in four, and each part of the sum is rounded to the output's type")
        .plain(&How { sum: shared::sum_of_four_rounded, ..RIGHT })
        .on(|c| c.dtype.size() == 2 && c.axis("k") >= 64 && c.axis("m") >= 16 && c.axis("n") >= 8),
];

/// A row of d has enough terms that two of them are not equal by chance.
fn enough(c: &Case) -> bool {
    c.axis("n") * c.axis("k") >= 16
}
