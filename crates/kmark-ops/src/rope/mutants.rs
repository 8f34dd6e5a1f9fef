//! Rotary position embedding done wrong.

use super::{operands, pair, rotated};
use crate::mutants::{Mutant, read, shared, write};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_device::Launch;
use kmark_device::buffer::{Buffer, Buffers};

/// Position 0 is not turned at all: a case needs another.
fn turns(c: &Case) -> bool {
    c.axis("s") > 1
}

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "styles-swapped",
        about: "neox pairs where interleaved ones are asked for, and the reverse",
        // A single pair is the same in both.
        applies: |c| turns(c) && rotated(c) > 2,
        spoil: |right, c, b| with_turn(right, c, b, |t, _| t.neox = !t.neox),
    },
    Mutant {
        name: "turned-backwards",
        about: "the sine has the wrong sign",
        applies: turns,
        spoil: |right, c, b| with_turn(right, c, b, |t, _| t.backwards = true),
    },
    Mutant {
        name: "position-off-by-one",
        about: "each position takes the angles of the next",
        applies: turns,
        spoil: |right, c, b| with_turn(right, c, b, |t, place| t.position = (place.position + 1) % place.positions),
    },
    Mutant {
        name: "head-for-position",
        about: "the angles are those of the head's number",
        applies: turns,
        spoil: |right, c, b| with_turn(right, c, b, |t, place| t.position = place.head % place.positions),
    },
    Mutant {
        name: "k-not-turned",
        about: "k is left as it is",
        applies: |c| turns(c) && c.flag("k"),
        spoil: |right, c, b| {
            with_turn(right, c, b, |t, place| t.position = if place.is_k { 0 } else { place.position })
        },
    },
    Mutant {
        name: "rest-turned-too",
        about: "all dimensions are turned, those behind the rotary part as well",
        applies: |c| turns(c) && rotated(c) < c.axis("d") && c.axis("d").is_multiple_of(2),
        spoil: |right, c, b| with_turn(right, c, b, |t, place| t.r = place.d),
    },
    Mutant {
        // In place, a row that is not turned may stay where it is.
        applies: |c| c.attr("memory") == "strided" && c.axis("b") * c.axis("hq") * c.axis("s") > 1 && turns(c),
        ..shared::PITCH_IGNORED
    },
];

/// Right, but rounding on the way.
pub const LOOSE: &[Mutant] = &[Mutant {
    name: "products-rounded",
    about: "cosines, sines and the four products are rounded to the 16-bit type",
    applies: |c| {
        let turned = c.axis("b") * (c.axis("s") - 1) * c.axis("hq") * rotated(c);
        c.dtype.size() == 2 && turned >= 512
    },
    spoil: |right, c, b| with_turn(right, c, b, |t, place| t.rounds_to = Some(place.dtype)),
}];

/// A head: whose, and where.
struct Place {
    position: usize,
    positions: usize,
    dtype: DType,
    head: usize,
    is_k: bool,
    d: usize,
}

/// How a head is turned.
struct Turn {
    position: usize,
    r: usize,
    neox: bool,
    backwards: bool,
    /// To what cosines, sines and products are rounded.
    rounds_to: Option<DType>,
}

/// Keeps the inputs, which the right impl may overwrite, and replaces its answer by that of another turn.
fn with_turn(mut right: Box<dyn Launch>, c: &Case, b: &Buffers, change: fn(&mut Turn, &Place)) -> Box<dyn Launch> {
    let c = c.clone();
    let all: Vec<(Buffer, Buffer, usize)> =
        operands(&c).into_iter().map(|(input, output, heads)| (b.get(input), b.get(output), heads)).collect();
    Box::new(move || {
        let inputs: Vec<Vec<f64>> = all.iter().map(|(input, _, _)| read(input)).collect();
        right.launch().expect(crate::mutants::WORKS);
        for ((input, output, heads), mut x) in all.iter().zip(inputs) {
            let (d, positions) = (c.axis("d"), c.axis("s"));
            for (row, x) in x.chunks_mut(d).enumerate() {
                let (position, head) = (row / heads % positions, row % heads);
                let place = Place { position, positions, dtype: c.dtype, head, is_k: input.spec().name == "k", d };
                let neox = c.attr("style") == "neox";
                let mut turn = Turn { position, r: rotated(&c), neox, backwards: false, rounds_to: None };
                change(&mut turn, &place);
                turn_head(x, &turn, c.number("base"));
            }
            write(output, &x);
        }
    })
}

fn turn_head(x: &mut [f64], t: &Turn, base: f64) {
    for i in 0..t.r / 2 {
        let angle = t.position as f64 * base.powf(-2.0 * i as f64 / t.r as f64);
        let (sin, cos) = if t.backwards { (-angle).sin_cos() } else { angle.sin_cos() };
        let round = |v: f64| t.rounds_to.map_or(v, |dtype| dtype.round(v));
        let product = |x: f64, by: f64| round(x * round(by));
        let (first, second) = pair(t.neox, t.r, i);
        let (x1, x2) = (x[first], x[second]);
        (x[first], x[second]) = (product(x1, cos) - product(x2, sin), product(x2, cos) + product(x1, sin));
    }
}
