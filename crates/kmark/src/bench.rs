//! One case at a time: verify every impl, then let them take turns in balanced order, then check what was timed. The host
//! owns the budget; the workers own the clock. Results are records; nothing is printed or written here.
//!
//! Every family is verified in a process of its own. Kernels of ours, of vendors and of users' files are then timed in one
//! process, on the same tensors: the same launch differs between two processes by about 100 ns, and between two places
//! of its tensors by more. Who fails in company is tried again alone.

mod compile;
mod tune;

use crate::device::Choice;
use crate::host::{Limits, Workers};
use crate::own;
use crate::plan::Planned;
use crate::turn::{Turn, seats};
use crate::{possible, python, units};
use kmark_core::cost::Roofs;
use kmark_core::fill::philox;
use kmark_core::gate::Verify;
use kmark_core::record::{Checked, Mode, Record, SCHEMA, Status, Times, Visit, family};
use kmark_core::run::{Phases, Settings};
use kmark_core::stop::{Stop, StopRule};
use kmark_core::turns::{MIN_SAMPLES, Turns, VISIT_PRECISION};
use kmark_core::wire::{Check, Reply, Request, Warmup};
use kmark_device::workload;
use kmark_device::{Fault, Impl};
use kmark_ops::cuda::hash_with;
use std::time::{Duration, Instant};

/// A visit takes at most this many samples; beyond it the time does not improve.
const MAX_SAMPLES: usize = 2000;
/// The share of a visit's time that warming up may take.
const WARMUP_SHARE: u64 = 4;
/// What a step may take, and how much more a Python library's first steps: it may have to compile.
const DEADLINE: Duration = Duration::from_secs(60);
const COMPILING: Duration = Duration::from_secs(240);
/// The process in which all kernels of a case are timed.
const TOGETHER: &str = "kernels";
/// Cases of up to so many bytes lie elsewhere in each round.
const SMALL: u64 = 64 << 20;
/// What a worker may use beside the tensors of its case.
const WORKER_MEMORY: u64 = 2 << 30;

pub struct Bench<'a> {
    pub workers: &'a mut Workers,
    pub settings: &'a Settings,
    pub deadlines: Deadlines,
    /// The machine's limits, where they were measured.
    pub roofs: Option<Roofs>,
    pub phases: Phases,
}

/// How long things may take.
pub struct Deadlines {
    step: Duration,
    compiling: Duration,
}

impl Deadlines {
    /// A deadline that somebody asked for is one, whatever has to be compiled.
    pub fn of(asked: Option<Duration>) -> Deadlines {
        match asked {
            Some(step) => Deadlines { step, compiling: Duration::ZERO },
            None => Deadlines { step: DEADLINE, compiling: COMPILING },
        }
    }
}

impl Bench<'_> {
    /// Runs the case with all its impls; one record each. `step` hears whose turn it is, and sees how records grow.
    pub fn case(&mut self, planned: &Planned, mut step: impl FnMut(&str, &[&Record])) -> Vec<Record> {
        let key = drawn();
        let group = format!("{:08x}", philox(key, 0)[0]);
        let limits = self.limits(planned);
        let mut turns: Vec<Turn> = planned.impls.iter().map(|imp| self.turn(planned, *imp, &group)).collect();
        self.refuse(planned, &mut turns);
        for i in 0..turns.len() {
            step(turns[i].imp.name(), &turns.iter().map(|t| &t.record).collect::<Vec<_>>());
            if !turns[i].failed {
                self.tune(planned, &mut turns[i], limits);
            }
            if !turns[i].failed {
                self.check(planned, &mut turns[i]);
            }
        }
        for i in 0..turns.len() {
            if !turns[i].failed {
                self.seat_down(planned, &mut turns, i, limits);
            }
        }
        self.rounds(planned, &mut turns, limits, key, &mut step);
        for turn in turns.iter_mut().filter(|t| !t.failed) {
            self.close(planned, turn, limits);
        }
        for seat in seats(turns.iter().filter(|t| t.generation > 0)) {
            // A worker that cannot even let go is replaced at the next request.
            let _ = self.workers.ask(&seat, &Request::Release, limits);
        }
        let mut records: Vec<Record> = turns.into_iter().map(|t| t.record).collect();
        if let Some(roofs) = &mut self.roofs {
            possible::hold_all_against(roofs, self.workers, &mut records);
        }
        records
    }

    /// Holds the GPU's oracle of a case against the host's: what differs, one line each.
    pub fn oracle(&mut self, planned: &Planned) -> Result<Vec<String>, Fault> {
        let request = Request::Oracle { case: planned.case.clone() };
        match self.workers.ask("oracle", &request, self.limits(planned))? {
            Reply::Compared { problems, .. } => Ok(problems),
            other => Err(unexpected(&other)),
        }
    }

    /// Only the gate: verdicts without times; without the first set of values, if that is judged elsewhere.
    pub fn verify(&mut self, planned: &Planned, impl_name: &str, but_first: bool) -> Result<Verify, Fault> {
        let family = family(impl_name); // whatever was chosen of it
        let request = Request::Verify { case: planned.case.clone(), impl_name: impl_name.to_string(), but_first };
        let start = Instant::now();
        let limits = self.first_limits(planned, &family);
        let reply = self.workers.ask(&family, &request, limits);
        self.phases.verify_ns += start.elapsed().as_nanos() as u64;
        match reply? {
            Reply::Verified { verify, .. } => Ok(verify.held_to(self.settings.grade)),
            other => Err(unexpected(&other)),
        }
    }

    /// Why this case cannot be run here at all, known before anything is allocated.
    pub fn too_large(&self, planned: &Planned) -> Option<Fault> {
        let mut needs = workload::bytes(planned.entry.op, &planned.case);
        if let Some(fault) = own::too_large(&planned.case) {
            return Some(fault);
        }
        let on_gpu = self.workers.hellos.values().filter_map(|h| h.memory).min();
        // The oracle, the allocator and the system need room, too; on a GPU only the first two.
        let mut spare = (256 << 20) + needs / 16;
        if on_gpu.is_some() {
            // Every process holds the case in memory of its own.
            needs *= self.seats_of(planned).len() as u64;
            spare = (8 << 20) + needs / 16;
        }
        let available = on_gpu.unwrap_or_else(crate::env::available_memory);
        (needs + spare > available).then(|| {
            let message = format!("needs {} of memory; {} are available", units::bytes(needs), units::bytes(available));
            Fault::new(Status::OutOfMemory, message)
        })
    }

    fn limits(&self, planned: &Planned) -> Limits {
        let bytes = planned.entry.op.tensor_bytes(&planned.case);
        let flops = planned.entry.op.cost(&planned.case).flops;
        let on_gpu = self.workers.device() != Choice::Cpu;
        // Plain loops and the oracle pass through memory at some 20 MB/s at the worst, and compute at 200 MFLOP/s; on a
        // GPU it is a thousand times as much.
        let (rate, speed) = if on_gpu { (2e10, 2e11) } else { (2e7, 2e8) };
        let time = self.deadlines.step + Duration::from_secs_f64(bytes as f64 / rate + flops as f64 / speed);
        // A process that uses a GPU maps much that it does not fill.
        let more = if on_gpu { 4 * WORKER_MEMORY } else { 0 };
        Limits { time, memory: 3 * bytes + WORKER_MEMORY + more }
    }

    /// What a step may take in which a library may still compile.
    fn first_limits(&self, planned: &Planned, family: &str) -> Limits {
        let limits = self.limits(planned);
        if python::runs(family) { Limits { time: limits.time + self.deadlines.compiling, ..limits } } else { limits }
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
            dtype: Some(case.dtype),
            attrs: case.attrs.clone(),
            contract: op.contract(case),
            impl_name: imp.name().to_string(),
            impl_hash: imp.hash(),
            source_hash: None,
            device: device.expect("workers start before cases").device.clone(),
            mode: self.settings.mode,
            seed: case.seed,
            status: self.unless_it_fails(),
            verify: None,
            checked: None,
            samples_ns: Vec::new(),
            clock_mhz: Vec::new(),
            visits: Vec::new(),
            process: None,
            group: group.to_string(),
            stop: None,
            cost: op.cost(case),
            items: None,
            times: Times::default(),
            kernels: Vec::new(),
            tuned: None,
            notes: Vec::new(),
            message: String::new(),
            traceback: String::new(),
        };
        let seat = self.seat(&family);
        let word = imp.name().to_string();
        Turn { imp, word, family, seat, record, generation: 0, spent_ns: 0, tune_ns: None, failed: false }
    }

    fn unless_it_fails(&self) -> Status {
        if self.settings.verify { Status::Ok } else { Status::Unverified }
    }

    /// In whose process a family is timed: kernels of a GPU in one, Python libraries and CPU impls each in their own.
    fn seat(&self, family: &str) -> String {
        match self.workers.device() {
            Choice::Cuda(_) if !python::runs(family) => TOGETHER.to_string(),
            _ => family.to_string(),
        }
    }

    fn seats_of(&self, planned: &Planned) -> Vec<String> {
        let mut seats: Vec<String> = planned.impls.iter().map(|i| self.seat(&family(i.name()))).collect();
        seats.sort();
        seats.dedup();
        seats
    }

    fn refuse(&mut self, planned: &Planned, turns: &mut [Turn]) {
        let too_large = self.too_large(planned);
        for turn in turns {
            if let Some(fault) = &too_large {
                turn.fail(fault.clone());
            } else if let Err(why) = turn.imp.supports(planned.entry.op, &planned.case) {
                turn.fail(Fault::new(Status::Unsupported, why));
            }
        }
    }

    /// The gate, in the process of its family, on every set of values but the one that it is timed on: that one is judged
    /// where it is timed.
    fn check(&mut self, planned: &Planned, turn: &mut Turn) {
        if !self.settings.verify {
            return;
        }
        match self.verify(planned, &turn.word, true) {
            Ok(verify) => turn.judge(verify),
            Err(fault) => turn.fail(fault),
        }
    }

    /// Before each round but the first, tensors of small cases on a GPU are put elsewhere in its memory: where they lie can
    /// make a kernel of a few µs slower by a fifth, and one place is not all places. A graph launches on many places.
    fn move_elsewhere(&mut self, planned: &Planned, turns: &mut [&mut Turn], limits: Limits, round: u32) {
        let small = workload::bytes(planned.entry.op, &planned.case) <= SMALL;
        let on_gpu = self.workers.device() != Choice::Cpu;
        if round == 0 || !small || !on_gpu || self.settings.mode == Mode::Graph {
            return;
        }
        for seat in seats(turns.iter().map(|t| &**t)) {
            let start = Instant::now();
            if self.workers.ask(&seat, &Request::Move, limits).is_err() {
                self.clear(&seat, turns, limits); // nobody knows what lies there now
            }
            self.phases.prepare_ns += start.elapsed().as_nanos() as u64;
        }
    }

    /// Prepares an impl for the first time. Who fails in company is tried again alone, and what it left is cleared.
    fn seat_down(&mut self, planned: &Planned, turns: &mut [Turn], i: usize, limits: Limits) {
        self.prepare(planned, &mut turns[i]);
        if turns[i].failed && turns[i].seat != turns[i].family {
            let seat = turns[i].seat.clone();
            turns[i].start_again(self.unless_it_fails());
            self.clear(&seat, &mut turns.iter_mut().collect::<Vec<_>>(), limits);
            self.prepare(planned, &mut turns[i]);
        }
    }

    fn prepare(&mut self, planned: &Planned, turn: &mut Turn) {
        let (case, impl_name) = (planned.case.clone(), turn.word.clone());
        let (mode, check) = (self.settings.mode, self.settings.verify);
        let request = Request::Prepare { case, impl_name, mode, check };
        let start = Instant::now();
        let limits = self.first_limits(planned, &turn.seat);
        let reply = self.workers.ask(&turn.seat, &request, limits);
        self.phases.prepare_ns += start.elapsed().as_nanos() as u64;
        match reply {
            Ok(Reply::Prepared { times, kernels, notes, libraries, contract, verify, .. }) => {
                match verify.map(|v| v.held_to(self.settings.grade)) {
                    // Alone it is judged again.
                    Some(verify) if !verify.ok() && turn.seat != turn.family => {
                        return turn.fail(Fault::new(Status::Wrong, verify.problems.join("; ")));
                    }
                    Some(verify) if !verify.ok() => return turn.judge(verify),
                    // Whoever is prepared again has been judged on these values.
                    Some(verify) if turn.record.process.is_none() => turn.judge(verify),
                    _ => {}
                }
                let chosen = turn.record.tuned.as_ref().map_or("", |t| &t.chosen);
                let own = turn.imp.hash();
                turn.record.impl_hash = hash_with(hash_with(own.clone(), chosen), &libraries);
                turn.record.source_hash = (turn.record.impl_hash != own).then_some(own);
                turn.record.contract = contract.unwrap_or_else(|| planned.entry.op.contract(&planned.case));
                turn.record.times = Times { tune_ns: times.tune_ns.or(turn.tune_ns), ..times };
                turn.record.kernels = kernels;
                turn.record.notes = notes;
                turn.record.process = Some(turn.seat.clone());
                turn.generation = self.workers.generation(&turn.seat);
            }
            Ok(other) => turn.fail(unexpected(&other)),
            Err(fault) => turn.fail(fault),
        }
    }

    fn rounds(
        &mut self,
        planned: &Planned,
        turns: &mut [Turn],
        limits: Limits,
        key: u64,
        step: &mut impl FnMut(&str, &[&Record]),
    ) {
        let plan = self.turns(key);
        let mut going: Vec<&mut Turn> = turns.iter_mut().filter(|t| !t.failed).collect();
        for round in 0..plan.rounds {
            self.move_elsewhere(planned, &mut going, limits, round);
            let spent: Vec<u64> = going.iter().map(|t| t.spent_ns).collect();
            for i in plan.round(round, &spent) {
                if going[i].failed {
                    continue;
                }
                step(going[i].imp.name(), &going.iter().map(|t| &t.record).collect::<Vec<_>>());
                let turn = &mut going[i];
                let seat = turn.seat.clone();
                self.visit(planned, turn, limits, round, plan.slice_ns(), self.usual_check());
                if turn.seat != seat {
                    self.clear(&seat, &mut going, limits);
                }
            }
        }
    }

    /// Somebody failed in company: what it left in the memory that the others share must not be theirs.
    fn clear(&mut self, seat: &str, turns: &mut [&mut Turn], limits: Limits) {
        let _ = self.workers.ask(seat, &Request::Release, limits);
        turns.iter_mut().filter(|t| t.seat == seat).for_each(|t| t.generation = 0);
    }

    /// Whose values have not changed while it was timed, because that is expensive, gets a last, short visit in which they
    /// do: every impl that is timed was right on values that it could not know.
    fn close(&mut self, planned: &Planned, turn: &mut Turn, limits: Limits) {
        if self.settings.verify && turn.record.checked.is_none_or(|c| c.fresh == 0) {
            self.visit(planned, turn, limits, self.settings.rounds, 1, Check::Fresh);
        }
        if !turn.failed {
            let converged = turn.record.time().is_some_and(|t| t.width() <= self.settings.precision);
            turn.record.stop = Some(if converged { Stop::Precision } else { Stop::Budget });
        }
    }

    fn visit(&mut self, planned: &Planned, turn: &mut Turn, limits: Limits, round: u32, slice: u64, check: Check) {
        self.visit_here(planned, turn, limits, round, slice, check);
        if turn.failed && turn.seat != turn.family {
            // Whoever shared its process may be to blame. Alone, it does everything again: who fails late fails again.
            turn.start_again(self.unless_it_fails());
            self.prepare(planned, turn);
            let usual = self.turns(0).slice_ns();
            for past in (0..round).flat_map(|past| [past, past]) {
                if !turn.failed {
                    self.visit_here(planned, turn, limits, past, usual, self.usual_check());
                }
            }
            if !turn.failed {
                self.visit_here(planned, turn, limits, round, slice, check);
            }
        }
    }

    fn usual_check(&self) -> Check {
        if self.settings.verify { Check::On } else { Check::Off }
    }

    fn turns(&self, key: u64) -> Turns {
        Turns { rounds: self.settings.rounds, budget_ns: self.settings.budget_ns, key }
    }

    fn visit_here(&mut self, planned: &Planned, turn: &mut Turn, limits: Limits, round: u32, slice: u64, check: Check) {
        if turn.generation != self.workers.generation(&turn.seat) {
            self.prepare(planned, turn); // another impl took the worker with it
            if turn.failed {
                return;
            }
        }
        let rule = StopRule {
            precision: VISIT_PRECISION * self.settings.precision,
            budget_ns: slice,
            min_samples: MIN_SAMPLES,
            max_samples: MAX_SAMPLES,
        };
        let warmup = match self.settings.warmup_ns {
            Some(ns) => Warmup::For { ns },
            None => Warmup::UntilSteady { limit_ns: slice / WARMUP_SHARE },
        };
        let request = Request::Sample { impl_name: turn.word.clone(), rule, warmup, check };
        let start = Instant::now();
        let reply = self.workers.ask(&turn.seat, &request, limits);
        let spent = start.elapsed().as_nanos() as u64;
        self.phases.sample_ns += spent;
        turn.spent_ns += spent;
        match reply {
            Ok(Reply::Sampled { samples_ns, clock_mhz, conditions, verify, checked, .. }) => {
                turn.record.visits.push(Visit { round, samples: samples_ns.len() as u32, conditions });
                self.phases.launches_ns += samples_ns.iter().sum::<f64>() as u64;
                turn.record.samples_ns.extend(samples_ns);
                turn.record.clock_mhz.extend(clock_mhz);
                if let Some(more) = checked {
                    turn.record.checked.get_or_insert(Checked { same_bits: true, ..Checked::default() }).add(&more);
                }
                if let Some(verify) = verify {
                    turn.judge(verify.held_to(self.settings.grade));
                }
            }
            Ok(other) => turn.fail(unexpected(&other)),
            Err(fault) => turn.fail(fault),
        }
    }
}

fn unexpected(reply: &Reply) -> Fault {
    Fault::new(Status::Crashed, format!("the worker answered something else: {reply:?}"))
}

/// A number that no two cases share, from the clock and from where the system put this process.
fn drawn() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u128(std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos()));
    hasher.finish()
}
