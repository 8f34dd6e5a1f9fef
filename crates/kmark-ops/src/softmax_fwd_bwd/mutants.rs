//! Softmax with its backward done wrong.

use crate::mutants::shared::{self, Maximum};
use crate::mutants::{Mutant, Spoiled, WORKS, after, read, write};
use crate::truth;
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "tail-not-summed",
        about: "the sum of powers leaves out the last columns beyond a multiple of 8",
        applies: |c| !c.axis("n").is_multiple_of(8) && c.axis("n") > 8,
        spoil: |right, c, b| {
            with_y(right, c, b, |p, _| {
                let kept: f64 = p[..p.len() / 8 * 8].iter().sum();
                p.iter().map(|p| p / kept).collect()
            })
        },
    },
    Mutant {
        name: "base-two",
        about: "2^x instead of e^x",
        applies: |c| c.axis("n") > 1,
        spoil: |right, c, b| {
            with_y(right, c, b, |p, _| {
                let powers: Vec<f64> = p.iter().map(|p| p.powf(std::f64::consts::LN_2)).collect();
                let total: f64 = powers.iter().sum();
                powers.iter().map(|p| p / total).collect()
            })
        },
    },
    Mutant {
        name: "forward-only",
        about: "y * dy, the diagonal of the Jacobian alone",
        applies: |_| true,
        spoil: |right, _, b| {
            let (x, dy, dx) = (b.get("x"), b.get("dy"), b.get("dx"));
            after(right, move || {
                let n = *x.spec().shape.last().expect("rows");
                let p = read(&x).chunks(n).flat_map(|row| truth::softmax(row).p).collect::<Vec<_>>();
                write(&dx, &p.iter().zip(read(&dy)).map(|(p, dy)| p * dy).collect::<Vec<_>>());
            })
        },
    },
    Mutant {
        name: "maximum-missing",
        about: "no maximum is subtracted, and exp overflows",
        applies: |_| true,
        spoil: |right, c, b| careless(right, c, b, Maximum::Nothing),
    },
    Mutant {
        name: "maximum-of-half",
        about: "the maximum is that of the first half of the row",
        applies: |_| true,
        spoil: |right, c, b| careless(right, c, b, Maximum::OfHalf),
    },
    Mutant {
        name: "maximum-of-the-row-before",
        about: "the maximum is that of the row before",
        applies: |c| c.axis("m") > 1,
        spoil: |right, c, b| careless(right, c, b, Maximum::OfTheRowBefore),
    },
    shared::PITCH_IGNORED,
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "y-rounded",
    about: "y is rounded to the 16-bit type between forward and backward",
    applies: shared::rounds,
    spoil: |right, c, b| with_y(right, c, b, |p, c| p.iter().map(|p| c.dtype.round(*p)).collect()),
}];

/// Replaces dx by that of another maximum; where nothing overflows, and not all of a row underflows, it is as good.
fn careless(mut right: Box<dyn Launch>, c: &Case, b: &Buffers, maximum: Maximum) -> Box<dyn Launch> {
    let (n, acc, x, dy, dx) = (c.axis("n"), c.acc(), b.get("x"), b.get("dy"), b.get("dx"));
    Box::new(Spoiled(move || {
        right.launch().expect(WORKS);
        let mut out = Vec::new();
        for (row, dy) in maximum.softmax(&read(&x), n, acc).iter().zip(read(&dy).chunks(n)) {
            let dot: f64 = row.p.iter().zip(dy).map(|(p, dy)| p * dy).sum();
            out.extend(row.p.iter().zip(dy).map(|(p, dy)| p * (dy - dot)));
        }
        write(&dx, &out);
        out.iter().any(|v| !v.is_finite())
    }))
}

/// Replaces dx by that of another y; `wrong` turns the right y of a row into it.
fn with_y(right: Box<dyn Launch>, c: &Case, b: &Buffers, wrong: fn(&[f64], &Case) -> Vec<f64>) -> Box<dyn Launch> {
    let (n, c) = (c.axis("n"), c.clone());
    let (x, dy, dx) = (b.get("x"), b.get("dy"), b.get("dx"));
    after(right, move || {
        let mut out = Vec::new();
        for (x, dy) in read(&x).chunks(n).zip(read(&dy).chunks(n)) {
            let y = wrong(&truth::softmax(x).p, &c);
            let dot: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            out.extend(y.iter().zip(dy).map(|(y, dy)| y * (dy - dot)));
        }
        write(&dx, &out);
    })
}
