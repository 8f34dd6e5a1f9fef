//! A case on its stage: memory that is filled, the impls that take turns on it, and what is known of their results. Gives
//! samples that are checked: outputs hold wrong values before each, and the known answer, or something that the gate
//! accepts, after it. Values change now and then, and nobody is told.

use super::known::{Known, judged};
use crate::decoy::{Look, unforeseen};
use crate::workload::{Workload, other_bits};
use crate::{Device, Fault, Launch, Sample, Timed};
use kmark_core::case::Case;
use kmark_core::fill::CYCLE;
use kmark_core::gate::Verify;
use kmark_core::record::{Mode, Status};
use std::collections::HashMap;

/// What comparing every launch may add to the time of samples.
const MORE_TIME: f64 = 0.2;
/// A launch is checked in this share of its outputs at the least.
pub(super) const LEAST_SHARE: f64 = 0.02;

pub struct Stage {
    /// One, or as many as a graph launches in turn.
    pub(super) workloads: Vec<Box<dyn Workload>>,
    pub(super) mode: Mode,
    /// Whether all launches of an impl must leave the same bits.
    repeats_bits: bool,
    /// The values in memory now, and those for which every impl's answer is known.
    pub(super) seed: u64,
    pub(super) base: u64,
    /// How often values were written, for launches that keep something made of them.
    pub(super) writings: u64,
    /// Somebody failed, and what lies in the outputs is unknown.
    pub(super) spoiled: bool,
    pub(super) bound: HashMap<String, Bound>,
}

/// An impl that is bound to the workloads' memory.
pub(super) struct Bound {
    pub(super) launch: Box<dyn Launch>,
    /// For the base values; none if nothing is checked.
    pub(super) known: Option<Known>,
    /// For others that are in memory now.
    pub(super) fresh: Option<Known>,
    pub(super) writings: u64,
    pub(super) walls: Walls,
    /// What a launch took in the last visit, in the mode of the stage.
    pub(super) typical_ns: Option<f64>,
    /// Time spent on samples, and beyond them on gates and new values; what the latter cost last time.
    pub(super) samples_ns: u64,
    pub(super) values_ns: u64,
    pub(super) last_values_ns: u64,
    /// Times on known values, the last ones, and those on new values that have not been held against them.
    pub(super) known_times: Vec<f64>,
    pub(super) fresh_times: Vec<f64>,
}

/// The shortest time that a sample has taken from end to end, checked whole and checked as little as possible.
#[derive(Default)]
pub(super) struct Walls {
    whole: Option<f64>,
    least: Option<f64>,
}

impl Walls {
    pub(super) fn saw(&mut self, whole: bool, ns: f64) {
        let known = if whole { &mut self.whole } else { &mut self.least };
        *known = Some(known.map_or(ns, |k| k.min(ns)));
    }

    /// How much of the outputs can be checked on the average; `None` before both have been seen.
    pub(super) fn known_share(&self) -> Option<f64> {
        let (whole, least) = (self.whole?, self.least?);
        let more = (whole - least).max(1.0);
        Some(if more <= MORE_TIME * least { 1.0 } else { (MORE_TIME * least / more).max(LEAST_SHARE) })
    }
}

impl Stage {
    /// Of the values of workload number `workload`, where there are several. The rows of all are of the same kinds.
    pub fn seed_of(seed: u64, workload: u64) -> u64 {
        seed.wrapping_add(CYCLE * workload)
    }

    /// Values that nobody has seen, with the same rows special as in those that are known.
    pub(super) fn new_seed(&self) -> u64 {
        unforeseen() / CYCLE * CYCLE + self.base % CYCLE
    }

    /// `workloads` of `case` are filled from `seed` on.
    pub fn new(case: &Case, workloads: Vec<Box<dyn Workload>>, mode: Mode, seed: u64) -> Stage {
        let repeats_bits = case.repeats_bits();
        Stage { workloads, mode, repeats_bits, seed, base: seed, writings: 0, spoiled: false, bound: HashMap::new() }
    }

    pub fn workloads(&self) -> &[Box<dyn Workload>] {
        &self.workloads
    }

    /// Nothing of an earlier launch is left to be found.
    pub fn reset(&self) -> Result<(), Fault> {
        self.workloads.iter().try_for_each(|p| p.reset())
    }

    /// Everything lies elsewhere in the device's memory from now on; launches do not see it.
    pub fn elsewhere(&self) -> Result<(), Fault> {
        self.workloads.iter().try_for_each(|p| p.elsewhere())
    }

    /// An impl joins. With `check` it launches, the gate looks at the result, and a second launch shows whether its bits
    /// are always the same. Returns the gate's word; who is wrong does not join.
    pub fn add(
        &mut self,
        device: &dyn Device,
        name: &str,
        launch: Box<dyn Launch>,
        check: bool,
    ) -> Result<Option<Verify>, Fault> {
        let mut bound = Bound {
            launch,
            known: None,
            fresh: None,
            writings: self.writings,
            walls: Walls::default(),
            typical_ns: None,
            samples_ns: 0,
            values_ns: 0,
            last_values_ns: 0,
            known_times: Vec::new(),
            fresh_times: Vec::new(),
        };
        if !check {
            self.bound.insert(name.to_string(), bound);
            return Ok(None);
        }
        self.reset()?;
        bound.launch.launch()?;
        bound.launch.settle()?;
        let start = device.now_ns();
        let verify = judged(&self.workloads)?;
        if verify.ok() {
            bound.last_values_ns = 2 * (device.now_ns() - start);
            bound.known = Some(Known::of(&self.workloads)?);
            self.bound.insert(name.to_string(), bound);
            self.shot(device, name, 1, Look::whole())?;
        }
        Ok(Some(verify))
    }

    /// Makes memory as this impl knows it.
    pub(super) fn enter(&mut self, name: &str) -> Result<(), Fault> {
        if self.seed != self.base {
            self.refill(self.base)?;
        }
        if self.spoiled {
            self.reset()?;
            self.spoiled = false;
        }
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        bound.fresh = None;
        if bound.writings != self.writings {
            bound.launch.refresh()?;
            bound.writings = self.writings;
        }
        Ok(())
    }

    /// Whoever is alone keeps the values that it saw last; where several take turns, all come back to the same.
    pub(super) fn leave(&mut self, name: &str) -> Result<(), Fault> {
        if self.seed == self.base {
            return Ok(());
        }
        let alone = self.bound.len() == 1;
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        match bound.fresh.take() {
            Some(known) if alone => {
                bound.known = Some(known);
                self.base = self.seed;
                Ok(())
            }
            _ => self.refill(self.base),
        }
    }

    fn refill(&mut self, seed: u64) -> Result<(), Fault> {
        for (i, workload) in self.workloads.iter_mut().enumerate() {
            workload.refill(Stage::seed_of(seed, i as u64))?;
        }
        self.seed = seed;
        self.writings += 1;
        Ok(())
    }

    /// Writes the values of `seed` during a visit.
    pub(super) fn rewrite(&mut self, name: &str, seed: u64) -> Result<(), Fault> {
        self.refill(seed)?;
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        bound.writings = self.writings;
        bound.launch.refresh()
    }

    /// One sample, held to what is known. Whether its bits are those that are known.
    pub(super) fn shot(
        &mut self,
        device: &dyn Device,
        name: &str,
        batch: u32,
        look: Look,
    ) -> Result<(Sample, bool), Fault> {
        let (workloads, mode) = (&self.workloads, self.mode);
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        let known = bound.fresh.as_mut().or(bound.known.as_mut()).ok_or_else(|| lost(name))?;
        let prepare = &|| workloads.iter().try_for_each(|p| p.disguise(look));
        let check: &dyn Fn() -> Result<u64, Fault> = &|| known.compare(workloads, look);
        let launch = &mut *bound.launch;
        let timed = Timed { launch, buffers: workloads[0].buffers(), prepare, check: Some(check), mode, batch };
        let mut sample = device.sample(timed)?;
        sample.ns /= workloads.len() as f64;
        let same = sample.differing == 0 && known.is_near(workloads)?;
        if !same {
            right(judged(workloads)?, "a timed launch left another result than the checked one: ")?;
            if self.repeats_bits {
                return Err(other_bits());
            }
            known.loosen(workloads)?;
        }
        Ok((sample, same))
    }

    /// One sample on values that nobody has seen; the gate judges what it leaves, which is what is known from now on.
    pub(super) fn fresh(&mut self, device: &dyn Device, name: &str, batch: u32) -> Result<(Sample, Verify), Fault> {
        let start = device.now_ns();
        self.rewrite(name, self.new_seed())?;
        let written = device.now_ns();
        let sample = self.unjudged(device, name, batch)?;
        let launched = device.now_ns();
        let (workloads, bound) = (&self.workloads, self.bound.get_mut(name).ok_or_else(|| lost(name))?);
        let verify = right(judged(workloads)?, "a timed launch on new values: ")?;
        let known = bound.fresh.as_ref().or(bound.known.as_ref()).ok_or_else(|| lost(name))?;
        bound.fresh = Some(known.renewed(workloads)?);
        // Values are written once more when they go back.
        bound.last_values_ns = 2 * (written - start) + device.now_ns() - launched;
        bound.values_ns += bound.last_values_ns;
        Ok((sample, verify))
    }

    /// One sample, taken as any other; its result is in its place, and nobody has looked at it.
    pub(super) fn unjudged(&mut self, device: &dyn Device, name: &str, batch: u32) -> Result<Sample, Fault> {
        let (workloads, mode, look) = (&self.workloads, self.mode, Look::whole());
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        let prepare = &|| workloads.iter().try_for_each(|p| p.disguise(look));
        let check: Option<&dyn Fn() -> Result<u64, Fault>> = Some(&|| Ok(0));
        let (launch, buffers) = (&mut *bound.launch, workloads[0].buffers());
        let mut sample = device.sample(Timed { launch, buffers, prepare, check, mode, batch })?;
        sample.ns /= workloads.len() as f64;
        Ok(sample)
    }
}

/// A verdict that must be good; `about` says of what.
pub(super) fn right(verify: Verify, about: &str) -> Result<Verify, Fault> {
    if verify.ok() {
        return Ok(verify);
    }
    Err(Fault::new(Status::Wrong, format!("{about}{}", verify.problems.join("; "))))
}

pub(super) fn lost(name: &str) -> Fault {
    Fault::new(Status::Crashed, format!("{name} was not prepared"))
}
