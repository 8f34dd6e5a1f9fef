//! What is known of an impl's results: the answer that the gate accepted, and how closely later launches must repeat it.
//! Bits where they are always the same; where they are not (atomics, padding that nobody writes), the size of elements
//! picked at random, and the gate as the judge of last resort.

use crate::Fault;
use crate::decoy::{Look, unforeseen};
use crate::workload::{Kept, Workload};
use kmark_core::gate::Verify;

/// A right element may differ from the last right one by this much; a wrong value is off by twice as much at least.
const CLOSE: f64 = 1.0 / 16.0;
/// Of the elements looked at, so many may be off nevertheless: sums that cancel.
const FEW: f64 = 1e-3;
/// Pieces are let go this often; whose bits still change then is not held to any.
const LOOSENED: u32 = 3;

pub struct Known {
    /// Of each workload that is launched together.
    kept: Vec<Kept>,
    /// Elements of a right answer, where bits alone do not say enough.
    near: Option<Near>,
    times_loosened: u32,
    /// Whether there are pieces that are held to their bits.
    bits_count: bool,
}

struct Near {
    word: u64,
    /// By workload; NaN where right launches differ.
    values: Vec<Vec<f64>>,
}

impl Known {
    /// What the workloads' outputs hold, which has just been judged right.
    pub fn of(workloads: &[Box<dyn Workload>]) -> Result<Known, Fault> {
        let kept = workloads.iter().map(|p| p.keep()).collect::<Result<_, Fault>>()?;
        Ok(Known { kept, near: None, times_loosened: 0, bits_count: true })
    }

    /// What the workloads' outputs hold for other values, judged right, too. What may differ still may.
    pub fn renewed(&self, workloads: &[Box<dyn Workload>]) -> Result<Known, Fault> {
        let kept = workloads.iter().zip(&self.kept).map(|(p, kept)| p.renew(kept)).collect::<Result<_, Fault>>()?;
        let near = self.near.as_ref().map(|near| near.renewed(workloads)).transpose()?;
        Ok(Known { kept, near, ..*self })
    }

    /// Whether every launch left the same bits.
    pub fn same_bits(&self) -> bool {
        self.near.is_none()
    }

    /// Pieces that differ, where that is known at once.
    pub fn compare(&self, workloads: &[Box<dyn Workload>], look: Look) -> Result<u64, Fault> {
        if !self.bits_count {
            return Ok(0);
        }
        workloads.iter().zip(&self.kept).map(|(p, kept)| p.compare(kept, look)).sum()
    }

    /// Whether what bits do not say is in order: outputs whose bits may change are still near the right ones, so that
    /// somebody wrote them.
    pub fn is_near(&self, workloads: &[Box<dyn Workload>]) -> Result<bool, Fault> {
        self.near.as_ref().map_or(Ok(true), |near| near.is_met(workloads))
    }

    /// The outputs differ and are right all the same: what differs may do so from now on.
    pub fn loosen(&mut self, workloads: &[Box<dyn Workload>]) -> Result<(), Fault> {
        self.times_loosened += 1;
        self.bits_count = self.times_loosened < LOOSENED;
        for (workload, kept) in workloads.iter().zip(&mut self.kept) {
            *kept = workload.loosen(kept)?;
        }
        match &mut self.near {
            Some(near) => near.forgive(workloads),
            near => {
                *near = Some(Near::of(workloads)?);
                Ok(())
            }
        }
    }
}

impl Near {
    fn of(workloads: &[Box<dyn Workload>]) -> Result<Near, Fault> {
        let word = unforeseen();
        let values = workloads.iter().map(|p| p.glance(word)).collect::<Result<_, Fault>>()?;
        Ok(Near { word, values })
    }

    fn is_met(&self, workloads: &[Box<dyn Workload>]) -> Result<bool, Fault> {
        for (workload, values) in workloads.iter().zip(&self.values) {
            let seen = workload.glance(self.word)?;
            let off = values.iter().zip(&seen).filter(|(a, b)| is_off(**a, **b)).count();
            if off as f64 > FEW * values.len() as f64 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn renewed(&self, workloads: &[Box<dyn Workload>]) -> Result<Near, Fault> {
        let mut values = Vec::new();
        for (workload, old) in workloads.iter().zip(&self.values) {
            let mut now = workload.glance(self.word)?;
            now.iter_mut().zip(old).filter(|(_, old)| old.is_nan()).for_each(|(now, _)| *now = f64::NAN);
            values.push(now);
        }
        Ok(Near { word: self.word, values })
    }

    /// Elements that differ between two right answers say nothing.
    fn forgive(&mut self, workloads: &[Box<dyn Workload>]) -> Result<(), Fault> {
        for (workload, values) in workloads.iter().zip(&mut self.values) {
            let seen = workload.glance(self.word)?;
            values.iter_mut().zip(&seen).filter(|(a, b)| is_off(**a, **b)).for_each(|(a, _)| *a = f64::NAN);
        }
        Ok(())
    }
}

/// A NaN is nobody's value.
fn is_off(known: f64, seen: f64) -> bool {
    known.is_finite() && (!seen.is_finite() || (seen - known).abs() > CLOSE * known.abs())
}

/// The gate's word on what a launch left, all workloads together.
pub fn judged(workloads: &[Box<dyn Workload>]) -> Result<Verify, Fault> {
    let mut all = Verify::default();
    workloads.iter().try_for_each(|p| p.check().map(|v| all.merge(v)))?;
    Ok(all)
}
