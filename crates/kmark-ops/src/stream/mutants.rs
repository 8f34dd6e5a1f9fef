//! Memory traffic done wrong.

use crate::mutants::{Mutant, edited, read};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "shifted",
        about: "the copy is off by one element",
        applies: |c| c.attr("kind") == "copy" && c.axis("n") >= 8,
        spoil: |right, _, b| edited(right, b, "y", |y| y.rotate_left(1)),
    },
    Mutant {
        name: "pair-swapped",
        about: "two neighbouring elements in the middle change places",
        applies: |c| c.attr("kind") == "copy" && c.axis("n") >= 2,
        spoil: |right, _, b| {
            edited(right, b, "y", |y| {
                // Neighbours that differ, because swapping equals is no error.
                let at = (y.len() / 2..y.len()).chain(1..y.len()).find(|i| y[*i] != y[i - 1]);
                if let Some(i) = at {
                    y.swap(i - 1, i);
                } else {
                    y[0] = f64::NAN;
                }
            })
        },
    },
    Mutant {
        name: "vector-not-summed",
        about: "the last 16 elements are missing from the last sum",
        applies: |c| c.attr("kind") == "read" && c.axis("n") >= 16,
        spoil: |right, _, b| {
            let x = b.get("x");
            edited(right, b, "sums", move |sums| {
                let x = read(&x);
                *sums.last_mut().expect("a sum") -= x[x.len() - 16..].iter().sum::<f64>();
            })
        },
    },
    Mutant {
        name: "lane-not-written",
        about: "every 8th element is zero",
        applies: |c| c.attr("kind") == "write" && c.axis("n") >= 8,
        spoil: |right, _, b| edited(right, b, "y", |y| y.iter_mut().skip(7).step_by(8).for_each(|v| *v = 0.0)),
    },
    Mutant {
        name: "triad-of-the-sum",
        about: "y = s * (a + b)",
        applies: |c| c.attr("kind") == "triad" && c.axis("n") >= 8,
        spoil: |right, _, b| {
            let (a, b_in, s) = (b.get("a"), b.get("b"), b.get("s"));
            edited(right, b, "y", move |y| {
                let (a, b, s) = (read(&a), read(&b_in), read(&s)[0]);
                y.iter_mut().enumerate().for_each(|(i, y)| *y = s * (a[i] + b[i]));
            })
        },
    },
];
