//! The machine's measured limits: the `stream` op in its four patterns, by the same workers and the same clock.

use crate::bench::family;
use crate::host::{Limits, Workers};
use indexmap::IndexMap;
use kmark_core::case::{Case, DEFAULT_SEED};
use kmark_core::cost::Roofs;
use kmark_core::dtype::DType;
use kmark_core::record::Mode;
use kmark_core::stats::quantile;
use kmark_core::stop::StopRule;
use kmark_core::wire::{Reply, Request, Warmup};
use std::time::Duration;

/// 64 MiB a tensor: beyond the cache that one program can count on, small enough to take a second.
const ELEMS: u64 = 16 << 20;

/// `None` if it cannot be measured here; then rows have no percentage.
pub fn measure(workers: &mut Workers) -> Option<Roofs> {
    if crate::env::available_memory() < 1 << 30 {
        return None;
    }
    Some(Roofs {
        copy: pattern(workers, "copy")?,
        read: pattern(workers, "read")?,
        write: pattern(workers, "write")?,
        triad: pattern(workers, "triad")?,
    })
}

/// Bytes per second of one pattern at its best: the fastest impl, and of its samples the 5 % quantile, because a limit
/// is what the machine can do when nothing disturbs it.
fn pattern(workers: &mut Workers, kind: &str) -> Option<f64> {
    let entry = kmark_ops::find("stream")?;
    let axes = IndexMap::from([("n".to_string(), ELEMS)]);
    let attrs = IndexMap::from([("kind".to_string(), kind.to_string())]);
    let case = Case::new(entry.op, DType::F32, &axes, &attrs, DEFAULT_SEED).ok()?;
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
        Reply::Sampled { samples_ns, .. } => {
            Some(entry.op.cost(&case).bytes() as f64 / quantile(&samples_ns, 0.05) * 1e9)
        }
        _ => None,
    }
}
