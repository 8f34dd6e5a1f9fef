//! The gate: oracle and output in, verdict out. Numbers only; whoever holds the memory calls it.
//!
//! Every element is judged against what a correct kernel may do: compute in the accumulator's precision, then round
//! once. So an element may be off by half a spacing of the output's dtype at that value, plus the op's `slack` there
//! (accumulator roundoff times the magnitude of what was summed). There is no fixed tolerance. Kernels that round on the
//! way as well are held to a second, looser bound, and graded so; `tally` has the rules.

use crate::dtype::DType;
use crate::tally::{Element, Grade, Tally};
use crate::tensor::{TensorSpec, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A run of consecutive elements of one output as the oracle sees them.
pub struct Block<'a> {
    pub tensor: &'static str,
    pub start: usize,
    pub expect: &'a [f64],
    /// How far a correct kernel may be off before its final rounding, absolute. Infinite: the contract says nothing
    /// about this element, and whatever stands there is right.
    pub slack: &'a [f64],
    /// How much further off it may be if it rounds intermediates to the tensor's 16-bit type; empty: nothing more.
    pub loose: &'a [f64],
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
    /// Of a right answer: the loosest of all its checks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub grade: Option<Grade>,
    pub regions: Vec<RegionError>,
    /// What is wrong, one line each; empty for a right answer.
    pub problems: Vec<String>,
    /// Of an op of a user's: where the bound comes from. Built-in ops have bounds of their own making.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bound: Option<Bound>,
    /// Of a problem of another collection: what its own check says of the same outputs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub theirs: Option<Theirs>,
}

/// The verdict of another collection's own check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Theirs {
    /// Whose: the collection, and its rule.
    pub gate: String,
    pub ok: bool,
    /// What it objects to, in its words.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
    /// What it measures by, under its names; of several checks the largest.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub figures: BTreeMap<String, f64>,
}

impl Theirs {
    /// The same with what another check found. Who objects first is heard.
    fn merge(&mut self, other: Theirs) {
        if self.ok {
            (self.ok, self.why) = (other.ok, other.why);
        }
        for (name, value) in other.figures {
            let mine = self.figures.entry(name).or_insert(value);
            *mine = mine.max(value);
        }
    }
}

/// How the bound of a user's op was found, and what it is worth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Bound {
    /// In words: random rounding of the reference's operations, or stated by the user.
    pub how: String,
    /// Slack over half a spacing of the output's dtype, in the median; of several outputs or checks the widest.
    pub width: f64,
    /// The reference loses so much precision that the bound says little.
    pub ill_conditioned: bool,
    /// What it cannot see, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub blind: Vec<String>,
}

impl Bound {
    /// The same with what another check found.
    fn merge(&mut self, other: Bound) {
        self.width = self.width.max(other.width);
        self.ill_conditioned |= other.ill_conditioned;
        self.blind.extend(other.blind);
        self.blind.sort();
        self.blind.dedup();
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RegionError {
    pub tensor: String,
    pub region: String,
    pub elements: u64,
    /// Elements beyond what the tight grade allows.
    pub wrong: u64,
    /// Largest error as a multiple of what the tight grade allows at that element; infinite errors are stored as 1e300.
    pub worst: f64,
    /// The same for the loose grade, where the tight one was missed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub loose_worst: Option<f64>,
    /// RMS error relative to the RMS of the expected values.
    pub rms: f64,
    /// The same for the oracle rounded to the output's dtype.
    pub twin_rms: f64,
}

impl Verify {
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.checks > 0
    }

    /// The same, held to a grade: a right answer that is looser than it becomes a wrong one.
    pub fn held_to(mut self, grade: Grade) -> Verify {
        if self.ok() && self.grade > Some(grade) {
            let worst = self.regions.iter().max_by(|a, b| a.worst.total_cmp(&b.worst));
            let off =
                worst.map(|r| format!("; {} is off by up to {:.1} times what one rounding allows", r.tensor, r.worst));
            self.problems.push(format!("graded loose where tight was asked for{}", off.unwrap_or_default()));
            self.grade = None;
        }
        self
    }

    /// Adds what is wrong with more than elements, in front of what is wrong with these. Then there is no grade.
    pub fn add_problems(&mut self, problems: Vec<String>) {
        self.problems.splice(0..0, problems);
        self.grade = self.grade.filter(|_| self.problems.is_empty());
    }

    /// Adds the findings of another check of the same case.
    pub fn merge(&mut self, other: Verify) {
        self.checks += other.checks;
        self.elements += other.elements;
        self.problems.extend(other.problems);
        self.grade = self.grade.max(other.grade).filter(|_| self.problems.is_empty());
        match (&mut self.bound, other.bound) {
            (Some(mine), Some(more)) => mine.merge(more),
            (mine, more) => *mine = mine.take().or(more),
        }
        match (&mut self.theirs, other.theirs) {
            (Some(mine), Some(more)) => mine.merge(more),
            (mine, more) => *mine = mine.take().or(more),
        }
        for r in other.regions {
            match self.regions.iter_mut().find(|m| m.tensor == r.tensor && m.region == r.region) {
                None => self.regions.push(r),
                Some(m) => {
                    m.elements += r.elements;
                    m.wrong += r.wrong;
                    m.worst = m.worst.max(r.worst);
                    m.loose_worst = m.loose_worst.into_iter().chain(r.loose_worst).reduce(f64::max);
                    m.rms = m.rms.max(r.rms);
                    m.twin_rms = m.twin_rms.max(r.twin_rms);
                }
            }
        }
    }
}

/// Compares the outputs in `view` with what an oracle puts into it.
pub struct Gate<'a> {
    view: &'a View<'a>,
    regions: &'static [&'static str],
    row_sums: Vec<(&'static str, f64)>,
    state: Mutex<Findings>,
}

/// Everything that a comparison found, whoever made it: the gate here, or kernels on a GPU.
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
                    let grade = tally.grade(spec);
                    v.elements += tally.elements;
                    v.grade = v.grade.max(grade);
                    v.problems.extend(grade.is_none().then(|| problem(tally, spec, name)));
                    v.regions.push(report(tally, grade, spec, name));
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
        v.grade = v.grade.filter(|_| v.problems.is_empty());
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
        assert!(
            block.loose.is_empty() || (block.loose.len() == len && spec.dtype.size() == 2),
            "only 16 bits are loose"
        );
        let got = self.view.take(block.tensor, block.start, len);
        let mut tallies = vec![Tally::default(); self.regions.len()];
        for i in 0..len {
            let region = match block.region {
                Region::One(r) => r,
                Region::Each(rs) => rs[i],
            };
            let loose = block.loose.get(i).copied().unwrap_or(0.0);
            tallies[region as usize].add(block.start + i, got[i], block.expect[i], block.slack[i], loose, spec.dtype);
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
        let (mut twin, mut half2, mut reach) = (0.0, 0.0, 0.0);
        for j in at.clone() {
            let (e, off) = (block.expect[j], block.slack[j] + block.loose.get(j).copied().unwrap_or(0.0));
            let rounded = spec.dtype.round(e);
            twin += rounded;
            half2 += (0.5 * spec.dtype.spacing(e)).powi(2);
            // Equal elements near the middle between two numbers are all rounded the same way, be it the twin's or the other.
            let [below, above] = [e - off, e + off].map(|x| (spec.dtype.round(x) - rounded).abs());
            reach += off.max(below).max(above);
        }
        // Rows that the contract makes something else (all zero when ignored) have a twin that is exactly that.
        let exact: f64 = block.expect[at.clone()].iter().sum();
        if (exact - to).abs() > 1e-6 {
            continue;
        }
        let limit = (twin - to).abs() + reach + 4.0 * half2.sqrt();
        let sum: f64 = row.iter().sum();
        if (sum - to).abs() > limit {
            bad.count += 1;
            bad.first = bad.first.or(Some((block.start / n + i, sum, limit)));
        }
    }
    bad
}

/// What is wrong with a region that has no grade: an element beyond its bound, or too many, or the RMS of all.
fn problem(tally: &Tally, spec: &TensorSpec, region: &str) -> String {
    let part = if region == "all" { String::new() } else { format!(" in region {region}") };
    let score = tally.score(Grade::Loose);
    let worst = score.worst_at.map(|Element { index, got, expect, allowed }| {
        let got = if got.is_nan() { "NaN (computed, or never written)".into() } else { format!("{got:.6e}") };
        (format!("{}{}", spec.name, spec.place(index)), format!("is {got}, expected {expect:.6e} ± {allowed:.1e}"))
    });
    let (place, what) = worst.unwrap_or_default();
    if score.beyond > 0 {
        let (wrong, of) = (score.beyond, tally.elements);
        return format!("{wrong} of {of} elements of {}{part} are wrong; {place} {what}", spec.name);
    }
    let (rms, twin) = tally.relative_rms();
    format!("RMS error of {}{part} is {rms:.2e}, but rounding explains only {twin:.2e}; worst is {place}", spec.name)
}

fn report(tally: &Tally, grade: Option<Grade>, spec: &TensorSpec, region: &str) -> RegionError {
    // NaN and infinity have no place in JSON.
    let finite = |v: f64| if v.is_finite() { v } else { 1e300 };
    let (rms, twin_rms) = tally.relative_rms();
    let tight = tally.score(Grade::Tight);
    RegionError {
        tensor: spec.name.into(),
        region: region.into(),
        elements: tally.elements,
        wrong: tight.beyond,
        worst: finite(tight.worst),
        loose_worst: (grade != Some(Grade::Tight)).then(|| finite(tally.score(Grade::Loose).worst)),
        rms: finite(rms),
        twin_rms: finite(twin_rms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    /// A hundred equal elements just above the middle between two numbers, and a hundred that are rounded down a little.
    fn is_bad(slack: f64) -> bool {
        let (dtype, step) = (DType::Bf16, 2f64.powi(-15));
        let expect: Vec<f64> =
            (0..200).map(|i| 2f64.powi(-8) + step * if i < 100 { 0.5 + 1e-6 } else { 0.3 }).collect();
        let (slack, to) = (vec![slack; 200], expect.iter().sum());
        let block = Block { tensor: "y", start: 0, expect: &expect, slack: &slack, loose: &[], region: Region::One(0) };
        let got = [2f64.powi(-8); 200]; // all of them rounded down
        assert_ne!(dtype.round(expect[0]), got[0]);
        bad_rows(&TensorSpec::output("y", dtype, &[1, 200]), &block, &got, to).count > 0
    }

    #[test]
    fn equal_elements_may_all_be_rounded_the_other_way_if_they_can_be() {
        assert!(!is_bad(2f64.powi(-15) * 2e-6));
        assert!(is_bad(2f64.powi(-15) * 1e-7), "one that is that close does not go the other way");
    }
}
