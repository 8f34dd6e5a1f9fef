//! Memory traffic in plain loops, right and wrong.

use super::CHUNK;
use crate::contract::*;
use crate::truth::sum;

/// The formula of kind `triad`, of a, b and s.
pub struct How(fn(f64, f64, f64) -> f64);

pub const RIGHT: How = How(|a, b, s| a + s * b);

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        match c.attr("kind") {
            "copy" => t.put("y", t.get("x")),
            "read" => t.put("sums", t.get("x").chunks(CHUNK).map(|x| sum(x.iter().copied())).collect()),
            "write" => t.put("y", vec![t.get("s")[0]; c.axis("n")]),
            _ => {
                let (a, b, s) = (t.get("a"), t.get("b"), t.get("s")[0]);
                t.put("y", a.iter().zip(&b).map(|(a, b)| (self.0)(*a, *b, s)).collect());
            }
        }
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("shifted", "the copy is off by one element")
        .of(|right, _, b| edited(right, b, "y", |y| y.rotate_left(1)))
        .on(|c| c.attr("kind") == "copy" && c.axis("n") >= 8),
    Mutant::new("pair-swapped", "two neighbouring elements in the middle change places")
        .of(|right, _, b| {
            edited(right, b, "y", |y| {
                // Neighbours that differ, because swapping equals is no error.
                let at = (y.len() / 2..y.len()).chain(1..y.len()).find(|i| y[*i] != y[i - 1]);
                if let Some(i) = at {
                    y.swap(i - 1, i);
                } else {
                    y[0] = f64::NAN;
                }
            })
        })
        .on(|c| c.attr("kind") == "copy" && c.axis("n") >= 2),
    Mutant::new("vector-not-summed", "the last 16 elements are missing from the last sum")
        .of(|right, _, b| {
            let x = b.get("x");
            edited(right, b, "sums", move |sums| {
                let x = crate::plain::read(&x);
                *sums.last_mut().expect("a sum") -= x[x.len() - 16..].iter().sum::<f64>();
            })
        })
        .on(|c| c.attr("kind") == "read" && c.axis("n") >= 16),
    Mutant::new("lane-not-written", "every 8th element is zero")
        .of(|right, _, b| edited(right, b, "y", |y| y.iter_mut().skip(7).step_by(8).for_each(|v| *v = 0.0)))
        .on(|c| c.attr("kind") == "write" && c.axis("n") >= 8),
    Mutant::new("triad-of-the-sum", "y = s * (a + b)")
        .plain(&How(|a, b, s| s * (a + b)))
        .on(|c| c.attr("kind") == "triad" && c.axis("n") >= 8),
];
