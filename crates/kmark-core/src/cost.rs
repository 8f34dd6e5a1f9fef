//! What a case must move and compute at the least, by its contract; and the measured limit of a machine beside it.

use crate::dtype::DType;
use crate::spelling::unknown;
use crate::tensor::{Role, TensorSpec};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Compulsory bytes and floating-point operations of a contract: each input read once, each output written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cost {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub flops: u64,
}

impl Cost {
    /// Of a contract that needs every tensor once.
    pub fn of(tensors: &[TensorSpec], flops: u64) -> Cost {
        let bytes = |is: fn(Role) -> bool| -> u64 {
            tensors.iter().filter(|t| is(t.role)).map(|t| (t.elems() * t.dtype.size()) as u64).sum()
        };
        Cost { bytes_read: bytes(Role::is_input), bytes_written: bytes(Role::is_output), flops }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes_read.saturating_add(self.bytes_written)
    }
}

/// The machine's measured limits: in bytes per second, one per traffic pattern, and in FLOP per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Roofs {
    pub copy: f64,
    pub read: f64,
    pub write: f64,
    pub triad: f64,
    /// The best matrix product, by dtype, and `tf32`; where a dtype has none, that of its accumulator counts.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, f64>")]
    pub matrix: BTreeMap<Factors, f64>,
    /// Bytes of the cache before a GPU's memory, in which as much of what a launch wrote may lie when it ends. Absent
    /// where that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache_bytes: Option<u64>,
}

/// What a product multiplies: a dtype, or the eleven bits that tensor cores read of an f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Factors {
    Of(DType),
    Tf32,
}

impl Factors {
    pub fn of(dtype: DType, attrs: &IndexMap<String, String>) -> Factors {
        let tf32 = attrs.get("tf32").is_some_and(|v| v == "yes");
        if tf32 { Factors::Tf32 } else { Factors::Of(dtype) }
    }
}

impl fmt::Display for Factors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Factors::Of(dtype) => dtype.fmt(f),
            Factors::Tf32 => f.pad("tf32"),
        }
    }
}

impl From<Factors> for String {
    fn from(factors: Factors) -> String {
        factors.to_string()
    }
}

impl TryFrom<String> for Factors {
    type Error = String;
    fn try_from(word: String) -> Result<Factors, String> {
        let known = DType::ALL.map(Factors::Of).into_iter().chain([Factors::Tf32]);
        let names: Vec<String> = known.clone().map(String::from).collect();
        let found = known.zip(&names).find(|(_, name)| **name == word).map(|(factors, _)| factors);
        found.ok_or_else(|| unknown("dtype", &word, names.iter().map(String::as_str)))
    }
}

/// The best product that was measured is no hard limit: another shape may suit the machine better by so much.
const MATRIX_MARGIN: f64 = 1.25;
/// Nor is a pattern of traffic: a kernel whose mix of reads and writes lies between two patterns, or whose bursts suit the
/// memory better, is faster by a little (0.8 % seen on an H200).
const TRAFFIC_MARGIN: f64 = 1.01;

impl Roofs {
    /// Seconds below which a time of the case cannot be true, margins included: no launch on a cold cache can have moved
    /// its bytes or done its arithmetic in less.
    pub fn impossible_seconds(&self, cost: &Cost, factors: Factors) -> f64 {
        let matrix = self.for_flops(factors).map_or(0.0, |roof| cost.flops as f64 / roof);
        (self.least_traffic_seconds(cost) / TRAFFIC_MARGIN).max(matrix / MATRIX_MARGIN)
    }

    /// Seconds below which no launch can have moved the bytes of the case: what it read came from memory, what it wrote
    /// may still be on its way there.
    pub fn least_traffic_seconds(&self, cost: &Cost) -> f64 {
        let kept = self.cache_bytes.unwrap_or(0).min(cost.bytes_written);
        let moved = Cost { bytes_written: cost.bytes_written - kept, ..*cost };
        moved.bytes() as f64 / self.for_traffic(&moved)
    }

    /// The roof whose share of writes is nearest to the case's own: a reduction is held against `read`, a norm against
    /// `copy`. Holding a pure reader against the copy roof would show more than 100 %, or hide 30 % of it.
    pub fn for_traffic(&self, cost: &Cost) -> f64 {
        let share = cost.bytes_written as f64 / cost.bytes().max(1) as f64;
        [(0.0, self.read), (1.0 / 3.0, self.triad), (0.5, self.copy), (1.0, self.write)]
            .into_iter()
            .min_by(|a, b| (a.0 - share).abs().total_cmp(&(b.0 - share).abs()))
            .map(|(_, roof)| roof)
            .expect("four roofs")
    }

    /// FLOP per second, if a matrix product of that kind was measured.
    pub fn for_flops(&self, factors: Factors) -> Option<f64> {
        let of_accumulator = || match factors {
            Factors::Of(dtype) => self.matrix.get(&Factors::Of(dtype.accumulator())),
            Factors::Tf32 => None,
        };
        self.matrix.get(&factors).or_else(of_accumulator).copied()
    }

    /// Seconds that the case takes at the least: its traffic or its arithmetic, whichever is longer.
    pub fn least_seconds(&self, cost: &Cost, factors: Factors) -> f64 {
        let traffic = cost.bytes() as f64 / self.for_traffic(cost);
        self.for_flops(factors).map_or(traffic, |roof| traffic.max(cost.flops as f64 / roof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_held_against_its_own_kind_of_traffic() {
        let mut roofs =
            Roofs { copy: 1.0, read: 2.0, write: 3.0, triad: 4.0, matrix: BTreeMap::new(), cache_bytes: None };
        let cost = |bytes_read, bytes_written| Cost { bytes_read, bytes_written, flops: 0 };
        assert_eq!(roofs.for_traffic(&cost(100, 0)), 2.0);
        assert_eq!(roofs.for_traffic(&cost(100, 4)), 2.0);
        assert_eq!(roofs.for_traffic(&cost(200, 100)), 4.0);
        assert_eq!(roofs.for_traffic(&cost(100, 100)), 1.0);
        assert_eq!(roofs.for_traffic(&cost(0, 100)), 3.0);
        assert_eq!(roofs.least_traffic_seconds(&cost(100, 100)), 200.0);
        roofs.cache_bytes = Some(60);
        assert_eq!(roofs.least_traffic_seconds(&cost(100, 100)), 140.0 / 4.0);
        assert_eq!(roofs.least_traffic_seconds(&cost(100, 50)), 100.0 / 2.0);
    }

    #[test]
    fn arithmetic_limits_a_case_that_computes_much() {
        let matrix = BTreeMap::from([(Factors::Of(DType::F32), 100.0), (Factors::Tf32, 500.0)]);
        let roofs = Roofs { copy: 10.0, read: 10.0, write: 10.0, triad: 10.0, matrix, cache_bytes: None };
        let cost = |flops| Cost { bytes_read: 50, bytes_written: 50, flops };
        let of = Factors::Of;
        assert_eq!(roofs.least_seconds(&cost(10), of(DType::F32)), 10.0);
        assert_eq!(roofs.least_seconds(&cost(5000), of(DType::Bf16)), 50.0, "bf16 accumulates in f32");
        assert_eq!(roofs.least_seconds(&cost(5000), of(DType::F64)), 10.0, "no roof of that kind");
        assert_eq!(roofs.impossible_seconds(&cost(5000), of(DType::F32)), 40.0);
        assert_eq!(roofs.impossible_seconds(&cost(5000), Factors::Tf32), 10.0 / 1.01);
        let written = serde_json::to_string(&roofs).unwrap();
        assert!(written.contains(r#""matrix":{"f32":100.0,"tf32":500.0}"#), "{written}");
        assert_eq!(serde_json::from_str::<Roofs>(&written).unwrap(), roofs);
        let unknown = Factors::try_from("tf33".to_string()).unwrap_err();
        assert!(unknown.starts_with("unknown dtype 'tf33'; did you mean 'tf32'?"), "{unknown}");
        assert_eq!(roofs.impossible_seconds(&cost(10), of(DType::F32)), 10.0 / 1.01);
    }
}
