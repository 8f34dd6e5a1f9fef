//! Rows times a number in plain loops, right and wrong.

use crate::contract::*;

pub fn right(c: &Case, t: &mut Tensors) {
    plain(c, t, |a, x, _| a * x)
}

/// `f` gets a, an element of x and its column.
fn plain(c: &Case, t: &mut Tensors, f: fn(f64, f64, usize) -> f64) {
    let (n, a) = (c.axis("n"), t.get("a")[0]);
    let y = t.get("x").iter().enumerate().map(|(i, x)| f(a, *x, i % n)).collect();
    t.put("y", y);
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::plain("not-scaled", "x is copied", |c, t| plain(c, t, |_, x, _| x)),
    Mutant::plain("first-column-not-scaled", "the first element of a row is copied", |c, t| {
        plain(c, t, |a, x, column| if column == 0 { x } else { a * x })
    }),
    shared::PITCH_IGNORED,
];
