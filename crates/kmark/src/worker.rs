//! The worker process: owns a device and one family of impls, answers the host's requests one by one. It may die at any
//! moment without harm to the host; it prints nothing of its own.

use crate::env;
use crate::error::{Error, Result};
use crate::plan::impls_of;
use kmark_core::case::Case;
use kmark_core::record::{Status, Times};
use kmark_core::stop::Stop;
use kmark_core::wire::{PROTOCOL, Reply, Request};
use kmark_device::cpu::Cpu;
use kmark_device::measure::{self, Target};
use kmark_device::problem::{Problem, verify};
use kmark_device::{Device, Fault, Impl, Launch};
use kmark_ops::Entry;
use kmark_ops::mutants::{self, MutantImpl};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::time::Instant;

/// The worker's ends of the host's two pipes.
pub const REQUESTS_FD: i32 = 3;
pub const REPLIES_FD: i32 = 4;

pub fn run(family: &str) -> Result<u8> {
    // If the host is killed, a launch that never ends must not stay behind.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let no_pipe = |e: std::io::Error| Error::usage(format!("a worker is started by kmark itself, not by hand ({e})"));
    let requests = File::open(format!("/dev/fd/{REQUESTS_FD}")).map_err(no_pipe)?;
    let mut replies = OpenOptions::new().write(true).open(format!("/dev/fd/{REPLIES_FD}")).map_err(no_pipe)?;
    // The thread that launches belongs to the pool: handing work to a pool from outside costs two wake-ups per launch.
    kmark_device::cpu::in_pool(|| {
        let device = Cpu::new(&env::cpu_name());
        let mut state = Worker { family, device: &device, prepared: None };
        for line in BufReader::new(requests).lines() {
            let Ok(line) = line else { break };
            let request: Request = serde_json::from_str(&line).map_err(|e| {
                Error::own(format!("worker {family}: the host sent something else than a request: {e}"))
            })?;
            let reply = state.answer(request);
            let mut text = serde_json::to_string(&reply).expect("replies are plain data");
            text.push('\n');
            if replies.write_all(text.as_bytes()).is_err() || reply == Reply::Bye {
                break;
            }
        }
        Ok(0)
    })
}

struct Worker<'a> {
    family: &'a str,
    device: &'a dyn Device,
    prepared: Option<Prepared>,
}

/// The case that is being sampled, with a launch for each impl that takes turns.
struct Prepared {
    case: Case,
    problem: Problem,
    launches: HashMap<String, Box<dyn Launch>>,
}

impl Worker<'_> {
    fn answer(&mut self, request: Request) -> Reply {
        let start = Instant::now();
        let busy = || start.elapsed().as_nanos() as u64;
        self.handle(request, &busy).unwrap_or_else(|f| Reply::Failed {
            status: f.status,
            message: f.message,
            busy_ns: busy(),
        })
    }

    fn handle(&mut self, request: Request, busy: &dyn Fn() -> u64) -> std::result::Result<Reply, Fault> {
        Ok(match request {
            Request::Hello { protocol, calibrate } => {
                if protocol != PROTOCOL {
                    let message = format!("host speaks protocol {protocol}, worker {PROTOCOL}");
                    return Err(Fault::new(Status::Unavailable, message));
                }
                let calibration = if calibrate { Some(measure::calibrate(self.device)?) } else { None };
                Reply::Hello { protocol, device: self.device.id(), calibration, busy_ns: busy() }
            }
            Request::Verify { case, impl_name } => {
                let (entry, imp) = self.find(&case, &impl_name)?;
                let verify = verify(self.device, entry.op, &*imp, &case)?;
                Reply::Verified { verify, busy_ns: busy() }
            }
            Request::Prepare { case, impl_name } => {
                let times = self.prepare(case, &impl_name)?;
                Reply::Prepared { times, busy_ns: busy() }
            }
            Request::Sample { impl_name, mode, rule, warmup, gate } => {
                let lost = || Fault::new(Status::Crashed, format!("{impl_name} was not prepared"));
                let Prepared { problem, launches, .. } = self.prepared.as_mut().ok_or_else(lost)?;
                let launch = launches.get_mut(&impl_name).ok_or_else(lost)?;
                let visit = Target::with(problem, |target| {
                    measure::visit(self.device, &mut **launch, &target, mode, &rule, warmup, gate)
                })?;
                Reply::Sampled {
                    samples_ns: visit.samples_ns,
                    clock_mhz: visit.clock_mhz,
                    stop: visit.stop.unwrap_or(Stop::Samples),
                    verify: gate.then(|| problem.check()),
                    busy_ns: busy(),
                }
            }
            Request::Release => {
                self.prepared = None;
                Reply::Released
            }
            Request::Bye => Reply::Bye,
        })
    }

    fn prepare(&mut self, case: Case, impl_name: &str) -> std::result::Result<Times, Fault> {
        let (entry, imp) = self.find(&case, impl_name)?;
        if self.prepared.as_ref().is_none_or(|p| p.case != case) {
            self.prepared = None; // frees the last case's memory before the next one's is taken
            let problem = Problem::new(self.device, entry.op, &case, case.seed)?;
            self.prepared = Some(Prepared { case: case.clone(), problem, launches: HashMap::new() });
        }
        let prepared = self.prepared.as_mut().expect("just made");
        let start = Instant::now();
        let mut launch = imp.bind(self.device, &case, &prepared.problem.buffers)?;
        let plan_ns = start.elapsed().as_nanos() as f64;
        prepared.problem.reset();
        let start = Instant::now();
        launch.launch()?;
        let first_call_ns = start.elapsed().as_nanos() as f64;
        prepared.launches.insert(impl_name.to_string(), launch);
        Ok(Times { plan_ns: Some(plan_ns), first_call_ns: Some(first_call_ns), ..Times::default() })
    }

    fn find(&self, case: &Case, name: &str) -> std::result::Result<(&'static Entry, Box<dyn Impl>), Fault> {
        let missing = || Fault::new(Status::Unavailable, format!("worker {} has no {} {name}", self.family, case.op));
        let entry = kmark_ops::find(&case.op).ok_or_else(missing)?;
        let imp: Box<dyn Impl> = match name.strip_prefix("mutant/") {
            Some(mutant) => {
                let found = mutants::of(entry).find(|m| m.name == mutant).ok_or_else(missing)?;
                Box::new(MutantImpl::new(entry, found))
            }
            None => Box::new(impls_of(entry).into_iter().find(|i| i.name() == name).ok_or_else(missing)?),
        };
        Ok((entry, imp))
    }
}
