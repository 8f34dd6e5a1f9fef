//! Products of groups of rows done wrong.

use super::{Groups, columns_of_b, rows_of_a, scaled};
use crate::mutants::{Mutant, edited, inputs_of};
use crate::truth::product::{BLOCK, Vectors, dot};
use kmark_core::case::Case;
use kmark_core::tensor::View;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "weights-of-the-neighbour",
        about: "the first group is multiplied with the matrix of the second",
        applies: |c| c.axis("g") > 1 && enough(c),
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                Parts::new(c, inputs).product(c, |group, _| if group == 0 { 1 } else { group })
            })
        },
    },
    Mutant {
        name: "boundary-off-by-one",
        about: "the last row of each group is taken for the first of the next",
        applies: |c| c.axis("g") > 1 && enough(c),
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (groups, last) = (Groups::new(c), c.axis("g") - 1);
                let next = |group: usize, row| if row + 1 == groups.rows(group).end { group + 1 } else { group };
                Parts::new(c, inputs).product(c, |group, row| next(group, row).min(last))
            })
        },
    },
    Mutant {
        name: "last-row-repeated",
        about: "the last row of each group is the one before it",
        applies: |c| c.axis("m") > 1 && enough(c),
        spoil: |right, c, b| {
            let (n, groups) = (c.axis("n"), Groups::new(c));
            edited(right, b, "d", move |d| {
                for rows in (0..groups.lens.len()).map(|g| groups.rows(g)).filter(|rows| rows.len() > 1) {
                    d.copy_within((rows.end - 2) * n..(rows.end - 1) * n, (rows.end - 1) * n);
                }
            })
        },
    },
    Mutant {
        name: "k-tail-skipped",
        about: "the last tile of 64 along k is left out if it is not whole",
        applies: |c| !c.axis("k").is_multiple_of(64) && c.axis("m") >= 3 && c.axis("n") >= 8,
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (mut parts, whole) = (Parts::new(c, inputs), c.axis("k") / 64 * 64);
                parts.a.iter_mut().for_each(|row| row[whole..].fill(0.0));
                parts.product(c, |group, _| group)
            })
        },
    },
    Mutant {
        name: "unscaled-half-tile",
        about: "rows of the second half of each tile of 4 take the scales of two rows above",
        applies: |c| scaled(c) && c.axis("m") >= 3 && enough(c),
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let (mut a, groups) = (rows_of_a(c, inputs), Groups::new(c));
                let scales = a.scales.as_mut().expect("the case has scales");
                for rows in (0..groups.lens.len()).map(|g| groups.rows(g)) {
                    for row in rows.clone().filter(|row| (row - rows.start) % 4 >= 2) {
                        scales
                            .values
                            .copy_within((row - 2) * scales.width..(row - 1) * scales.width, row * scales.width);
                    }
                }
                Parts { a: a.all(), b: columns_of_b(c, inputs).all() }.product(c, |group, _| group)
            })
        },
    },
    Mutant {
        name: "scales-of-the-first-group",
        about: "the scales of b are those of group 0 for every group",
        applies: |c| scaled(c) && c.axis("g") > 1 && enough(c),
        spoil: |right, c, b| {
            instead(right, c, b, |c, inputs| {
                let mut b = columns_of_b(c, inputs);
                let scales = b.scales.as_mut().expect("the case has scales");
                let (first, rest) = scales.values.split_at_mut(c.axis("n") * c.axis("k").div_ceil(BLOCK));
                rest.chunks_mut(first.len()).for_each(|group| group.copy_from_slice(first));
                Parts { a: rows_of_a(c, inputs).all(), b: b.all() }.product(c, |group, _| group)
            })
        },
    },
];

pub const LOOSE: &[Mutant] = &[Mutant {
    name: "split-in-half",
    about: "k is split in four, and each part of the sum is rounded to the output's type",
    applies: |c| c.dtype.size() == 2 && c.axis("k") >= 64 && c.axis("m") >= 16 && c.axis("n") >= 8,
    spoil: |right, c, b| {
        instead(right, c, b, |c, inputs| {
            let (parts, n, k) = (Parts::new(c, inputs), c.axis("n"), c.axis("k"));
            let (groups, out, part) = (Groups::new(c), super::out_dtype(c), k.div_ceil(4));
            let vector = |v: &Vectors, at: usize| v.data[at * k..(at + 1) * k].to_vec();
            let sum = |a: &[f64], b: &[f64]| -> f64 {
                a.chunks(part).zip(b.chunks(part)).map(|(a, b)| out.round(dot(a, b))).sum()
            };
            let real = (0..groups.total).filter_map(|row| groups.of(row).map(|group| (group, row)));
            real.map(|(group, row)| {
                let a = vector(&parts.a, row);
                (row, (0..n).map(|j| sum(&a, &vector(&parts.b, group * n + j))).collect())
            })
            .collect()
        })
    },
}];

/// A row of d has enough terms that two of them are not equal by chance.
fn enough(c: &Case) -> bool {
    c.axis("n") * c.axis("k") >= 16
}

/// Rows of d and which they are.
type Rows = Vec<(usize, Vec<f64>)>;

/// Both operands, scaled.
struct Parts {
    a: Vectors,
    b: Vectors,
}

impl Parts {
    fn new(c: &Case, inputs: &View) -> Parts {
        Parts { a: rows_of_a(c, inputs).all(), b: columns_of_b(c, inputs).all() }
    }

    /// The product of every row that is no padding with the matrix that `matrix` names for its group and itself.
    fn product(&self, c: &Case, matrix: impl Fn(usize, usize) -> usize) -> Rows {
        let (n, k, groups) = (c.axis("n"), c.axis("k"), Groups::new(c));
        let vectors = |v: &Vectors, first: usize, count: usize| Vectors {
            data: v.data[first * k..(first + count) * k].to_vec(),
            k,
        };
        let real = (0..groups.total).filter_map(|row| groups.of(row).map(|group| (group, row)));
        real.map(|(group, row)| (row, vectors(&self.a, row, 1).times(&vectors(&self.b, matrix(group, row) * n, n))))
            .collect()
    }
}

/// Runs the right impl, then writes the rows that `f` gives.
fn instead(right: Box<dyn Launch>, c: &Case, b: &Buffers, f: fn(&Case, &View) -> Rows) -> Box<dyn Launch> {
    let (case, all, n) = (c.clone(), b.clone(), c.axis("n"));
    edited(right, b, "d", move |d| {
        for (row, values) in inputs_of(&all, |inputs| f(&case, inputs)) {
            d[row * n..(row + 1) * n].copy_from_slice(&values);
        }
    })
}
