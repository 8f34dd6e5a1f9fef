//! What rounding to 16 bits costs attention: the weights, which every kernel on a matrix unit rounds (tight), and whatever
//! else kernels round on the way (loose). For f32 and f64 tensors there is no such rounding, and all of it is zero.

use crate::truth::Rounding;

/// Rounding errors of different weights are independent, so that a sum is off by the root of the sum of squares, times
/// this: 2.5 units are six standard deviations of a rounding error.
pub const SIGMAS: f64 = 2.5;
/// Where weights are nearly equal their errors are, too. Whatever they are, they do not know the signs of the values:
/// by Hoeffding, five units are beyond one of a million.
pub const SIGMAS_EQUAL: f64 = 5.0;
/// Logits spread less than so many units are not resolved by rounded weights.
const NARROW: f64 = 4.0;

/// Whether the weights of a query whose logits spread by `spread` are nearly equal.
pub fn is_narrow(weights: Rounding, spread: f64) -> bool {
    spread <= NARROW * weights.unit
}

/// Sums over the keys of one query, for one column of the output, and what is known of the query.
pub struct Column {
    pub o: f64,
    /// Sums of p v², p² v², p² v and p².
    pub pv2: f64,
    pub p2v2: f64,
    pub p2v: f64,
    pub p2: f64,
    pub keys: f64,
    /// The typical size of an element of a loud key; values are drawn as keys are.
    pub key_rms: f64,
    /// The typical spread of the logits: scale * |q| * key_rms.
    pub spread: f64,
    /// Where values are columns of the keys, errors of weights know them: q of this column relative to |q|, and
    /// times the scale.
    pub q_part: f64,
    pub q_scaled: f64,
}

impl Column {
    /// Deviation of the value under p. What cancels is worth nothing below a hundred-thousandth.
    pub fn deviation(&self) -> f64 {
        (self.pv2 - self.o * self.o).max(1e-9 * self.pv2).sqrt()
    }

    /// What rounded weights cost. No more than a unit of each term: the mean of |v| under p is at most the root of pv2.
    pub fn weights(&self, r: Rounding) -> f64 {
        let (most, walk) = (self.pv2.sqrt(), self.p2v2.sqrt());
        let likely = if is_narrow(r, self.spread) { SIGMAS_EQUAL * walk + self.q_part * most } else { SIGMAS * walk };
        r.unit * likely.min(most) + self.subnormal(r)
    }

    /// Weights below the smallest normal number are off by `tiny`, however small they are.
    fn subnormal(&self, r: Rounding) -> f64 {
        SIGMAS * r.least * self.keys.sqrt() * self.key_rms
    }

    /// What is rounded on the way, too: parts of the output (split keys), or the output before its last factor; and q
    /// times the scale, which moves each logit by up to two units of the spread, and the output by p (v - o) of each.
    pub fn on_the_way(&self, r: Rounding) -> f64 {
        let parts = (2.0 * self.p2v2.sqrt()).min(self.pv2.sqrt());
        let pull = (self.p2v2 - 2.0 * self.o * self.p2v + self.o * self.o * self.p2).max(1e-12 * self.p2v2).sqrt();
        let moved = (2.0 * r.unit * self.spread).exp_m1();
        r.unit * (parts + self.q_scaled * self.pv2) + moved * pull + self.subnormal(r)
    }
}
