//! One case at a time: verify every impl, then let them take turns in random order, then check what was timed. The host
//! owns the budget; the workers own the clock. Results are records; nothing is printed or written here.

use crate::device::Choice;
use crate::host::{Limits, Workers};
use crate::plan::Planned;
use crate::{python, roofs, units};
use kmark_core::cost::Roofs;
use kmark_core::fill::philox;
use kmark_core::gate::Verify;
use kmark_core::record::{Checked, Mode, Phases, Record, SCHEMA, Settings, Status, Times, Visit, family};
use kmark_core::stop::{Stop, StopRule};
use kmark_core::wire::{Check, Reply, Request, Warmup};
use kmark_device::problem;
use kmark_device::{Fault, Impl};
use std::time::{Duration, Instant};

/// A visit takes at most this many samples; beyond it the median does not improve.
const MAX_SAMPLES: usize = 2000;
const MIN_SAMPLES: usize = 5;
/// Rounds that even a slow impl takes part in: fewer prove nothing.
const MIN_ROUNDS: u32 = 3;
/// The share of a visit's time that warming up may take.
const WARMUP_SHARE: u64 = 4;
/// More deadlines for a Python library's first steps: it may have to compile.
const COMPILING: u32 = 4;
/// What a worker may use beside the tensors of its case.
const WORKER_MEMORY: u64 = 2 << 30;

pub struct Bench<'a> {
    pub workers: &'a mut Workers,
    pub settings: &'a Settings,
    pub deadline: Duration,
    /// The machine's limits, where they were measured.
    pub roofs: Option<Roofs>,
    pub phases: Phases,
}

/// One impl on its way through a case.
struct Turn {
    imp: &'static dyn Impl,
    family: String,
    record: Record,
    /// Which worker holds its launch.
    generation: u32,
    spent_ns: u64,
    failed: bool,
}

impl Bench<'_> {
    /// Runs the case with all its impls; one record each.
    pub fn case(&mut self, planned: &Planned, mut step: impl FnMut(&str)) -> Vec<Record> {
        let group = format!("{:08x}", philox(nanos_now(), 0)[0]);
        let limits = self.limits(planned);
        let mut turns: Vec<Turn> = planned.impls.iter().map(|imp| self.turn(planned, *imp, &group)).collect();
        self.refuse(planned, &mut turns);
        for turn in turns.iter_mut().filter(|t| !t.failed) {
            step(turn.imp.name());
            self.check(planned, turn);
        }
        for turn in turns.iter_mut().filter(|t| !t.failed) {
            self.prepare(planned, turn);
        }
        self.rounds(planned, &mut turns, limits, &mut step);
        for turn in turns.iter_mut().filter(|t| !t.failed) {
            self.close(planned, turn, limits);
        }
        for family in families(&turns) {
            // A worker that cannot even let go is replaced at the next request.
            let _ = self.workers.ask(&family, &Request::Release, limits);
        }
        if let Some(roofs) = &self.roofs
            && turns.iter().any(|t| least_possible_ns(roofs, &t.record).is_some())
        {
            // Before anybody is accused the machine gets another chance: a limit is what it can do undisturbed.
            let roofs = roofs::again(self.workers, self.workers.device(), roofs);
            turns.iter_mut().for_each(|t| hold_against(&roofs, &mut t.record));
            self.roofs = Some(roofs);
        }
        turns.into_iter().map(|t| t.record).collect()
    }

    /// Holds the card's oracle of a case against the host's: what differs, one line each.
    pub fn oracle(&mut self, planned: &Planned) -> Result<Vec<String>, Fault> {
        let request = Request::Oracle { case: planned.case.clone() };
        match self.workers.ask("oracle", &request, self.limits(planned))? {
            Reply::Compared { problems, .. } => Ok(problems),
            other => Err(unexpected(&other)),
        }
    }

    /// Only the gate: verdicts without times.
    pub fn verify(&mut self, planned: &Planned, impl_name: &str) -> Result<Verify, Fault> {
        let family = family(impl_name);
        let request = Request::Verify { case: planned.case.clone(), impl_name: impl_name.to_string() };
        let start = Instant::now();
        let limits = self.first_limits(planned, &family);
        let reply = self.workers.ask(&family, &request, limits);
        self.phases.verify_ns += start.elapsed().as_nanos() as u64;
        match reply? {
            Reply::Verified { verify, .. } => Ok(verify),
            other => Err(unexpected(&other)),
        }
    }

    /// Why this case cannot be run here at all, known before anything is allocated.
    pub fn too_large(&self, planned: &Planned) -> Option<Fault> {
        let mut needs = problem::bytes(planned.entry.op, &planned.case);
        let on_card = self.workers.hellos.values().filter_map(|h| h.memory).min();
        // The oracle, the allocator and the system need room, too; on a card only the first two.
        let mut spare = (256 << 20) + needs / 16;
        if on_card.is_some() {
            // Every family holds the case in memory of its own.
            needs *= families_of(planned).len() as u64;
            spare = (8 << 20) + needs / 16;
        }
        let available = on_card.unwrap_or_else(crate::env::available_memory);
        (needs + spare > available).then(|| {
            let message = format!("needs {} of memory; {} are available", units::bytes(needs), units::bytes(available));
            Fault::new(Status::OutOfMemory, message)
        })
    }

    fn limits(&self, planned: &Planned) -> Limits {
        let bytes = planned.case.tensor_bytes(planned.entry.op);
        let flops = planned.entry.op.cost(&planned.case).flops;
        let on_card = self.workers.device() != Choice::Cpu;
        // Plain loops and the oracle pass through memory at some 20 MB/s at the worst, and compute at 200 MFLOP/s; on a
        // card it is a thousand times as much.
        let (rate, speed) = if on_card { (2e10, 2e11) } else { (2e7, 2e8) };
        let time = self.deadline + Duration::from_secs_f64(bytes as f64 / rate + flops as f64 / speed);
        // A process that uses a GPU maps much that it does not fill.
        let more = if on_card { 4 * WORKER_MEMORY } else { 0 };
        Limits { time, memory: 3 * bytes + WORKER_MEMORY + more }
    }

    /// What a step may take in which a library may still compile.
    fn first_limits(&self, planned: &Planned, family: &str) -> Limits {
        let limits = self.limits(planned);
        if python::runs(family) { Limits { time: limits.time + COMPILING * self.deadline, ..limits } } else { limits }
    }

    fn turn(&self, planned: &Planned, imp: &'static dyn Impl, group: &str) -> Turn {
        let (case, op) = (&planned.case, planned.entry.op);
        let family = family(imp.name());
        let device = self.workers.hellos.get(&family).or_else(|| self.workers.hellos.values().next());
        let record = Record {
            schema: SCHEMA,
            case: case.id.clone(),
            op: case.op.clone(),
            axes: case.axes.clone(),
            dtype: case.dtype,
            attrs: case.attrs.clone(),
            contract: op.contract(case),
            impl_name: imp.name().to_string(),
            impl_hash: imp.hash(),
            device: device.expect("workers start before cases").device.clone(),
            mode: self.settings.mode,
            seed: case.seed,
            status: if self.settings.verify { Status::Ok } else { Status::Unverified },
            verify: None,
            checked: None,
            samples_ns: Vec::new(),
            clock_mhz: Vec::new(),
            visits: Vec::new(),
            group: group.to_string(),
            stop: None,
            cost: op.cost(case),
            times: Times::default(),
            kernels: Vec::new(),
            notes: Vec::new(),
            message: String::new(),
        };
        Turn { imp, family, record, generation: 0, spent_ns: 0, failed: false }
    }

    fn refuse(&mut self, planned: &Planned, turns: &mut [Turn]) {
        let too_large = self.too_large(planned);
        for turn in turns {
            if let Some(fault) = &too_large {
                turn.fail(fault.clone());
            } else if let Err(why) = turn.imp.supports(&planned.case) {
                turn.fail(Fault::new(Status::Unsupported, why));
            }
        }
    }

    fn check(&mut self, planned: &Planned, turn: &mut Turn) {
        if !self.settings.verify {
            return;
        }
        match self.verify(planned, turn.imp.name()) {
            Ok(verify) => turn.judge(verify),
            Err(fault) => turn.fail(fault),
        }
    }

    fn prepare(&mut self, planned: &Planned, turn: &mut Turn) {
        let (case, impl_name) = (planned.case.clone(), turn.imp.name().to_string());
        let request = Request::Prepare { case, impl_name, mode: self.settings.mode, check: self.settings.verify };
        let start = Instant::now();
        let limits = self.first_limits(planned, &turn.family);
        let reply = self.workers.ask(&turn.family, &request, limits);
        self.phases.prepare_ns += start.elapsed().as_nanos() as u64;
        match reply {
            Ok(Reply::Prepared { times, kernels, notes, contract, .. }) => {
                turn.record.contract = contract.unwrap_or_else(|| planned.entry.op.contract(&planned.case));
                turn.record.times = times;
                turn.record.kernels = kernels;
                turn.record.notes = notes;
                turn.generation = self.workers.generation(&turn.family);
            }
            Ok(other) => turn.fail(unexpected(&other)),
            Err(fault) => turn.fail(fault),
        }
    }

    /// Every round visits every impl twice, in an order of its own.
    fn rounds(&mut self, planned: &Planned, turns: &mut [Turn], limits: Limits, step: &mut impl FnMut(&str)) {
        let budget = self.settings.budget_ns;
        let slice = (budget / (2 * self.settings.rounds as u64)).max(1);
        for round in 0..self.settings.rounds {
            let mut order: Vec<usize> = (0..turns.len()).chain(0..turns.len()).collect();
            shuffle(&mut order, planned.case.seed ^ round as u64);
            // Whoever has used up the budget before a round begins is left out of it whole: half a round is no A/A pair.
            let over: Vec<bool> = turns.iter().map(|t| t.spent_ns >= budget && round >= MIN_ROUNDS).collect();
            for i in order.into_iter().filter(|i| !over[*i]) {
                let turn = &mut turns[i];
                if !turn.failed {
                    step(turn.imp.name());
                    let check = if self.settings.verify { Check::On } else { Check::Off };
                    self.visit(planned, turn, limits, round, slice, check);
                }
            }
        }
    }

    /// Whose values have not changed while it was timed, because that is expensive, gets a last, short visit in which they
    /// do: every impl that is timed was right on values that it could not know.
    fn close(&mut self, planned: &Planned, turn: &mut Turn, limits: Limits) {
        if self.settings.verify && turn.record.checked.is_none_or(|c| c.fresh == 0) {
            self.visit(planned, turn, limits, self.settings.rounds, 1, Check::Fresh);
        }
        let rule = StopRule { precision: self.settings.precision, budget_ns: 0, min_samples: 1, max_samples: 1 };
        if !turn.failed {
            let converged = rule.converged(&turn.record.samples_ns);
            turn.record.stop = Some(if converged { Stop::Precision } else { Stop::Budget });
        }
    }

    fn visit(&mut self, planned: &Planned, turn: &mut Turn, limits: Limits, round: u32, slice: u64, check: Check) {
        if turn.generation != self.workers.generation(&turn.family) {
            self.prepare(planned, turn); // another impl took the worker with it
            if turn.failed {
                return;
            }
        }
        let rule = StopRule {
            precision: self.settings.precision,
            budget_ns: slice,
            min_samples: MIN_SAMPLES,
            max_samples: MAX_SAMPLES,
        };
        let warmup = match self.settings.warmup_ns {
            Some(ns) => Warmup::For { ns },
            None => Warmup::UntilSteady { limit_ns: slice / WARMUP_SHARE },
        };
        let request = Request::Sample { impl_name: turn.imp.name().to_string(), rule, warmup, check };
        let start = Instant::now();
        let reply = self.workers.ask(&turn.family, &request, limits);
        let spent = start.elapsed().as_nanos() as u64;
        self.phases.sample_ns += spent;
        turn.spent_ns += spent;
        match reply {
            Ok(Reply::Sampled { samples_ns, clock_mhz, conditions, verify, checked, .. }) => {
                turn.record.visits.push(Visit { round, samples: samples_ns.len() as u32, conditions });
                turn.record.samples_ns.extend(samples_ns);
                turn.record.clock_mhz.extend(clock_mhz);
                if let Some(more) = checked {
                    turn.record.checked.get_or_insert(Checked { same_bits: true, ..Checked::default() }).add(&more);
                }
                if let Some(verify) = verify {
                    turn.judge(verify);
                }
            }
            Ok(other) => turn.fail(unexpected(&other)),
            Err(fault) => turn.fail(fault),
        }
    }
}

impl Turn {
    fn judge(&mut self, verify: Verify) {
        let known = self.record.verify.get_or_insert_default();
        known.merge(verify);
        if !known.ok() {
            let message = known.problems.join("; ");
            self.fail(Fault::new(Status::Wrong, message));
        }
    }

    /// A record that failed carries no times.
    fn fail(&mut self, fault: Fault) {
        self.failed = true;
        if fault.status == Status::Wrong {
            // What is no result at all never came to the gate.
            let verify = self.record.verify.get_or_insert_default();
            if verify.problems.is_empty() {
                verify.problems.push(fault.message.clone());
            }
        }
        self.record.status = fault.status;
        self.record.message = fault.message;
        self.record.samples_ns.clear();
        self.record.clock_mhz.clear();
        self.record.visits.clear();
        self.record.stop = None;
    }
}

fn families_of(planned: &Planned) -> Vec<String> {
    let mut families: Vec<String> = planned.impls.iter().map(|i| family(i.name())).collect();
    families.sort();
    families.dedup();
    families
}

fn families(turns: &[Turn]) -> Vec<String> {
    let mut families: Vec<String> = turns.iter().filter(|t| t.generation > 0).map(|t| t.family.clone()).collect();
    families.dedup();
    families
}

/// What the work takes at the least, if the record claims less: its times are no times of this work. In a cache there is
/// no memory to be limited by.
fn least_possible_ns(roofs: &Roofs, record: &Record) -> Option<f64> {
    let median = record.median().filter(|_| record.mode == Mode::Cold)?;
    let least_ns = 1e9 * roofs.impossible_seconds(&record.cost, record.dtype);
    (median.hi < least_ns).then_some(least_ns)
}

fn hold_against(roofs: &Roofs, record: &mut Record) {
    if let (Some(least_ns), Some(median)) = (least_possible_ns(roofs, record), record.median()) {
        let (is, least) = (units::time(median.value), units::time(least_ns));
        record.status = Status::Impossible;
        record.message = format!("takes {is}, and this machine cannot do the work in less than {least}");
    }
}

fn unexpected(reply: &Reply) -> Fault {
    Fault::new(Status::Crashed, format!("the worker answered something else: {reply:?}"))
}

fn shuffle(order: &mut [usize], seed: u64) {
    for i in (1..order.len()).rev() {
        order.swap(i, philox(seed, i as u64)[0] as usize % (i + 1));
    }
}

fn nanos_now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmark_core::record::Run;

    #[test]
    fn a_time_beyond_the_roof_is_a_failure_that_keeps_its_samples() {
        let run: Run = serde_json::from_str(include_str!("../tests/data/run/run.json")).unwrap();
        let line = include_str!("../tests/data/run/records.jsonl").lines().next().unwrap();
        let mut record: Record = serde_json::from_str(line).unwrap();
        let roofs = run.roofs.unwrap();
        hold_against(&roofs, &mut record);
        assert_eq!(record.status, Status::Ok);
        record.samples_ns.fill(4e5); // 16.8 MB at 40 GB/s take 420 µs
        for (mode, status) in [(Mode::Hot, Status::Ok), (Mode::Cold, Status::Impossible)] {
            record.mode = mode;
            hold_against(&roofs, &mut record);
            assert_eq!(record.status, status);
        }
        assert_eq!(record.message, "takes 400 µs, and this machine cannot do the work in less than 416 µs");
        assert_eq!(record.validate(), Ok(()));
        assert!(record.status.is_failure() && !record.status.is_comparable());
    }
}
