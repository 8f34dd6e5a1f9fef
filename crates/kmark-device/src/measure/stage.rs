//! A case on its stage: memory that is filled, the impls that take turns on it, and what is known of their results. Gives
//! samples that are checked: outputs hold wrong values before each, and the known answer, or something that the gate
//! accepts, after it. Values change now and then, and nobody is told.

use super::known::{Known, judged};
use super::{Source, Unchecked, Visit, visit};
use crate::decoy::{Look, unforeseen};
use crate::problem::Problem;
use crate::{Device, Fault, Launch, Sample, Timed};
use kmark_core::consistent::{TRIES, remembers, stands_out};
use kmark_core::fill::CYCLE;
use kmark_core::gate::Verify;
use kmark_core::record::{Checked, Mode, Status};
use kmark_core::stats::median;
use kmark_core::stop::StopRule;
use kmark_core::wire::{Check, Warmup};
use std::collections::HashMap;

/// What checking may add to the time of samples: comparing every launch, and changing values.
const MORE_TIME: f64 = 0.2;
const MORE_TIME_FOR_VALUES: f64 = 0.1;
/// A launch is checked in this share of its outputs at the least.
const LEAST_SHARE: f64 = 0.02;
/// Times on new values are held against so many on known ones, the last that there were.
const FEWEST_TIMES: usize = 3;
const MOST_TIMES: usize = 200;
/// Who cannot be looked at closely in this time is not accused.
const LONGEST_LOOK_NS: u64 = 20_000_000_000;

pub struct Stage {
    /// One, or as many as a graph launches in turn.
    problems: Vec<Box<dyn Problem>>,
    mode: Mode,
    /// The values in memory now, and those for which every impl's answer is known.
    seed: u64,
    base: u64,
    /// How often values were written, for launches that keep something made of them.
    writings: u64,
    /// Somebody failed, and what lies in the outputs is unknown.
    spoiled: bool,
    bound: HashMap<String, Bound>,
}

/// An impl that is bound to the problems' memory.
struct Bound {
    launch: Box<dyn Launch>,
    /// For the base values; none if nothing is checked.
    known: Option<Known>,
    /// For others that are in memory now.
    fresh: Option<Known>,
    writings: u64,
    walls: Walls,
    /// What a launch took in the last visit, in the mode of the stage.
    typical_ns: Option<f64>,
    /// Time spent on samples, and beyond them on gates and new values; what the latter cost last time.
    samples_ns: u64,
    values_ns: u64,
    last_values_ns: u64,
    /// Times on known values, the last ones, and those on new values that have not been held against them.
    known_times: Vec<f64>,
    fresh_times: Vec<f64>,
}

/// The shortest time that a sample has taken from end to end, checked whole and checked as little as possible.
#[derive(Default)]
struct Walls {
    whole: Option<f64>,
    least: Option<f64>,
}

impl Walls {
    fn saw(&mut self, whole: bool, ns: f64) {
        let known = if whole { &mut self.whole } else { &mut self.least };
        *known = Some(known.map_or(ns, |k| k.min(ns)));
    }

    /// How much of the outputs can be checked on the average.
    fn share(&self) -> f64 {
        let (Some(whole), Some(least)) = (self.whole, self.least) else { return 1.0 };
        let more = (whole - least).max(1.0);
        if more <= MORE_TIME * least { 1.0 } else { (MORE_TIME * least / more).max(LEAST_SHARE) }
    }
}

/// What a visit came to.
pub struct Outcome {
    pub visit: Visit,
    pub checked: Option<Checked>,
    pub verify: Option<Verify>,
}

impl Stage {
    /// Of the values of problem number `problem`, where there are several. The rows of all are of the same kinds.
    pub fn seed_of(seed: u64, problem: u64) -> u64 {
        seed.wrapping_add(CYCLE * problem)
    }

    /// Values that nobody has seen, with the same rows special as in those that are known.
    fn new_seed(&self) -> u64 {
        unforeseen() / CYCLE * CYCLE + self.base % CYCLE
    }

    /// `problems` are filled from `seed` on.
    pub fn new(problems: Vec<Box<dyn Problem>>, mode: Mode, seed: u64) -> Stage {
        Stage { problems, mode, seed, base: seed, writings: 0, spoiled: false, bound: HashMap::new() }
    }

    pub fn problems(&self) -> &[Box<dyn Problem>] {
        &self.problems
    }

    /// Nothing of an earlier launch is left to be found.
    pub fn reset(&self) -> Result<(), Fault> {
        self.problems.iter().try_for_each(|p| p.reset())
    }

    /// An impl joins. With `check` it launches, the gate looks at the result, and a second launch shows whether its bits
    /// are always the same.
    pub fn add(&mut self, device: &dyn Device, name: &str, launch: Box<dyn Launch>, check: bool) -> Result<(), Fault> {
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
        if check {
            self.reset()?;
            bound.launch.launch()?;
            bound.launch.settle()?;
            let start = device.now_ns();
            right(judged(&self.problems)?, "")?;
            bound.last_values_ns = 2 * (device.now_ns() - start);
            bound.known = Some(Known::of(&self.problems)?);
        }
        self.bound.insert(name.to_string(), bound);
        if check { self.shot(device, name, 1, Look::whole()).map(drop) } else { Ok(()) }
    }

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
            let (problems, count) = (&self.problems, self.problems.len() as f64);
            let prepare = &|| problems.iter().try_for_each(|p| p.restore());
            let (buffers, repeats) = (problems[0].buffers(), !problems[0].is_in_place());
            let mut source = Unchecked { device, launch: &mut *bound.launch, buffers, prepare, mode, repeats };
            let mut visit = visit(device, &mut source, mode, rule, warmup)?;
            visit.samples_ns.iter_mut().for_each(|ns| *ns /= count);
            return Ok(Outcome { visit, checked: None, verify: None });
        };
        let checked = Checked { same_bits: known.same_bits(), ..Checked::default() };
        let draw = || (unforeseen() % rule.min_samples.max(1) as u64) as usize;
        let mut turn = Turn {
            device,
            name,
            fresh_at: draw(),
            whole_at: draw(),
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
        for problem in &self.problems {
            let oversteps = problem.oversteps()?;
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

    /// Makes memory as this impl knows it.
    fn enter(&mut self, name: &str) -> Result<(), Fault> {
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
    fn leave(&mut self, name: &str) -> Result<(), Fault> {
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
        for (i, problem) in self.problems.iter_mut().enumerate() {
            problem.refill(Stage::seed_of(seed, i as u64))?;
        }
        self.seed = seed;
        self.writings += 1;
        Ok(())
    }

    /// Writes the values of `seed` during a visit.
    fn rewrite(&mut self, name: &str, seed: u64) -> Result<(), Fault> {
        self.refill(seed)?;
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        bound.writings = self.writings;
        bound.launch.refresh()
    }

    /// One sample, held to what is known. Whether its bits are those that are known.
    fn shot(&mut self, device: &dyn Device, name: &str, batch: u32, look: Look) -> Result<(Sample, bool), Fault> {
        let (problems, mode) = (&self.problems, self.mode);
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        let known = bound.fresh.as_mut().or(bound.known.as_mut()).ok_or_else(|| lost(name))?;
        let prepare = &|| problems.iter().try_for_each(|p| p.disguise(look));
        let check: &dyn Fn() -> Result<u64, Fault> = &|| known.compare(problems, look);
        let launch = &mut *bound.launch;
        let timed = Timed { launch, buffers: problems[0].buffers(), prepare, check: Some(check), mode, batch };
        let mut sample = device.sample(timed)?;
        sample.ns /= problems.len() as f64;
        let same = sample.differing == 0 && known.is_near(problems)?;
        if !same {
            right(judged(problems)?, "a timed launch left another result than the checked one: ")?;
            known.loosen(problems)?;
        }
        Ok((sample, same))
    }

    /// One sample on values that nobody has seen; the gate judges what it leaves, which is what is known from now on.
    fn fresh(&mut self, device: &dyn Device, name: &str, batch: u32) -> Result<(Sample, Verify), Fault> {
        let start = device.now_ns();
        self.rewrite(name, self.new_seed())?;
        let written = device.now_ns();
        let sample = self.unjudged(device, name, batch)?;
        let launched = device.now_ns();
        let (problems, bound) = (&self.problems, self.bound.get_mut(name).ok_or_else(|| lost(name))?);
        let verify = right(judged(problems)?, "a timed launch on new values: ")?;
        let known = bound.fresh.as_ref().or(bound.known.as_ref()).ok_or_else(|| lost(name))?;
        bound.fresh = Some(known.renewed(problems)?);
        // Values are written once more when they go back.
        bound.last_values_ns = 2 * (written - start) + device.now_ns() - launched;
        bound.values_ns += bound.last_values_ns;
        Ok((sample, verify))
    }

    /// One sample, taken as any other; its result is in its place, and nobody has looked at it.
    fn unjudged(&mut self, device: &dyn Device, name: &str, batch: u32) -> Result<Sample, Fault> {
        let (problems, mode, look) = (&self.problems, self.mode, Look::whole());
        let bound = self.bound.get_mut(name).ok_or_else(|| lost(name))?;
        let prepare = &|| problems.iter().try_for_each(|p| p.disguise(look));
        let check: Option<&dyn Fn() -> Result<u64, Fault>> = Some(&|| Ok(0));
        let (launch, buffers) = (&mut *bound.launch, problems[0].buffers());
        let mut sample = device.sample(Timed { launch, buffers, prepare, check, mode, batch })?;
        sample.ns /= problems.len() as f64;
        Ok(sample)
    }
}

/// A visit under way whose samples are checked.
struct Turn<'a> {
    device: &'a dyn Device,
    stage: &'a mut Stage,
    name: &'a str,
    /// Samples that get new values, are checked whole, are judged by the gate where bits change: nobody can foresee them.
    fresh_at: usize,
    whole_at: usize,
    gate_at: usize,
    /// Values change whatever it costs.
    forced: bool,
    warm: usize,
    /// Launches in the last sample.
    batch: u32,
    checked: Checked,
    verify: Option<Verify>,
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
        let (look, share) = (self.look(counts), self.bound().walls.share());
        let whole = self.is_whole(look);
        let start = self.device.now_ns();
        let (sample, same) = self.stage.shot(self.device, self.name, batch, look)?;
        let spent = self.device.now_ns() - start;
        let bound = self.bound();
        bound.samples_ns += spent;
        if same && batch == 1 && (!counts || share >= 1.0) {
            bound.walls.saw(whole, spent as f64);
        }
        self.checked.same_bits &= same;
        if !counts {
            self.warm += 1;
            return Ok(sample);
        }
        if !self.checked.same_bits && number == self.gate_at {
            let judged = right(judged(&self.stage.problems)?, "a timed launch: ")?;
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
        !self.stage.problems[0].is_in_place()
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

    /// Which part of the outputs the next launch is held to. While warming up, everything and as little as possible take
    /// turns, which shows what checking costs.
    fn look(&mut self, counts: bool) -> Look {
        let (share, number) = (self.bound().walls.share(), self.checked.samples as usize);
        if !counts {
            return if self.warm.is_multiple_of(2) { Look::whole() } else { Look::part(LEAST_SHARE) };
        }
        let chance = unforeseen() as f64 / u64::MAX as f64;
        if share >= 1.0 || number == self.whole_at || chance < share / 2.0 {
            return Look::whole();
        }
        Look::part(share / 2.0)
    }

    fn is_whole(&self, look: Look) -> bool {
        let outputs = self.stage.problems[0].buffers().0.iter().map(|b| b.spec()).enumerate();
        outputs.filter(|(_, s)| s.role.is_output()).all(|(t, s)| look.pieces(t, s.bytes()).is_whole())
    }

    /// If a launch on new values was slow among the others, looks closely: launches on new values take turns with others
    /// before which the values were written just so, but the same ones. Who is slower on the new ones every time, and
    /// clearly so, remembers results or skips work. These launches are no samples, so nobody judges their results.
    fn look_for_memory(&mut self) -> Result<(), Fault> {
        let bound = self.bound();
        let old = bound.known_times.len().saturating_sub(MOST_TIMES);
        bound.known_times.drain(..old);
        let known = bound.known_times.clone();
        let elements: usize = self.stage.problems[0].buffers().0.iter().map(|b| b.spec().elems()).sum();
        let habit = self.device.habit_ns(elements);
        if known.len() < FEWEST_TIMES {
            return Ok(());
        }
        let suspects = std::mem::take(&mut self.bound().fresh_times);
        if !suspects.into_iter().any(|fresh| stands_out(fresh, &known, habit)) {
            return Ok(());
        }
        let (start, mut fresh, mut controls) = (self.device.now_ns(), Vec::new(), Vec::new());
        while fresh.len() < TRIES {
            controls.push(self.after_writing(self.stage.seed)?);
            let new = self.after_writing(self.stage.new_seed())?;
            fresh.push(new);
            if !stands_out(new, &known, habit) || self.device.now_ns() - start > LONGEST_LOOK_NS {
                return Ok(());
            }
        }
        if remembers(&fresh, &controls, &known, habit) {
            let (new, old) = (median(&fresh) / 1e3, median(&controls) / 1e3);
            let message = format!(
                "takes {new:.2} µs on values that it has not seen and {old:.2} µs on those that it has: it remembers \
                 results or skips work"
            );
            return Err(Fault::new(Status::Inconsistent, message));
        }
        Ok(())
    }

    /// How long a launch takes after values were written. What it leaves is not known to anybody.
    fn after_writing(&mut self, seed: u64) -> Result<f64, Fault> {
        self.stage.rewrite(self.name, seed)?;
        self.bound().fresh = None;
        self.stage.unjudged(self.device, self.name, self.batch).map(|s| s.ns)
    }
}

/// A verdict that must be good; `about` says of what.
fn right(verify: Verify, about: &str) -> Result<Verify, Fault> {
    if verify.ok() {
        return Ok(verify);
    }
    Err(Fault::new(Status::Wrong, format!("{about}{}", verify.problems.join("; "))))
}

fn lost(name: &str) -> Fault {
    Fault::new(Status::Crashed, format!("{name} was not prepared"))
}
