//! The machine's measured limits: the `stream` op in its four patterns, and the best matrix product of each kind that
//! the run needs, by the same workers and the same clock.

use crate::device::Choice;
use crate::faults;
use crate::host::{Limits, Workers};
use crate::impls::impls_of;
use crate::plan::Plan;
use indexmap::IndexMap;
use kmark_core::case::{Case, DEFAULT_SEED};
use kmark_core::cost::{Cost, Factors, Roofs};
use kmark_core::dtype::DType;
use kmark_core::record::{Conditions, DeviceId, Mode, family};
use kmark_core::run::Run;
use kmark_core::stats::{median, quantile};
use kmark_core::stop::StopRule;
use kmark_core::wire::{Check, Reply, Request, Warmup};
use kmark_device::Fault;
use kmark_ops::Entry;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const PATTERNS: [&str; 4] = ["copy", "read", "write", "triad"];
/// A case that computes more than this per byte may be limited by it.
const FLOPS_PER_BYTE: u64 = 4;

/// Bytes of a tensor of f32 that memory is measured on. On a CPU beyond the cache that one program can count on, small
/// enough to take a second; on a small GPU less, so that three leave room.
const HOST_BYTES: u64 = 64 << 20;
const GPU_BYTES: u64 = 4 << 30;

/// How large a measurement is.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Elements of a tensor of f32.
    elems: u64,
    /// Rows and columns of the product.
    side: u64,
    budget: Duration,
}

impl Scale {
    /// What the device of the workers needs to show what it can do.
    pub fn of(workers: &Workers) -> Scale {
        match workers.device() {
            Choice::Cpu => Scale { elems: HOST_BYTES / 4, side: 1024, budget: Duration::from_millis(250) },
            Choice::Cuda(_) => {
                let memory = workers.hellos.values().filter_map(|h| h.memory).min().unwrap_or(u64::MAX);
                Scale { elems: (memory / 8).min(GPU_BYTES) / 4, side: 8192, budget: Duration::from_millis(400) }
            }
        }
    }

    /// In no more time than that.
    fn within(self, budget: Duration) -> Scale {
        Scale { budget: self.budget.min(budget), ..self }
    }

    /// As much traffic and arithmetic as a case has.
    pub fn like(self, cost: &Cost) -> Scale {
        let side = (cost.flops as f64 / 2.0).cbrt() as u64;
        Scale { elems: (cost.bytes() / 8).clamp(1, self.elems), side: side.clamp(1, self.side), ..self }
    }
}

/// One limit, and how the machine was when it was reached.
#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    /// Bytes or FLOP per second.
    pub rate: f64,
    #[serde(rename = "impl")]
    pub impl_name: String,
    pub case: String,
    pub median_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
}

/// Or why it could not be measured.
pub type Measured<T> = std::result::Result<T, String>;

/// Whether a run needs more than is known.
pub fn are_lacking(known: Option<&Roofs>, plan: &Plan) -> bool {
    known.is_none() || !lacking(known, plan).is_empty()
}

/// Products whose roofs are among that.
fn lacking(known: Option<&Roofs>, plan: &Plan) -> BTreeSet<Factors> {
    let mut all = products(plan);
    all.retain(|factors| known.is_none_or(|roofs| !roofs.matrix.contains_key(factors)));
    all
}

/// What a run needs and does not know, each limit within the run's budget. If it cannot be measured here, rows have no
/// percentage.
pub fn measure(workers: &mut Workers, known: Option<Roofs>, plan: &Plan, budget: Duration) -> Measured<Roofs> {
    if crate::env::available_memory() < 1 << 30 {
        return Err("less than 1 GiB of memory is available".into());
    }
    let scale = Scale::of(workers).within(budget);
    let mut matrix = known.as_ref().map_or_else(BTreeMap::new, |roofs| roofs.matrix.clone());
    for factors in lacking(known.as_ref(), plan) {
        matrix.insert(factors, product(workers, factors, scale)?.rate);
    }
    if let Some(known) = known {
        return Ok(Roofs { matrix, ..known });
    }
    let mut rate = |kind| pattern(workers, kind, scale).map(|l| l.rate);
    let (copy, read, write, triad) = (rate("copy")?, rate("read")?, rate("write")?, rate("triad")?);
    Ok(Roofs { copy, read, write, triad, matrix, cache_bytes: workers.device().cache_bytes() })
}

/// What products multiply that may limit a case.
fn products(plan: &Plan) -> BTreeSet<Factors> {
    let much = plan.items.iter().filter(|p| {
        let cost = p.entry.op.cost(&p.case);
        cost.flops > FLOPS_PER_BYTE * cost.bytes()
    });
    // On a CPU narrower dtypes are computed in their accumulator's.
    let of = |case: &Case| match Factors::of(case.dtype, &case.attrs) {
        Factors::Of(_) if plan.device() == Choice::Cpu => Factors::Of(case.acc()),
        factors => factors,
    };
    much.map(|p| of(&p.case)).collect()
}

/// Takes what an earlier run measured, which must have been on the same devices.
pub fn reuse(run: &mut Run, earlier: &Run) -> std::result::Result<(), String> {
    let of = |device: &DeviceId| {
        let among = earlier.gpus.iter().find(|g| g.device == *device).and_then(|g| g.roofs.clone());
        let roofs = among.or_else(|| earlier.roofs.clone().filter(|_| earlier.device == *device));
        roofs.ok_or_else(|| format!("it has no roofs of {} ({})", device.name, device.id))
    };
    run.roofs = Some(of(&run.device)?);
    for gpu in &mut run.gpus {
        gpu.roofs = Some(of(&gpu.device)?);
    }
    run.roofs_from = Some(earlier.roofs_from.clone().unwrap_or_else(|| earlier.started.clone()));
    Ok(())
}

/// The same limits measured once more, the higher of each: something may have disturbed the machine the first time.
pub fn again(workers: &mut Workers, known: &Roofs, scale: Scale) -> Roofs {
    let mut higher = |kind, rate: f64| pattern(workers, kind, scale).map_or(rate, |l| l.rate.max(rate));
    let (copy, read) = (higher("copy", known.copy), higher("read", known.read));
    let (write, triad) = (higher("write", known.write), higher("triad", known.triad));
    let mut matrix = known.matrix.clone();
    for (factors, rate) in &mut matrix {
        *rate = product(workers, *factors, scale).map_or(*rate, |l| l.rate.max(*rate));
    }
    Roofs { copy, read, write, triad, matrix, cache_bytes: known.cache_bytes }
}

/// FLOP per second of a square product.
pub fn product(workers: &mut Workers, factors: Factors, scale: Scale) -> Measured<Limit> {
    let axes = ["m", "n", "k"].map(|axis| (axis.to_string(), scale.side));
    // Both operands along k, as every fast path of every dtype has them.
    let layout = if workers.device() == Choice::Cpu { "nn" } else { "nt" };
    let (dtype, tf32) = match factors {
        Factors::Of(dtype) => (dtype, "no"),
        Factors::Tf32 => (DType::F32, "yes"),
    };
    let attrs = [("layout", layout), ("tf32", tf32)].map(|(name, value)| (name.to_string(), value.to_string()));
    let case = case_of("gemm", dtype, IndexMap::from(axes), IndexMap::from(attrs))?;
    best(workers, case, scale, &|cost| cost.flops)
}

/// Bytes per second of one pattern.
pub fn pattern(workers: &mut Workers, kind: &str, scale: Scale) -> Measured<Limit> {
    let axes = IndexMap::from([("n".to_string(), scale.elems)]);
    let attrs = IndexMap::from([("kind".to_string(), kind.to_string())]);
    let case = case_of("stream", DType::F32, axes, attrs)?;
    best(workers, case, scale, &Cost::bytes)
}

fn case_of(
    op: &str,
    dtype: DType,
    axes: IndexMap<String, u64>,
    attrs: IndexMap<String, String>,
) -> Measured<(&'static Entry, Case)> {
    let entry = kmark_ops::find(op).expect("an op of ours");
    Ok((entry, entry.op.case(dtype, &axes, &attrs, DEFAULT_SEED)?))
}

/// A case at its best: the fastest impl, and of its samples the 5 % quantile, because a limit is what the machine can do
/// when nothing disturbs it.
fn best(
    workers: &mut Workers,
    (entry, case): (&'static Entry, Case),
    scale: Scale,
    work: &dyn Fn(&Cost) -> u64,
) -> Measured<Limit> {
    let impls = impls_of(entry, workers.device().kind()).into_iter().filter(|i| i.supports(entry.op, &case).is_ok());
    // The plain loops of a CPU are no limit of anything.
    let counts = |name: &str| match faults::spoil_roofs() {
        true => name == "fault/crash",
        false => name != "cpu/naive" && !name.starts_with(faults::FAMILY),
    };
    let ours: Vec<_> = impls.filter(|i| counts(i.name())).collect();
    let work = work(&entry.op.cost(&case)) as f64;
    let mut found: Measured<Limit> = Err(format!("no impl has {}", case.id));
    for imp in ours {
        match (sample(workers, &case, imp.name(), scale, work), &found) {
            (Ok(new), Ok(best)) if new.rate <= best.rate => {}
            (Err(_), Ok(_)) => {}
            (new, _) => found = new,
        }
    }
    found
}

fn sample(workers: &mut Workers, case: &Case, name: &str, scale: Scale, work: f64) -> Measured<Limit> {
    let why = |f: Fault| format!("{name} on {}: {}", case.id, f.message.lines().next().unwrap_or(""));
    let (family, impl_name) = (family(name), name.to_string());
    let limits = Limits { time: Duration::from_secs(120), memory: u64::MAX };
    let prepare = Request::Prepare { case: case.clone(), impl_name: impl_name.clone(), mode: Mode::Cold, check: false };
    workers.ask(&family, &prepare, limits).map_err(why)?;
    let budget_ns = scale.budget.as_nanos() as u64;
    let rule = StopRule { precision: 0.001, budget_ns, min_samples: 10, max_samples: 100 };
    let warmup = Warmup::UntilSteady { limit_ns: budget_ns.min(100_000_000) };
    let sample = Request::Sample { impl_name: impl_name.clone(), rule, warmup, check: Check::Off };
    let reply = workers.ask(&family, &sample, limits);
    let Reply::Sampled { samples_ns, clock_mhz, conditions, .. } = reply.map_err(why)? else {
        return Err(format!("{name} on {}: the worker answered something else", case.id));
    };
    workers.ask(&family, &Request::Release, limits).map_err(why)?;
    Ok(Limit {
        rate: work / (quantile(&samples_ns, 0.05) * 1e-9),
        impl_name,
        case: case.id.clone(),
        median_ns: median(&samples_ns),
        clock_mhz: (!clock_mhz.is_empty()).then(|| median(&clock_mhz)),
        conditions,
    })
}
