//! Rotary position embedding in plain loops, right and wrong.

use super::{operands, pair, rotated};
use crate::contract::*;

/// What kernels get wrong, each as it is right.
pub struct How {
    /// Whether pairs are those of the other style.
    other_style: bool,
    /// Of the sine.
    sign: f64,
    /// Whose angles a head takes: of its position, how many there are, and its number.
    position: fn(usize, usize, usize) -> usize,
    turns_k: bool,
    /// Whether dimensions behind the rotary part are turned, by the same angles over again.
    turns_rest: bool,
    /// Whether cosines, sines and products are rounded.
    rounds: bool,
}

pub const RIGHT: How = How {
    other_style: false,
    sign: 1.0,
    position: |position, _, _| position,
    turns_k: true,
    turns_rest: false,
    rounds: false,
};

impl Plain for How {
    fn run(&self, c: &Case, t: &mut Tensors) {
        let (s, d, half) = (c.axis("s"), c.axis("d"), rotated(c) / 2);
        let (cos, sin) = (t.get("cos"), t.get("sin"));
        let neox = (c.attr("style") == "neox") != self.other_style;
        let round = |v: f64| if self.rounds { c.dtype.round(v) } else { v };
        for (input, output, heads) in operands(c) {
            let r = match input {
                "k" if !self.turns_k => 0,
                _ if self.turns_rest => d,
                _ => 2 * half,
            };
            let mut x = t.get(input);
            for (row, x) in x.chunks_mut(d).enumerate() {
                let angles = (self.position)(row / heads % s, s, row % heads) * half;
                for i in 0..r / 2 {
                    let at = angles + i % half;
                    let (cos, sin) = (round(cos[at]), round(self.sign * sin[at]));
                    let (first, second) = pair(neox, r, i);
                    let (x1, x2) = (x[first], x[second]);
                    x[first] = round(x1 * cos) - round(x2 * sin);
                    x[second] = round(x2 * cos) + round(x1 * sin);
                }
            }
            t.put(output, x);
        }
    }
}

/// Position 0 is not turned at all: a case needs another.
fn turns(c: &Case) -> bool {
    c.axis("s") > 1
}

pub const MUTANTS: &[Mutant] = &[
    Mutant::new("styles-swapped", "neox pairs where interleaved ones are asked for, and the reverse")
        .plain(&How { other_style: true, ..RIGHT })
        // A single pair is the same in both.
        .on(|c| turns(c) && rotated(c) > 2),
    Mutant::new("turned-backwards", "the sine has the wrong sign").plain(&How { sign: -1.0, ..RIGHT }).on(turns),
    Mutant::new("position-off-by-one", "each position takes the angles of the next")
        .plain(&How { position: |position, s, _| (position + 1) % s, ..RIGHT })
        .on(turns),
    Mutant::new("head-for-position", "the angles are those of the head's number")
        .plain(&How { position: |_, s, head| head % s, ..RIGHT })
        .on(turns),
    Mutant::new("k-not-turned", "k is left as it is")
        .plain(&How { turns_k: false, ..RIGHT })
        .on(|c| turns(c) && c.flag("k")),
    Mutant::new("rest-turned-too", "all dimensions are turned, those behind the rotary part as well")
        .plain(&How { turns_rest: true, ..RIGHT })
        .on(|c| turns(c) && rotated(c) < c.axis("d") && c.axis("d").is_multiple_of(2)),
    Mutant {
        // In place, a row that is not turned may stay where it is.
        applies: |c| c.attr("memory") == "strided" && c.axis("b") * c.axis("hq") * c.axis("s") > 1 && turns(c),
        ..shared::PITCH_IGNORED
    },
    Mutant::loose("products-rounded", "cosines, sines and the four products are rounded to the 16-bit type")
        .plain(&How { rounds: true, ..RIGHT })
        .on(|c| {
            let turned = c.axis("b") * (c.axis("s") - 1) * c.axis("hq") * rotated(c);
            c.dtype.size() == 2 && turned >= 512
        }),
];
