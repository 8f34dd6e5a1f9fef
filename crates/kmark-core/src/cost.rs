//! What a case must move and compute at the least, by its contract; and the measured limit of a machine beside it.

use serde::{Deserialize, Serialize};

/// Compulsory bytes and floating-point operations of a contract: each input read once, each output written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cost {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub flops: u64,
}

impl Cost {
    pub fn bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }
}

/// The machine's measured limits in bytes per second, one per traffic pattern.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Roofs {
    pub copy: f64,
    pub read: f64,
    pub write: f64,
    pub triad: f64,
}

impl Roofs {
    /// The roof whose share of writes is nearest to the case's own: a reduction is held against `read`, a norm against
    /// `copy`. Holding a pure reader against the copy roof would show more than 100 %, or hide 30 % of it.
    pub fn for_cost(&self, cost: &Cost) -> f64 {
        let share = cost.bytes_written as f64 / cost.bytes().max(1) as f64;
        [(0.0, self.read), (1.0 / 3.0, self.triad), (0.5, self.copy), (1.0, self.write)]
            .into_iter()
            .min_by(|a, b| (a.0 - share).abs().total_cmp(&(b.0 - share).abs()))
            .map(|(_, roof)| roof)
            .expect("four roofs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_held_against_its_own_kind_of_traffic() {
        let roofs = Roofs { copy: 1.0, read: 2.0, write: 3.0, triad: 4.0 };
        let cost = |bytes_read, bytes_written| Cost { bytes_read, bytes_written, flops: 0 };
        assert_eq!(roofs.for_cost(&cost(100, 0)), 2.0);
        assert_eq!(roofs.for_cost(&cost(100, 4)), 2.0);
        assert_eq!(roofs.for_cost(&cost(200, 100)), 4.0);
        assert_eq!(roofs.for_cost(&cost(100, 100)), 1.0);
        assert_eq!(roofs.for_cost(&cost(0, 100)), 3.0);
    }
}
