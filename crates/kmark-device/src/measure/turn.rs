//! A turn of one impl on the stage: which launches are checked how closely, which get new values, and what those say of an
//! impl that remembers.

use super::known::judged;
use super::stage::{Bound, LEAST_SHARE, Stage, lost, right};
use super::{Source, Unchecked, Visit, visit};
use crate::decoy::{Look, unforeseen};
use crate::{Device, Fault, Sample};
use kmark_core::consistent::{TRIES, remembers, stands_out};
use kmark_core::gate::Verify;
use kmark_core::record::{Checked, Mode, Status};
use kmark_core::stats::median;
use kmark_core::stop::StopRule;
use kmark_core::wire::{Check, Warmup};

/// What changing values may add to the time of samples.
const MORE_TIME_FOR_VALUES: f64 = 0.1;
/// Times on new values are held against so many on known ones, the last that there were.
const FEWEST_TIMES: usize = 3;
const MOST_TIMES: usize = 200;
/// One look proves nothing: on a busy machine all of its launches may have been unlucky once in a thousand times.
const LOOKS: usize = 3;
/// Who cannot be looked at closely in this time is not accused.
const LONGEST_LOOK_NS: u64 = 20_000_000_000;

/// What a visit came to.
pub struct Outcome {
    pub visit: Visit,
    pub checked: Option<Checked>,
    pub verify: Option<Verify>,
}

impl Stage {
    /// One turn of an impl.
    pub fn visit(
        &mut self,
        device: &dyn Device,
        name: &str,
        rule: &StopRule,
        warmup: Warmup,
        check: Check,
    ) -> Result<Outcome, Fault> {
        self.enter(name)?;
        let mode = self.mode;
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        let Some(known) = bound.known.as_ref().filter(|_| check != Check::Off) else {
            let (workloads, count) = (&self.workloads, self.workloads.len() as f64);
            let prepare = &|| workloads.iter().try_for_each(|p| p.restore());
            let (buffers, repeats) = (workloads[0].buffers(), !workloads[0].is_in_place());
            let mut source = Unchecked { device, launch: &mut *bound.launch, buffers, prepare, mode, repeats };
            let mut visit = visit(device, &mut source, mode, rule, warmup)?;
            visit.samples_ns.iter_mut().for_each(|ns| *ns /= count);
            return Ok(Outcome { visit, checked: None, verify: None });
        };
        let checked = Checked { same_bits: known.same_bits(), ..Checked::default() };
        let draw = || (unforeseen() % rule.min_samples.max(1) as u64) as usize;
        let first = bound.samples_ns == 0;
        let mut turn = Turn {
            device,
            name,
            fresh_at: draw(),
            whole_at: first.then(draw),
            gate_at: draw(),
            forced: check == Check::Fresh,
            warm: 0,
            batch: 1,
            checked,
            verify: None,
            stage: self,
        };
        turn.stage.spoiled = true; // until it is known that all went well
        let mut visit = visit(device, &mut turn, mode, rule, warmup)?;
        if turn.forced && turn.checked.fresh == 0 {
            turn.fresh_at = visit.samples_ns.len();
            let sample = turn.take(turn.batch, true)?;
            visit.samples_ns.push(sample.ns);
            visit.clock_mhz.extend(sample.clock_mhz);
        }
        turn.look_for_memory()?;
        let Turn { checked, verify, .. } = turn;
        // Whoever has something to say of all its launches says it now: memory that grew with them.
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        bound.launch.settle()?;
        for workload in &self.workloads {
            let oversteps = workload.oversteps()?;
            if !oversteps.is_empty() {
                return Err(Fault::new(Status::Wrong, format!("a timed launch: {}", oversteps.join("; "))));
            }
        }
        // A batch of launches that follow each other is faster than one alone.
        bound.typical_ns = (mode != Mode::Hot).then(|| median(&visit.samples_ns));
        self.spoiled = false;
        self.leave(name)?;
        Ok(Outcome { visit, checked: Some(checked), verify })
    }
}

/// A visit under way whose samples are checked.
pub(super) struct Turn<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) stage: &'a mut Stage,
    pub(super) name: &'a str,
    /// Samples that get new values, are checked whole (in the first visit for certain, later by chance), are judged by the
    /// gate where bits change: nobody can foresee them.
    pub(super) fresh_at: usize,
    pub(super) whole_at: Option<usize>,
    pub(super) gate_at: usize,
    /// Values change whatever it costs.
    pub(super) forced: bool,
    pub(super) warm: usize,
    /// Launches in the last sample.
    pub(super) batch: u32,
    pub(super) checked: Checked,
    pub(super) verify: Option<Verify>,
}

impl Source for Turn<'_> {
    fn take(&mut self, batch: u32, counts: bool) -> Result<Sample, Fault> {
        let number = self.checked.samples as usize;
        self.batch = batch;
        if counts && number == self.fresh_at && self.may_change_values() {
            let (sample, verify) = self.stage.fresh(self.device, self.name, batch)?;
            self.verify.get_or_insert_default().merge(verify);
            self.bound().fresh_times.push(sample.ns);
            self.checked.fresh += 1;
            self.checked.whole += 1;
            self.checked.samples += 1;
            return Ok(sample);
        }
        let (look, share) = (self.look(counts), self.bound().walls.known_share());
        let whole = self.is_whole(look);
        let start = self.device.now_ns();
        let (sample, same) = self.stage.shot(self.device, self.name, batch, look)?;
        let spent = self.device.now_ns() - start;
        let bound = self.bound();
        bound.samples_ns += spent;
        if same && batch == 1 && (!counts || share.is_none_or(|s| s >= 1.0)) {
            bound.walls.saw(whole, spent as f64);
        }
        self.checked.same_bits &= same;
        if !counts {
            self.warm += 1;
            return Ok(sample);
        }
        if !self.checked.same_bits && number == self.gate_at {
            let judged = right(judged(&self.stage.workloads)?, "a timed launch: ")?;
            self.verify.get_or_insert_default().merge(judged);
        }
        self.bound().known_times.push(sample.ns);
        self.checked.samples += 1;
        *(if whole { &mut self.checked.whole } else { &mut self.checked.parts }) += 1;
        Ok(sample)
    }

    fn typical_ns(&self) -> Option<f64> {
        self.stage.bound.get(self.name)?.typical_ns
    }

    fn repeats(&self) -> bool {
        !self.stage.workloads[0].is_in_place()
    }
}

impl Turn<'_> {
    fn bound(&mut self) -> &mut Bound {
        self.stage.bound.get_mut(self.name).expect("a visit is of an impl that is bound")
    }

    fn may_change_values(&mut self) -> bool {
        let forced = self.forced;
        let bound = self.bound();
        forced || (bound.values_ns + bound.last_values_ns) as f64 <= MORE_TIME_FOR_VALUES * bound.samples_ns as f64
    }

    /// Which part of the outputs the next launch is held to. In the first warm-up, everything and as little as possible take
    /// turns, which shows what checking costs.
    fn look(&mut self, counts: bool) -> Look {
        let Some(share) = self.bound().walls.known_share().or(counts.then_some(1.0)) else {
            return if self.warm.is_multiple_of(2) { Look::whole() } else { Look::part(LEAST_SHARE) };
        };
        let chance = unforeseen() as f64 / u64::MAX as f64;
        let meant = counts && Some(self.checked.samples as usize) == self.whole_at;
        if share >= 1.0 || meant || chance < share / 2.0 {
            return Look::whole();
        }
        Look::part(share / 2.0)
    }

    fn is_whole(&self, look: Look) -> bool {
        let outputs = self.stage.workloads[0].buffers().0.iter().map(|b| b.spec()).enumerate();
        outputs.filter(|(_, s)| s.role.is_output()).all(|(t, s)| look.pieces(t, s.bytes()).is_whole())
    }

    /// If a launch on new values was slow among the others, looks closely: launches on new values take turns with others
    /// before which the values were written just so, but the same ones. Who is slower on the new ones every time, and
    /// clearly so, remembers results or skips work. These launches are no samples, so nobody judges their results.
    pub(super) fn look_for_memory(&mut self) -> Result<(), Fault> {
        let bound = self.bound();
        let old = bound.known_times.len().saturating_sub(MOST_TIMES);
        bound.known_times.drain(..old);
        let known = bound.known_times.clone();
        let elements: usize = self.stage.workloads[0].buffers().0.iter().map(|b| b.spec().elems()).sum();
        let habit = self.device.habit_ns(elements);
        if known.len() < FEWEST_TIMES {
            return Ok(());
        }
        let suspects = std::mem::take(&mut self.bound().fresh_times);
        if !suspects.into_iter().any(|fresh| stands_out(fresh, &known, habit)) {
            return Ok(());
        }
        let mut took = (0.0, 0.0);
        for _ in 0..LOOKS {
            match self.new_and_old_ns(&known, habit)? {
                Some(both) => took = both,
                None => return Ok(()),
            }
        }
        let message = format!(
            "takes {:.2} µs on values that it has not seen and {:.2} µs on those that it has: it remembers results or skips \
             work",
            took.0 / 1e3,
            took.1 / 1e3
        );
        Err(Fault::new(Status::Inconsistent, message))
    }

    /// What launches on new values and their controls take, if the new ones are clearly slower.
    fn new_and_old_ns(&mut self, known: &[f64], habit: f64) -> Result<Option<(f64, f64)>, Fault> {
        let (start, mut fresh, mut controls) = (self.device.now_ns(), Vec::new(), Vec::new());
        while fresh.len() < TRIES {
            controls.push(self.after_writing(self.stage.seed)?);
            let new = self.after_writing(self.stage.new_seed())?;
            fresh.push(new);
            if !stands_out(new, known, habit) || self.device.now_ns() - start > LONGEST_LOOK_NS {
                return Ok(None);
            }
        }
        let slower = remembers(&fresh, &controls, known, habit);
        Ok(slower.then(|| (median(&fresh), median(&controls))))
    }

    /// How long a launch takes after values were written. What it leaves is not known to anybody.
    fn after_writing(&mut self, seed: u64) -> Result<f64, Fault> {
        self.stage.rewrite(self.name, seed)?;
        self.bound().fresh = None;
        self.stage.unjudged(self.device, self.name, self.batch).map(|s| s.ns)
    }
}
