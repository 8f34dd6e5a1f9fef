//! The worker process: owns a device and one family of impls, answers the host's requests one by one. It may die at any
//! moment without harm to the host; it prints nothing of its own. A Python process serves its family with the same code.

use crate::device::Choice;
use crate::impls;
use crate::seal::Key;
use crate::truth::{self, FromHost, Line};
use kmark_core::case::Case;
use kmark_core::error::{Error, Result};
use kmark_core::gate::Verify;
use kmark_core::op::Op;
use kmark_core::record::{Mode, Status, Times};
use kmark_core::stop::Stop;
use kmark_core::tensor::{TensorSpec, View};
use kmark_core::wire::{PROTOCOL, Question, Reply, Request};
use kmark_device::cuda::{Cuda, GpuWorkload, Lies};
use kmark_device::inherited::take_pipe;
use kmark_device::measure::{Outcome, Stage};
use kmark_device::workload::{self, verify_on};
use kmark_device::{Built, Device, Fault, Impl, Launch, kind_of};
use kmark_ops::Entry;
use kmark_ops::cuda::UserKernel;
use kmark_ops::mutants;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The worker's ends of the host's two pipes, until it has taken them.
pub const REQUESTS_FD: i32 = 3;
pub const REPLIES_FD: i32 = 4;

pub fn run(family: &str, device: &str) -> Result<u8> {
    // The thread that launches belongs to the pool: handing work to a pool from outside costs two wake-ups per launch.
    kmark_device::cpu::in_pool(|| {
        let open = || Choice::parse(device).map_err(|e| e.message).and_then(|c| c.open().map_err(|f| f.message));
        serve(family, open, &BuiltIn)?;
        Ok(0)
    })
}

/// The impls of a worker.
pub trait Impls {
    /// By family, op, kind of device and name.
    fn find(&self, family: &str, entry: &'static Entry, kind: &str, name: &str) -> Found;
    /// A case is over: memory that was kept for the next launch may go.
    fn release(&self) {}
    /// Whether outputs are right for the inputs of the case's seed, by the user's reference.
    fn judge(&self, _op: &'static Op, _case: &Case, _outputs: &View) -> std::result::Result<Verify, Fault> {
        Err(Fault::new(Status::Unavailable, "this process knows no reference"))
    }
    /// Values of an input that code of the user's makes.
    fn make(&self, _op: &'static Op, _case: &Case, _tensor: &str) -> std::result::Result<Vec<f64>, Fault> {
        Err(Fault::new(Status::Unavailable, "this process makes no inputs"))
    }
}

pub type Found = std::result::Result<Box<dyn Impl>, Fault>;

/// The device of a worker, or why it could not be opened.
pub type Opened = std::result::Result<Box<dyn Device>, String>;

/// Answers requests until the host leaves. Pipes and key are taken before anything else happens in the process.
pub fn serve(family: &str, open: impl FnOnce() -> Opened, impls: &dyn Impls) -> Result<()> {
    // If the host is killed, a launch that never ends must not stay behind.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let no_pipe = |e: std::io::Error| Error::usage(format!("a worker is started by kmark itself, not by hand ({e})"));
    let mut requests = BufReader::new(File::from(take_pipe(REQUESTS_FD).map_err(no_pipe)?));
    let replies = File::from(take_pipe(REPLIES_FD).map_err(no_pipe)?);
    let mut line = String::new();
    requests.read_line(&mut line).map_err(no_pipe)?;
    let Some(key) = Key::of_line(&line) else { return Ok(()) }; // the host is gone already
    let line = Arc::new(Mutex::new(Line::new(&key, requests, replies)));
    let hold = || line.lock().expect("nobody panics while talking to the host");
    let mut state =
        Worker { family, device: open(), impls, line: Arc::clone(&line), prepared: None, verified: HashMap::new() };
    loop {
        let request = hold().receive().map_err(|what| Error::own(format!("worker {family}: {what}")))?;
        let Some(request) = request else { return Ok(()) };
        let reply = state.answer(request);
        if !hold().send(&reply) || reply == Reply::Bye {
            return Ok(());
        }
    }
}

/// The impls that are in this program, and kernels in files.
pub struct BuiltIn;

impl Impls for BuiltIn {
    fn find(&self, family: &str, entry: &'static Entry, kind: &str, name: &str) -> Found {
        let missing = || Fault::new(Status::Unavailable, format!("worker {family} has no {} {name}", entry.op.name));
        Ok(match family {
            "mutant" => {
                let all = mutants::of(entry, kind);
                Box::new(all.into_iter().find(|m| m.name() == name).ok_or_else(missing)?)
            }
            _ if impls::is_kernel_file(name) => {
                let user = impls::user_kernel(name).map_err(|e| Fault::new(Status::BuildFailed, e.message))?;
                Box::new(user)
            }
            _ => {
                let (base, choice) = impls::split_choice(name);
                let found = impls::impls_of(entry, kind).into_iter().find(|i| i.name() == base).ok_or_else(missing)?;
                let Some(choice) = choice else { return Ok(Box::new(found)) };
                let chosen = UserKernel::variant_of(found, name, choice);
                Box::new(chosen.map_err(|e| Fault::new(Status::Unsupported, format!("{name}: {e}")))?)
            }
        })
    }
}

struct Worker<'a> {
    family: &'a str,
    /// Or why it could not be opened.
    device: Opened,
    impls: &'a dyn Impls,
    line: Arc<Mutex<Line>>,
    prepared: Option<Prepared>,
    /// Impls of a case as they were built when they were verified: a library that compiles does so then, and only once.
    verified: HashMap<(String, String), Built>,
}

/// The case that is being sampled, with the impls that take turns.
struct Prepared {
    case: Case,
    mode: Mode,
    stage: Stage,
}

/// Launches on several sets of memory, one after the other.
struct Rotation(Vec<Box<dyn Launch>>);

impl Launch for Rotation {
    fn launch(&mut self) -> std::result::Result<(), Fault> {
        self.0.iter_mut().try_for_each(|l| l.launch())
    }
    fn witness(&mut self) -> std::result::Result<(), Fault> {
        self.0.iter_mut().try_for_each(|l| l.witness())
    }
    fn settle(&mut self) -> std::result::Result<(), Fault> {
        self.0.iter_mut().try_for_each(|l| l.settle())
    }
    fn settles(&self) -> bool {
        self.0.iter().any(|l| l.settles())
    }
    fn refresh(&mut self) -> std::result::Result<(), Fault> {
        self.0.iter_mut().try_for_each(|l| l.refresh())
    }
    fn built(&self) -> Built {
        self.0.first().map(|l| l.built()).unwrap_or_default()
    }
}

/// Apart from the worker, so that what is prepared can be changed meanwhile.
fn opened(device: &Opened) -> std::result::Result<&dyn Device, Fault> {
    device.as_deref().map_err(|why| Fault::new(Status::Unavailable, why.clone()))
}

impl Worker<'_> {
    fn device(&self) -> std::result::Result<&dyn Device, Fault> {
        opened(&self.device)
    }

    fn answer(&mut self, request: Request) -> Reply {
        let start = Instant::now();
        let busy = || start.elapsed().as_nanos() as u64;
        self.handle(request, &busy).unwrap_or_else(|fault| {
            // A kernel that failed may show only now, and then it is the cause.
            let after = opened(&self.device).and_then(|device| device.wait());
            let Fault { status, message, traceback } =
                after.err().filter(|_| fault.status != Status::Unavailable).unwrap_or(fault);
            Reply::Failed { status, message, traceback, busy_ns: busy() }
        })
    }

    fn handle(&mut self, request: Request, busy: &dyn Fn() -> u64) -> std::result::Result<Reply, Fault> {
        Ok(match request {
            Request::Hello { protocol, calibrate, own, folder } => {
                if protocol != PROTOCOL {
                    let message = format!("host speaks protocol {protocol}, worker {PROTOCOL}");
                    return Err(Fault::new(Status::Unavailable, message));
                }
                for op in &own {
                    kmark_core::own::learn(op).map_err(|why| Fault::new(Status::Unavailable, why))?;
                }
                if !folder.is_empty() {
                    kmark_core::own::ask(Box::new(FromHost { line: Arc::clone(&self.line), folder: folder.into() }));
                }
                let device = self.device()?;
                let calibration = if calibrate { Some(device.calibrate()?) } else { None };
                let memory = device.memory();
                Reply::Hello { protocol, device: device.id(), memory, calibration, busy_ns: busy() }
            }
            Request::Verify { case, impl_name, but_first } => {
                let (entry, imp) = self.find(&case, &impl_name)?;
                self.prepared = None; // nobody samples now, and memory may be short
                let sets = u64::from(but_first)..entry.op.checks(&case);
                let (verify, built) = verify_on(self.device()?, entry.op, &*imp, &case, sets)?;
                self.verified.retain(|(of, _), _| *of == case.id);
                self.verified.insert((case.id, impl_name), built);
                Reply::Verified { verify, busy_ns: busy() }
            }
            Request::Oracle { case } => {
                let entry = self.entry(&case)?;
                if entry.op.judge.is_some() {
                    let message = "its reference runs in Python; there is no oracle on the GPU to compare";
                    return Err(Fault::new(Status::Unsupported, message));
                }
                let cuda =
                    kind_of::<Cuda>(self.device()?).ok_or_else(|| Fault::new(Status::Unsupported, "needs a GPU"))?;
                let problems = GpuWorkload::new(cuda, entry.op, &case, entry.op.value_seed(&case, 0), Lies::InPages)?
                    .against_host()?;
                Reply::Compared { problems, busy_ns: busy() }
            }
            Request::Prepare { case, impl_name, mode, check } => {
                let prepared = self.prepare(case, &impl_name, mode, check);
                let (times, Built { kernels, notes, libraries, contract, .. }, verify) = prepared?;
                Reply::Prepared { times, kernels, notes, libraries, contract, verify, busy_ns: busy() }
            }
            Request::Sample { impl_name, rule, warmup, check } => {
                let device = opened(&self.device)?;
                let lost = || Fault::new(Status::Crashed, format!("{impl_name} was not prepared"));
                let stage = &mut self.prepared.as_mut().ok_or_else(lost)?.stage;
                device.conditions(); // what was seen before is somebody else's
                let Outcome { visit, checked, verify } = stage.visit(device, &impl_name, &rule, warmup, check)?;
                Reply::Sampled {
                    samples_ns: visit.samples_ns,
                    clock_mhz: visit.clock_mhz,
                    stop: visit.stop.unwrap_or(Stop::Samples),
                    conditions: device.conditions(),
                    verify,
                    checked,
                    busy_ns: busy(),
                }
            }
            Request::Move => {
                self.prepared.iter().try_for_each(|p| p.stage.elsewhere())?;
                Reply::Moved { busy_ns: busy() }
            }
            Request::Release => {
                self.prepared = None;
                self.verified.clear();
                self.impls.release();
                Reply::Released
            }
            Request::Asked { question } => self.tell(question, busy)?,
            Request::Answer { .. } => return Err(Fault::new(Status::Crashed, "nobody asked")),
            Request::Bye => Reply::Bye,
        })
    }

    fn prepare(
        &mut self,
        case: Case,
        impl_name: &str,
        mode: Mode,
        check: bool,
    ) -> std::result::Result<(Times, Built, Option<Verify>), Fault> {
        let (entry, imp) = self.find(&case, impl_name)?;
        if self.prepared.as_ref().is_none_or(|p| p.case != case || p.mode != mode) {
            self.prepared = None; // frees the last case's memory before the next one's is taken
            let device = self.device()?;
            let copies = match mode {
                Mode::Graph => device.rotation(workload::bytes(entry.op, &case)).max(1),
                _ => 1,
            };
            let seed = entry.op.value_seed(&case, 0);
            let workload = |i| match copies {
                1 => device.workload(entry.op, &case, Stage::seed_of(seed, i)),
                _ => device.one_of_many(entry.op, &case, Stage::seed_of(seed, i)),
            };
            let workloads = (0..copies as u64).map(workload);
            let stage = Stage::new(&case, workloads.collect::<std::result::Result<_, Fault>>()?, mode, seed);
            self.prepared = Some(Prepared { case: case.clone(), mode, stage });
        }
        let device = opened(&self.device)?;
        let stage = &mut self.prepared.as_mut().expect("just made").stage;
        let start = Instant::now();
        let bound = stage.workloads().iter().map(|p| imp.bind(device, entry.op, &case, p.buffers()));
        let mut launches: Vec<_> = bound.collect::<std::result::Result<_, Fault>>()?;
        let aside_ns: f64 = launches.iter().map(|l| l.built().aside_ns).sum();
        let plan_ns = start.elapsed().as_nanos() as f64 - aside_ns;
        let built = launches[0].built();
        stage.reset()?;
        device.wait()?;
        let start = Instant::now();
        launches[0].launch()?;
        device.wait()?;
        let first_call_ns = start.elapsed().as_nanos() as f64;
        let start = Instant::now();
        launches[0].settle()?;
        let settle_ns = launches[0].settles().then(|| start.elapsed().as_nanos() as f64);
        let launch = match mode {
            Mode::Graph => {
                stage.reset()?;
                device.capture(Box::new(Rotation(launches)))?
            }
            _ => launches.remove(0),
        };
        let verify = stage.add(device, impl_name, launch, check)?;
        // Building is part of binding, but a cost of its own.
        let plan_ns = (plan_ns - built.build_ns.unwrap_or(0.0) - built.tune_ns.unwrap_or(0.0)).max(0.0);
        let earlier = self.verified.get(&(case.id, impl_name.to_string()));
        let longer = |of: fn(&Built) -> Option<f64>| {
            let both = of(&built).into_iter().chain(earlier.and_then(of));
            both.reduce(f64::max)
        };
        let times = Times {
            build_ns: longer(|b| b.build_ns),
            tune_ns: longer(|b| b.tune_ns),
            plan_ns: Some(plan_ns),
            first_call_ns: Some(first_call_ns),
            settle_ns,
        };
        Ok((times, built, verify))
    }

    /// What another worker wants to know.
    fn tell(&self, question: Question, busy: &dyn Fn() -> u64) -> std::result::Result<Reply, Fault> {
        let failed = |why: String| Fault::new(Status::Unavailable, why);
        let op = self.entry(question.case())?.op;
        match question {
            Question::Judge { case, outputs, hash } => {
                let (specs, bytes) = (op.tensors(&case), truth::read(&outputs, &hash).map_err(failed)?);
                let mut rest = &bytes[..];
                let mut take = |spec: &TensorSpec| {
                    let (head, tail) = rest.split_at_checked(if spec.role.is_output() { spec.bytes() } else { 0 })?;
                    rest = tail;
                    Some(head).filter(|_| spec.role.is_output())
                };
                let view = View { specs: &specs, bytes: specs.iter().map(&mut take).collect() };
                let verify = self.impls.judge(op, &case, &view)?;
                Ok(Reply::Verified { verify, busy_ns: busy() })
            }
            Question::Make { case, tensor, into } => {
                let values = self.impls.make(op, &case, &tensor)?;
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                std::fs::write(&into, bytes).map_err(|e| failed(format!("{into}: {e}")))?;
                Ok(Reply::Made { busy_ns: busy() })
            }
        }
    }

    fn entry(&self, case: &Case) -> std::result::Result<&'static Entry, Fault> {
        let missing = || Fault::new(Status::Unavailable, format!("worker {} has no op {}", self.family, case.op));
        kmark_ops::find(&case.op).ok_or_else(missing)
    }

    fn find(&self, case: &Case, name: &str) -> std::result::Result<(&'static Entry, Box<dyn Impl>), Fault> {
        let entry = self.entry(case)?;
        let kind = self.device()?.id().kind;
        Ok((entry, self.impls.find(self.family, entry, &kind, name)?))
    }
}
