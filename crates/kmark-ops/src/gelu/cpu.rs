//! GELU on the CPU.

use super::{CUBE, ROOT};
use crate::cpu::*;
use std::f64::consts::FRAC_1_SQRT_2;

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let n = c.axis("n");
    match c.attr("approx") {
        "erf" => by_rows(c, b, &[], Gelu::<true> { n }),
        _ => by_rows(c, b, &[], Gelu::<false> { n }),
    }
}

struct Gelu<const EXACT: bool> {
    n: usize,
}

impl<const EXACT: bool> RowKernel for Gelu<EXACT> {
    #[inline(always)]
    fn run<A: Real>(&self, job: &mut Job<A>) {
        let (mut x, mut y) = (job.input("x"), job.output("y"));
        for row in 0..y.rows() {
            for at in (0..self.n).step_by(PIECE) {
                let len = PIECE.min(self.n - at);
                let (x, next) = x.piece(row, at, len);
                y.store_piece(row, at, len, next, [x], gelu::<A, EXACT>);
            }
        }
    }
}

#[inline(always)]
fn gelu<A: Real, const EXACT: bool>([x]: [A; 1]) -> A {
    if EXACT { by_erf(x) } else { by_tanh(x) }
}

/// erfc of a number that is not negative. In f32 by Abramowitz and Stegun 7.1.26, which vectorises and is off by 1.5e-7
/// at the most.
#[inline(always)]
fn erfc<A: Real>(x: A) -> A {
    if size_of::<A>() == 8 {
        return A::from_f64(libm::erfc(x.to_f64()));
    }
    let t = A::ONE / x.mul_add(A::from_f64(0.327_591_1), A::ONE);
    let terms = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6];
    let p = terms.iter().fold(A::ZERO, |p, term| p.mul_add(t, A::from_f64(*term)));
    t * p * exp(-x * x)
}

/// x times the normal distribution up to x, from the smaller of its two sides.
#[inline(always)]
fn by_erf<A: Real>(x: A) -> A {
    let z = x * A::from_f64(FRAC_1_SQRT_2);
    let side = erfc(if z < A::ZERO { -z } else { z }) * A::from_f64(0.5);
    x * (if x < A::ZERO { side } else { A::ONE - side })
}

/// 0.5 (1 + tanh z) is the sigmoid of 2 z.
#[inline(always)]
fn by_tanh<A: Real>(x: A) -> A {
    let z = A::from_f64(2.0 * ROOT) * x * (A::ONE + A::from_f64(CUBE) * x * x);
    x * sigmoid(z)
}
