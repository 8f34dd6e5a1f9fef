//! The machine's measured limits: the `stream` op in its four patterns, and the best matrix product of each kind that
//! the run needs, by the same workers and the same clock.

use crate::host::{Limits, Workers};
use crate::plan::Plan;
use indexmap::IndexMap;
use kmark_core::case::{Case, DEFAULT_SEED};
use kmark_core::cost::{Cost, Roofs};
use kmark_core::dtype::DType;
use kmark_core::record::{Mode, family};
use kmark_core::stats::quantile;
use kmark_core::stop::StopRule;
use kmark_core::wire::{Reply, Request, Warmup};
use std::collections::BTreeMap;
use std::time::Duration;

/// 64 MiB a tensor: beyond the cache that one program can count on, small enough to take a second.
const ELEMS: u64 = 16 << 20;

/// Rows and columns of the product: large enough for all cores at full speed.
const SIDE: u64 = 1024;
/// A case that computes more than this per byte may be limited by it.
const FLOPS_PER_BYTE: u64 = 4;

/// `None` if it cannot be measured here; then rows have no percentage.
pub fn measure(workers: &mut Workers, plan: &Plan) -> Option<Roofs> {
    if crate::env::available_memory() < 1 << 30 {
        return None;
    }
    let mut matrix = BTreeMap::new();
    for p in &plan.items {
        let (cost, dtype) = (p.entry.op.cost(&p.case), p.case.acc());
        if cost.flops > FLOPS_PER_BYTE * cost.bytes() && !matrix.contains_key(&dtype) {
            matrix.insert(dtype, product(workers, dtype)?);
        }
    }
    Some(Roofs {
        copy: pattern(workers, "copy")?,
        read: pattern(workers, "read")?,
        write: pattern(workers, "write")?,
        triad: pattern(workers, "triad")?,
        matrix,
    })
}

/// FLOP per second of a square product. On a CPU narrower dtypes are computed in their accumulator's.
fn product(workers: &mut Workers, dtype: DType) -> Option<f64> {
    let axes = ["m", "n", "k"].map(|axis| (axis.to_string(), SIDE));
    let (cost, seconds) = best(workers, "gemm", dtype, IndexMap::from(axes), IndexMap::new())?;
    Some(cost.flops as f64 / seconds)
}

/// Bytes per second of one pattern.
fn pattern(workers: &mut Workers, kind: &str) -> Option<f64> {
    let axes = IndexMap::from([("n".to_string(), ELEMS)]);
    let attrs = IndexMap::from([("kind".to_string(), kind.to_string())]);
    let (cost, seconds) = best(workers, "stream", DType::F32, axes, attrs)?;
    Some(cost.bytes() as f64 / seconds)
}

/// Cost and time of a case at its best: the fastest impl, and of its samples the 5 % quantile, because a limit is what
/// the machine can do when nothing disturbs it.
fn best(
    workers: &mut Workers,
    op: &str,
    dtype: DType,
    axes: IndexMap<String, u64>,
    attrs: IndexMap<String, String>,
) -> Option<(Cost, f64)> {
    let entry = kmark_ops::find(op)?;
    let case = Case::new(entry.op, dtype, &axes, &attrs, DEFAULT_SEED).ok()?;
    let impl_name = entry.impls.last()?.name().to_string();
    let family = family(&impl_name);
    let limits = Limits { time: Duration::from_secs(60), memory: u64::MAX };
    workers.ask(&family, &Request::Prepare { case: case.clone(), impl_name: impl_name.clone() }, limits).ok()?;
    let request = Request::Sample {
        impl_name,
        mode: Mode::Cold,
        rule: StopRule { precision: 0.001, budget_ns: 250_000_000, min_samples: 10, max_samples: 100 },
        warmup: Warmup::UntilSteady { limit_ns: 100_000_000 },
        gate: false,
    };
    let reply = workers.ask(&family, &request, limits).ok()?;
    workers.ask(&family, &Request::Release, limits).ok()?;
    match reply {
        Reply::Sampled { samples_ns, .. } => Some((entry.op.cost(&case), quantile(&samples_ns, 0.05) * 1e-9)),
        _ => None,
    }
}
