//! The gate: oracle and output in, verdict out. Numbers only; whoever holds the memory calls it.
//!
//! Every element is judged against what a correct kernel may do: compute in the accumulator's precision, then round
//! once. So an element may be off by half a spacing of the output's dtype at that value, plus the op's `slack` there
//! (accumulator roundoff times the magnitude of what was summed). There is no fixed tolerance. On top of the worst
//! element, each region's RMS error is held against that of the twin, the oracle rounded to the output's dtype.

use crate::dtype::DType;
use crate::tensor::{TensorSpec, View};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;

/// A run of consecutive elements of one output as the oracle sees them.
pub struct Block<'a> {
    pub tensor: &'static str,
    pub start: usize,
    pub expect: &'a [f64],
    /// How far a correct kernel may be off before its final rounding, absolute. Infinite: the contract says nothing
    /// about this element, and whatever stands there is right.
    pub slack: &'a [f64],
    pub region: Region<'a>,
}

#[derive(Clone, Copy)]
pub enum Region<'a> {
    One(u8),
    Each(&'a [u8]),
}

pub trait Sink: Sync {
    fn put(&self, block: Block);
}

/// A fact about an output that must hold whatever the rounding.
pub enum Invariant {
    /// Each row of the tensor adds up to `to`.
    RowSum { tensor: &'static str, to: f64 },
}

/// Slack of a sum over `terms` terms in precision `acc`, as a factor of the sum of magnitudes: a few roundings, plus
/// the random walk of the partial sums. A sum in partial sums, as any parallel kernel makes it, stays far inside; one
/// long chain of f32 additions drifts by up to about 2*sqrt(n) units and may not.
pub fn sum_slack(acc: DType, terms: usize) -> f64 {
    acc.unit() * (8.0 + (terms as f64).sqrt())
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verify {
    /// How many launches were checked, each with fresh values.
    pub checks: u32,
    /// Output elements compared, all checks together.
    pub elements: u64,
    pub regions: Vec<RegionError>,
    /// What is wrong, one line each; empty for a right answer.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RegionError {
    pub tensor: String,
    pub region: String,
    pub elements: u64,
    pub wrong: u64,
    /// Largest error as a multiple of what is allowed at that element; infinite errors are stored as 1e300.
    pub worst: f64,
    /// RMS error relative to the RMS of the expected values.
    pub rms: f64,
    /// The same for the oracle rounded to the output's dtype.
    pub twin_rms: f64,
}

impl Verify {
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.checks > 0
    }

    /// Adds the findings of another check of the same case.
    pub fn merge(&mut self, other: Verify) {
        self.checks += other.checks;
        self.elements += other.elements;
        self.problems.extend(other.problems);
        for r in other.regions {
            match self.regions.iter_mut().find(|m| m.tensor == r.tensor && m.region == r.region) {
                None => self.regions.push(r),
                Some(m) => {
                    m.elements += r.elements;
                    m.wrong += r.wrong;
                    m.worst = m.worst.max(r.worst);
                    m.rms = m.rms.max(r.rms);
                    m.twin_rms = m.twin_rms.max(r.twin_rms);
                }
            }
        }
    }
}

/// What comparing the elements of one region of one output came to.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Tally {
    pub elements: u64,
    pub wrong: u64,
    /// Largest error as a multiple of what is allowed there.
    pub worst: f64,
    /// Index, output, expectation and allowance of the worst element; the lowest index wins a tie, so the report is
    /// stable.
    pub worst_at: Option<(usize, f64, f64, f64)>,
    pub err2: f64,
    pub twin2: f64,
    pub slack2: f64,
    pub expect2: f64,
}

impl Tally {
    fn add(&mut self, index: usize, got: f64, expect: f64, slack: f64, dtype: DType) {
        if slack == f64::INFINITY {
            return; // nobody's business: a padding row
        }
        let twin = dtype.round(expect);
        let allowed = allowed(dtype, expect, slack);
        let err = match got {
            _ if got == expect => 0.0,
            _ if got == twin => (twin - expect).abs().min(allowed),
            _ => (got - expect).abs(),
        };
        let ratio = if err <= allowed { if allowed > 0.0 { err / allowed } else { 0.0 } } else { err / allowed };
        let ratio = if ratio.is_finite() { ratio } else { 1e300 };
        self.elements += 1;
        self.wrong += u64::from(ratio > 1.0);
        let worse = ratio > self.worst || (ratio == self.worst && self.worst_at.is_some_and(|w| index < w.0));
        if self.worst_at.is_none() || worse {
            self.worst = ratio;
            self.worst_at = Some((index, got, expect, allowed));
        }
        if twin.is_finite() {
            self.err2 += err * err;
            self.twin2 += (twin - expect).powi(2);
            self.slack2 += slack * slack;
            self.expect2 += expect * expect;
        }
    }

    fn merge(&mut self, o: &Tally) {
        self.elements += o.elements;
        self.wrong += o.wrong;
        let earlier = matches!((o.worst_at, self.worst_at), (Some(a), Some(b)) if a.0 < b.0);
        if self.worst_at.is_none() || o.worst > self.worst || (o.worst == self.worst && earlier) {
            self.worst = o.worst;
            self.worst_at = o.worst_at;
        }
        self.err2 += o.err2;
        self.twin2 += o.twin2;
        self.slack2 += o.slack2;
        self.expect2 += o.expect2;
    }
}

/// How far an element may be off. An exact zero with no slack (an ignored row) must be exactly zero.
pub fn allowed(dtype: DType, expect: f64, slack: f64) -> f64 {
    if expect == 0.0 && slack == 0.0 {
        return 0.0;
    }
    // Kernels may flush results below the smallest normal f32 to zero, as GPUs do in their fast modes.
    let flush = if expect.abs() < 1e-37 && dtype != DType::F64 { f32::MIN_POSITIVE as f64 } else { 0.0 };
    0.5 * dtype.spacing(expect.abs() + slack) * (1.0 + 1e-9) + slack + flush
}

/// Compares the outputs in `view` with what an oracle puts into it.
pub struct Gate<'a> {
    view: &'a View<'a>,
    regions: &'static [&'static str],
    row_sums: Vec<(&'static str, f64)>,
    state: Mutex<Findings>,
}

/// Everything that a comparison found, whoever made it: the gate here, or kernels on a card.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// One tally per tensor and region, in the order of the specs.
    pub tallies: Vec<Tally>,
    /// Elements that the oracle spoke about, per tensor.
    pub seen: Vec<u64>,
    /// One per invariant.
    pub bad_rows: Vec<BadRows>,
}

/// Rows that break an invariant, and the first of them with its sum and the limit.
#[derive(Clone, Copy, Default, Debug)]
pub struct BadRows {
    pub count: u64,
    pub first: Option<(usize, f64, f64)>,
}

impl Findings {
    pub fn new(specs: usize, regions: usize, invariants: usize) -> Findings {
        Findings {
            tallies: vec![Tally::default(); specs * regions],
            seen: vec![0; specs],
            bad_rows: vec![BadRows::default(); invariants],
        }
    }

    /// The verdict. `regions` and `row_sums` (tensor and sum) are the op's.
    pub fn verify(&self, specs: &[TensorSpec], regions: &[&str], row_sums: &[(&'static str, f64)]) -> Verify {
        let mut v = Verify { checks: 1, ..Verify::default() };
        for (t, spec) in specs.iter().enumerate().filter(|(_, s)| s.role.is_output()) {
            assert_eq!(self.seen[t], spec.elems() as u64, "the oracle must cover {} exactly once", spec.name);
            for (r, name) in regions.iter().enumerate() {
                let tally = &self.tallies[t * regions.len() + r];
                if tally.elements > 0 {
                    v.elements += tally.elements;
                    v.problems.extend(tally.problems(spec, name));
                    v.regions.push(tally.report(spec, name));
                }
            }
        }
        for ((tensor, to), BadRows { count, first }) in row_sums.iter().zip(&self.bad_rows) {
            if let Some((row, sum, limit)) = first {
                v.problems.push(format!(
                    "{tensor}: {count} rows do not add up to {to}; row {row} adds up to {sum:.6e}, {limit:.1e} off at most"
                ));
            }
        }
        v
    }
}

/// Tensor and sum of each invariant.
pub fn row_sums(invariants: Vec<Invariant>) -> Vec<(&'static str, f64)> {
    invariants.into_iter().map(|Invariant::RowSum { tensor, to }| (tensor, to)).collect()
}

impl<'a> Gate<'a> {
    /// `regions` and `invariants` are the op's.
    pub fn new(view: &'a View<'a>, regions: &'static [&'static str], invariants: Vec<Invariant>) -> Gate<'a> {
        let row_sums = row_sums(invariants);
        let state = Mutex::new(Findings::new(view.specs.len(), regions.len(), row_sums.len()));
        Gate { view, regions, row_sums, state }
    }

    pub fn finish(self) -> Verify {
        let found = self.state.into_inner().expect("no thread panicked in the gate");
        found.verify(self.view.specs, self.regions, &self.row_sums)
    }
}

impl Sink for Gate<'_> {
    fn put(&self, block: Block) {
        let t = self.view.specs.iter().position(|s| s.name == block.tensor).expect("an output of the op");
        let spec = &self.view.specs[t];
        let len = block.expect.len();
        assert_eq!(len, block.slack.len());
        let got = self.view.take(block.tensor, block.start, len);
        let mut tallies = vec![Tally::default(); self.regions.len()];
        for i in 0..len {
            let region = match block.region {
                Region::One(r) => r,
                Region::Each(rs) => rs[i],
            };
            tallies[region as usize].add(block.start + i, got[i], block.expect[i], block.slack[i], spec.dtype);
        }
        let sums: Vec<_> = self
            .row_sums
            .iter()
            .enumerate()
            .filter(|(_, (tensor, _))| *tensor == block.tensor)
            .map(|(i, (_, to))| (i, bad_rows(spec, &block, &got, *to)))
            .collect();
        let mut state = self.state.lock().expect("no thread panicked in the gate");
        state.seen[t] += len as u64;
        for (r, tally) in tallies.iter().enumerate() {
            state.tallies[t * self.regions.len() + r].merge(tally);
        }
        for (i, bad) in sums {
            let total = &mut state.bad_rows[i];
            total.count += bad.count;
            let row = |first: &Option<(usize, f64, f64)>| first.map_or(usize::MAX, |f| f.0);
            if row(&bad.first) < row(&total.first) {
                total.first = bad.first;
            }
        }
    }
}

/// Rows of the block whose sum is further from `to` than the twin's own sum, the slack and a few roundings explain.
fn bad_rows(spec: &TensorSpec, block: &Block, got: &[f64], to: f64) -> BadRows {
    let n = *spec.shape.last().expect("a row sum needs rows");
    assert!(block.start.is_multiple_of(n) && got.len().is_multiple_of(n), "row sums need whole rows in a block");
    let mut bad = BadRows::default();
    for (i, row) in got.chunks(n).enumerate() {
        let at = i * n..(i + 1) * n;
        let (mut twin, mut half2) = (0.0, 0.0);
        for e in &block.expect[at.clone()] {
            twin += spec.dtype.round(*e);
            half2 += (0.5 * spec.dtype.spacing(*e)).powi(2);
        }
        // Rows that the contract makes something else (all zero when ignored) have a twin that is exactly that.
        let exact: f64 = block.expect[at.clone()].iter().sum();
        if (exact - to).abs() > 1e-6 {
            continue;
        }
        let limit = (twin - to).abs() + block.slack[at].iter().sum::<f64>() + 4.0 * half2.sqrt();
        let sum: f64 = row.iter().sum();
        if (sum - to).abs() > limit {
            bad.count += 1;
            bad.first = bad.first.or(Some((block.start / n + i, sum, limit)));
        }
    }
    bad
}

impl Tally {
    /// RMS limit: a quarter above the twin's, plus half the slack's. Small regions say too little for an RMS.
    pub fn rms_is_off(&self) -> bool {
        self.elements >= 64 && self.err2.sqrt() > 1.25 * self.twin2.sqrt() + 0.5 * self.slack2.sqrt()
    }

    fn problems(&self, spec: &TensorSpec, region: &str) -> Option<String> {
        let (index, got, expect, allowed) = self.worst_at?;
        let part = if region == "all" { String::new() } else { format!(" in region {region}") };
        let place = format!("{}{}", spec.name, spec.place(index));
        if self.wrong > 0 {
            let got = if got.is_nan() { "NaN (computed, or never written)".into() } else { format!("{got:.6e}") };
            return Some(format!(
                "{} of {} elements of {}{part} are wrong; {place} is {got}, expected {expect:.6e} ± {allowed:.1e}",
                self.wrong, self.elements, spec.name
            ));
        }
        self.rms_is_off().then(|| {
            format!(
                "RMS error of {}{part} is {:.2e}, but rounding explains only {:.2e}; worst is {place}",
                spec.name,
                self.relative(self.err2),
                self.relative(self.twin2)
            )
        })
    }

    fn relative(&self, sum2: f64) -> f64 {
        if sum2 == 0.0 { 0.0 } else { (sum2 / self.expect2.max(f64::MIN_POSITIVE)).sqrt() }
    }

    fn report(&self, spec: &TensorSpec, region: &str) -> RegionError {
        // NaN and infinity have no place in JSON.
        let finite = |v: f64| if v.is_finite() { v } else { 1e300 };
        RegionError {
            tensor: spec.name.into(),
            region: region.into(),
            elements: self.elements,
            wrong: self.wrong,
            worst: finite(self.worst),
            rms: finite(self.relative(self.err2)),
            twin_rms: finite(self.relative(self.twin2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(dtype: DType, got: f64, expect: f64, slack: f64) -> f64 {
        let mut t = Tally::default();
        t.add(0, got, expect, slack, dtype);
        t.worst
    }

    #[test]
    fn a_correctly_rounded_element_passes_and_its_neighbour_does_not() {
        let x = 0.123456789;
        let twin = DType::Bf16.round(x);
        assert!(judge(DType::Bf16, twin, x, 0.0) <= 1.0);
        assert!(judge(DType::Bf16, twin + DType::Bf16.spacing(x), x, 0.0) > 1.0);
        assert!(judge(DType::Bf16, twin - DType::Bf16.spacing(x), x, 0.0) > 1.0);
    }

    #[test]
    fn nan_infinity_and_lost_zeros_are_wrong() {
        assert!(judge(DType::F32, f64::NAN, 1.0, 1e-3) > 1.0);
        assert!(judge(DType::F32, f64::INFINITY, 1.0, 1e-3) > 1.0);
        assert!(judge(DType::F32, 1e-40, 0.0, 0.0) > 1.0);
        assert_eq!(judge(DType::F32, 0.0, 0.0, 0.0), 0.0);
        assert!(judge(DType::F16, f64::INFINITY, 1e6, 0.0) <= 1.0, "overflow is the right answer there");
    }

    #[test]
    fn a_free_element_may_be_anything_and_minus_infinity_must_be_met() {
        assert_eq!(judge(DType::Bf16, f64::NAN, 0.0, f64::INFINITY), 0.0);
        assert_eq!(judge(DType::F32, f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0), 0.0);
        for wrong in [0.0, -1e30, f64::INFINITY, f64::NAN] {
            assert!(judge(DType::F32, wrong, f64::NEG_INFINITY, 0.0) > 1.0, "{wrong}");
        }
    }

    #[test]
    fn small_values_are_judged_at_their_own_scale() {
        // 1e-4 in bf16 under a fixed tolerance of 1e-2 could be anything; here it cannot be zero.
        assert!(judge(DType::Bf16, 0.0, 1e-4, 1e-9) > 100.0);
    }
}
