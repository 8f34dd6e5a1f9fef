//! Rows times a number in plain loops, right and wrong.

use crate::contract::*;

/// What an element becomes, of a, the element and its column.
pub struct How(fn(f64, f64, usize) -> f64);

pub const RIGHT: How = How(|a, x, _| a * x);

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (n, a) = (c.axis("n"), t.get("a")[0]);
        let y = t.get("x").iter().enumerate().map(|(i, x)| (self.0)(a, *x, i % n)).collect();
        t.put("y", y);
    }
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("not-scaled", "x is copied").plain(&How(|_, x, _| x)),
    Mutant::new("first-column-not-scaled", "the first element of a row is copied")
        .plain(&How(|a, x, column| if column == 0 { x } else { a * x })),
    shared::PITCH_IGNORED,
];
