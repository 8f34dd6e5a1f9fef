//! Whose turn it is: in which order the impls of a case are visited, and for how long. Numbers in, numbers out; the command
//! and the Python harness take their turns from here.

use crate::fill::philox;

/// Rounds that even a slow impl takes part in: fewer prove nothing.
pub const MIN_ROUNDS: u32 = 3;
/// Rounds if nobody says how many. With ten, the limit of a verdict would be 1.85 times as wide for the same spread.
pub const ROUNDS: u32 = 20;
/// A visit takes so many samples at the least.
pub const MIN_SAMPLES: usize = 5;
/// A visit ends when its interval is so many times as wide as the row's must be: the row's time is made of many visits.
pub const VISIT_PRECISION: f64 = 4.0;

/// The plan of a case: so many rounds, so much time for each impl. `key` is drawn anew for every case of every run.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    pub rounds: u32,
    pub budget_ns: u64,
    pub key: u64,
}

impl Turns {
    /// What one visit may take: each impl is visited twice a round.
    pub fn slice_ns(&self) -> u64 {
        (self.budget_ns / (2 * self.rounds.max(1) as u64)).max(1)
    }

    /// The visits of round `round`, by number of the impl: a random order, then the same backwards. So each impl comes as
    /// often before as after each other one, and a drift of the machine hits all alike. `spent_ns` is what each has taken
    /// so far: whoever has used up the budget is left out of the round whole, since half a round is no A/A pair.
    pub fn round(&self, round: u32, spent_ns: &[u64]) -> Vec<usize> {
        let takes_part = |i: &usize| round < MIN_ROUNDS || spent_ns[*i] < self.budget_ns;
        let mut order: Vec<usize> = (0..spent_ns.len()).filter(takes_part).collect();
        for i in (1..order.len()).rev() {
            let [draw, ..] = philox(self.key, (round as u64) << 32 | i as u64);
            order.swap(i, draw as usize % (i + 1));
        }
        order.extend_from_within(..);
        let half = order.len() / 2;
        order[half..].reverse();
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURNS: Turns = Turns { rounds: 10, budget_ns: 1000, key: 3 };

    #[test]
    fn each_comes_as_often_before_as_after_each_other() {
        for round in 0..10 {
            let order = TURNS.round(round, &[0; 5]);
            for a in 0..5 {
                for b in (0..5).filter(|b| *b != a) {
                    let places = |of: usize| -> Vec<usize> { (0..10).filter(|p| order[*p] == of).collect() };
                    let (ours, theirs) = (places(a), places(b));
                    let before: usize = ours.iter().map(|p| theirs.iter().filter(|q| p < *q).count()).sum();
                    assert_eq!(before, 2, "{a} and {b} in {order:?}");
                }
            }
        }
    }

    #[test]
    fn orders_differ_between_rounds_and_runs() {
        let firsts: std::collections::HashSet<Vec<usize>> = (0..10).map(|r| TURNS.round(r, &[0; 5])).collect();
        assert!(firsts.len() > 5);
        assert_ne!(Turns { key: 4, ..TURNS }.round(0, &[0; 8]), TURNS.round(0, &[0; 8]));
    }

    #[test]
    fn who_has_spent_the_budget_is_left_out_whole_but_not_before_the_third_round() {
        assert_eq!(TURNS.round(2, &[2000, 0]).len(), 4);
        assert_eq!(TURNS.round(3, &[2000, 0]), [1, 1]);
        assert_eq!(TURNS.slice_ns(), 50);
    }
}
