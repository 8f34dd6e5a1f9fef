//! What comparing the elements of one region of one output came to, and what it means: the rules by which an output is
//! tight, loose or wrong.
//!
//! Two bounds are counted side by side. The tight one is what a kernel may be off that computes in the accumulator's
//! precision and rounds once; the loose one adds what rounding intermediates to a 16-bit type costs. Bounds of sums
//! are several standard deviations of a random walk, so that a few elements in millions may lie just beyond them: such
//! excess is judged by its number and its places. An error of logic moves whole rows, or moves elements far.

use crate::dtype::DType;
use crate::tensor::TensorSpec;
use serde::{Deserialize, Serialize};

/// How well a right output is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Computed in the accumulator's precision, rounded once.
    Tight,
    /// Intermediates are rounded to the tensor's 16-bit type as well: less accurate, and what many libraries ship.
    Loose,
}

impl Grade {
    pub const ALL: [Grade; 2] = [Grade::Tight, Grade::Loose];

    pub fn word(self) -> &'static str {
        match self {
            Grade::Tight => "tight",
            Grade::Loose => "loose",
        }
    }
}

/// Beyond this multiple of what is allowed, one element is enough.
const FAR: f64 = 2.0;
/// Up to this share of the elements may lie between one and [`FAR`] times what is allowed.
const RARE: f64 = 4e-6;
/// Places of excess that are kept for each output; more than this is never rare.
pub const PLACES: usize = 1024;
/// So many of them may share a row.
const PER_ROW: usize = 2;
/// An RMS of fewer elements says too little.
const RMS_NEEDS: f64 = 64.0;

/// An element out of an output: its index, what it is, what it should be, and how far off it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    pub index: usize,
    pub got: f64,
    pub expect: f64,
    pub allowed: f64,
}

/// The elements of a region held against one grade's bound.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Score {
    /// Elements beyond what is allowed.
    pub beyond: u64,
    /// Indices of these, while they are few; in any order.
    pub places: Vec<u64>,
    /// Largest error as a multiple of what is allowed there.
    pub worst: f64,
    /// The element with the largest; the lowest index wins a tie, so that the report is stable.
    pub worst_at: Option<Element>,
    pub slack2: f64,
}

impl Score {
    fn add(&mut self, element: Element, err: f64, slack: f64, counts: bool) {
        let Element { index, allowed, .. } = element;
        let ratio = if err <= allowed && allowed == 0.0 { 0.0 } else { err / allowed };
        let ratio = if ratio.is_finite() { ratio } else { 1e300 };
        if ratio > 1.0 {
            self.beyond += 1;
            if self.places.len() < PLACES {
                self.places.push(index as u64);
            }
        }
        let worse = ratio > self.worst || (ratio == self.worst && self.worst_at.is_some_and(|w| index < w.index));
        if self.worst_at.is_none() || worse {
            self.worst = ratio;
            self.worst_at = Some(element);
        }
        if counts {
            self.slack2 += slack * slack;
        }
    }

    fn merge(&mut self, o: &Score) {
        self.beyond += o.beyond;
        let room = PLACES.saturating_sub(self.places.len());
        self.places.extend(o.places.iter().take(room));
        let earlier = matches!((o.worst_at, self.worst_at), (Some(a), Some(b)) if a.index < b.index);
        if self.worst_at.is_none() || o.worst > self.worst || (o.worst == self.worst && earlier) {
            self.worst = o.worst;
            self.worst_at = o.worst_at;
        }
        self.slack2 += o.slack2;
    }

    /// Whether what lies beyond the bound is as rare, as near and as scattered as a long tail makes it.
    fn is_rare(&self, elements: u64, row_len: usize) -> bool {
        let most = (elements as f64 * RARE).min(PLACES as f64);
        if self.worst > FAR || self.beyond as f64 > most {
            return false;
        }
        let mut rows: Vec<u64> = self.places.iter().map(|p| p / row_len.max(1) as u64).collect();
        rows.sort_unstable();
        rows.chunk_by(|a, b| a == b).all(|same| same.len() <= PER_ROW)
    }
}

#[derive(Clone, Default, Debug, PartialEq)]
pub struct Tally {
    pub elements: u64,
    pub err2: f64,
    pub twin2: f64,
    pub expect2: f64,
    /// Second and fourth powers of what the tight grade allows: they tell how many elements carry the RMS.
    pub allowed2: f64,
    pub allowed4: f64,
    /// By grade.
    pub scores: [Score; 2],
}

impl Tally {
    /// Element `index` is `got` where `expect` should be, off by `slack` before its last rounding in the tight grade, and by
    /// `loose` more in the loose one.
    pub fn add(&mut self, index: usize, got: f64, expect: f64, slack: f64, loose: f64, dtype: DType) {
        if slack == f64::INFINITY {
            return; // nobody's business: a padding row
        }
        let twin = dtype.round(expect);
        let tight = allowed(dtype, expect, slack);
        let err = match got {
            _ if got == expect => 0.0,
            _ if got == twin => (twin - expect).abs().min(tight),
            _ => (got - expect).abs(),
        };
        let finite = twin.is_finite();
        self.elements += 1;
        if finite {
            self.err2 += err * err;
            self.twin2 += (twin - expect).powi(2);
            self.expect2 += expect * expect;
            self.allowed2 += tight * tight;
            self.allowed4 += tight.powi(4);
        }
        let element = |allowed| Element { index, got, expect, allowed };
        self.scores[0].add(element(tight), err, slack, finite);
        let wide = if loose > 0.0 { allowed(dtype, expect, slack + loose) } else { tight };
        self.scores[1].add(element(wide), err, slack + loose, finite);
    }

    pub fn merge(&mut self, o: &Tally) {
        self.elements += o.elements;
        self.err2 += o.err2;
        self.twin2 += o.twin2;
        self.expect2 += o.expect2;
        self.allowed2 += o.allowed2;
        self.allowed4 += o.allowed4;
        self.scores.iter_mut().zip(&o.scores).for_each(|(s, o)| s.merge(o));
    }

    pub fn score(&self, grade: Grade) -> &Score {
        &self.scores[grade as usize]
    }

    /// Whether the region may have this grade.
    pub fn passes(&self, grade: Grade, spec: &TensorSpec) -> bool {
        // A vector is no row of its own: its elements lie in as many rows.
        let row_len = if spec.shape.len() > 1 { spec.row_len() } else { 1 };
        self.score(grade).is_rare(self.elements, row_len) && !self.rms_is_off(grade, spec.rms_share)
    }

    /// The best grade that it may have.
    pub fn grade(&self, spec: &TensorSpec) -> Option<Grade> {
        Grade::ALL.into_iter().find(|g| self.passes(*g, spec))
    }

    /// The RMS error must be explained by that of the twin, the oracle rounded to the output's dtype: a quarter above it,
    /// plus a share of the slack. Few elements scatter more; a region where a few are much larger than the rest counts as few.
    fn rms_is_off(&self, grade: Grade, share: f64) -> bool {
        let carriers = if self.allowed4 > 0.0 { self.allowed2 * self.allowed2 / self.allowed4 } else { 0.0 };
        let [tight, own] = [Grade::Tight, grade].map(|g| self.score(g).slack2.sqrt());
        // Roundings on the way may be all alike, as in a row of equal values: what they add counts whole, and half again
        // for the last rounding, which is then not the twin's.
        let limit = 1.25 * self.twin2.sqrt() + share * tight + 1.5 * (own - tight);
        carriers >= RMS_NEEDS && self.err2.sqrt() > limit * (1.0 + 3.0 / carriers.sqrt())
    }

    /// RMS error and that of the twin, relative to the RMS of the expected values.
    pub(crate) fn relative_rms(&self) -> (f64, f64) {
        let relative = |sum2: f64| if sum2 == 0.0 { 0.0 } else { (sum2 / self.expect2.max(f64::MIN_POSITIVE)).sqrt() };
        (relative(self.err2), relative(self.twin2))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(dtype: DType, got: f64, expect: f64, slack: f64) -> f64 {
        let mut t = Tally::default();
        t.add(0, got, expect, slack, 0.0, dtype);
        t.scores[0].worst
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

    const COLUMNS: usize = 1000;

    /// A million elements of 1 with a slack of 1e-3, some of them off by a multiple of what is allowed.
    fn million(off: &[(usize, f64)], loose: f64) -> (Tally, TensorSpec) {
        let spec = TensorSpec::output("y", DType::F32, &[1000, COLUMNS]);
        let mut t = Tally::default();
        let allowed = allowed(DType::F32, 1.0, 1e-3);
        for i in 0..1_000_000 {
            let times = off.iter().find(|(at, _)| *at == i).map_or(0.0, |(_, times)| *times);
            t.add(i, 1.0 + times * allowed, 1.0, 1e-3, loose, DType::F32);
        }
        (t, spec)
    }

    #[test]
    fn rare_and_slight_excess_is_a_long_tail() {
        let grade = |off: &[(usize, f64)]| {
            let (t, spec) = million(off, 0.0);
            t.grade(&spec)
        };
        let tight = Some(Grade::Tight);
        assert_eq!(grade(&[(7, 1.2), (200_000, 1.9), (300_001, 1.01), (999_999, 1.5)]), tight);
        assert_eq!(grade(&[(7, 2.1)]), None, "far");
        assert_eq!(grade(&[(7, 1.1), (2007, 1.1), (4007, 1.1), (6007, 1.1), (8007, 1.1)]), None, "too many");
        assert_eq!(grade(&[(7000, 1.1), (7001, 1.1), (7999, 1.1)]), None, "in one row");
        assert_eq!(grade(&[(7000, 1.1), (7999, 1.1)]), tight);
    }

    #[test]
    fn excess_in_a_small_output_is_an_error() {
        let spec = TensorSpec::output("y", DType::F32, &[10, 10]);
        let mut t = Tally::default();
        (0..100).for_each(|i| t.add(i, if i == 50 { 1.0012 } else { 1.0 }, 1.0, 1e-3, 0.0, DType::F32));
        assert_eq!(t.grade(&spec), None);
    }

    #[test]
    fn what_only_rounding_on_the_way_explains_is_loose() {
        let off: Vec<(usize, f64)> = (0..100).map(|i| (i * 3001, 3.0)).collect();
        let (t, spec) = million(&off, 5e-3);
        assert_eq!(t.grade(&spec), Some(Grade::Loose));
        assert!(t.score(Grade::Tight).worst > 2.9 && t.score(Grade::Loose).worst < 0.6);
    }

    #[test]
    fn the_rms_of_few_carriers_may_scatter() {
        let spec = TensorSpec::output("y", DType::Bf16, &[1, 256]);
        // Every element half a spacing off: a right element may be, all of them may not.
        let judge = |scale: fn(usize) -> f64| {
            let mut t = Tally::default();
            for i in 0..256 {
                let x = scale(i) * (1.0 + DType::Bf16.unit() * 0.1);
                t.add(
                    i,
                    scale(i) * (1.0 - DType::Bf16.unit() * 0.2),
                    x,
                    scale(i) * DType::Bf16.unit() * 0.25,
                    0.0,
                    DType::Bf16,
                );
            }
            t.grade(&spec)
        };
        assert_eq!(judge(|_| 1.0), None);
        assert_eq!(judge(|i| if i < 8 { 1024.0 } else { 1.0 }), Some(Grade::Tight));
    }
}
