//! When to stop sampling: numbers in, a decision out.

use crate::stats::Typical;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StopRule {
    /// Stop when the relative width of the time's 95 % interval is at most this.
    pub precision: f64,
    /// Stop when this much time is spent, flushes and all.
    pub budget_ns: u64,
    pub min_samples: usize,
    pub max_samples: usize,
}

/// What ended a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    Precision,
    Budget,
    Samples,
}

impl StopRule {
    pub fn decide(&self, samples: &[f64], spent_ns: u64) -> Option<Stop> {
        let n = samples.len();
        if n == 0 {
            return None;
        }
        if n >= self.max_samples {
            return Some(Stop::Samples);
        }
        // The interval is worth computing only now and then: when the count has grown by an eighth.
        let look = n.is_multiple_of((n / 8).max(1));
        if n >= self.min_samples && look && self.converged(samples) {
            return Some(Stop::Precision);
        }
        (spent_ns >= self.budget_ns).then_some(Stop::Budget)
    }

    pub fn converged(&self, samples: &[f64]) -> bool {
        Typical::of([samples]).is_some_and(|t| t.width() <= self.precision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StopRule = StopRule { precision: 0.005, budget_ns: 1000, min_samples: 10, max_samples: 100 };

    #[test]
    fn steady_samples_stop_at_the_minimum() {
        let steady = vec![100.0; 10];
        assert_eq!(RULE.decide(&steady[..9], 0), None);
        assert_eq!(RULE.decide(&steady, 0), Some(Stop::Precision));
    }

    #[test]
    fn noisy_samples_run_until_the_budget_or_the_cap() {
        let noisy: Vec<f64> = (0..100).map(|i| 100.0 + (i % 10) as f64).collect();
        assert_eq!(RULE.decide(&noisy[..50], 999), None);
        assert_eq!(RULE.decide(&noisy[..50], 1000), Some(Stop::Budget));
        assert_eq!(RULE.decide(&noisy, 0), Some(Stop::Samples));
    }

    #[test]
    fn one_sample_is_taken_even_when_time_is_up() {
        assert_eq!(RULE.decide(&[], 5000), None);
        assert_eq!(RULE.decide(&[1.0], 5000), Some(Stop::Budget));
    }
}
