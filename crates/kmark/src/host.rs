//! The host's side of worker processes: start one per family, ask it things, and survive whatever it does. A worker
//! that crashes, hangs, grows without end or talks nonsense is ended, and the reason comes back as a typed fault.

use crate::device::Choice;
use crate::env;
use crate::error::{Error, Result};
use crate::log::{Log, Tail};
use crate::own;
use crate::processes::{self, end_orphans, signal_tree};
use crate::python;
use crate::seal::{Key, Seal, Way};
use crate::units;
use crate::worker::{REPLIES_FD, REQUESTS_FD};
use command_fds::{CommandFdExt, FdMapping};
use kmark_core::record::{Calibration, DeviceId, Status, holds_python};
use kmark_core::wire::{MAX_LINE, PROTOCOL, Question, Reply, Request};
use kmark_device::Fault;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, PipeWriter, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a step may take before the worker is ended.
#[derive(Clone, Copy)]
pub struct Limits {
    pub time: Duration,
    pub memory: u64,
}

/// The workers of a run, one per family, started when first needed.
pub struct Workers {
    device: Choice,
    calibrate: bool,
    running: HashMap<String, Worker>,
    /// Counts the starts and deaths of a family's worker: what an earlier one held is gone.
    generations: HashMap<String, u32>,
    /// What the first worker of each family said of itself.
    pub hellos: HashMap<String, Hello>,
    /// Families whose worker does not start, and why: it is not tried again.
    absent: HashMap<String, String>,
    /// Why the GPU that worked no longer does: no worker of any family starts on it. Nothing is asked of it any more.
    pub lost: Option<String>,
    /// Where what they print goes, beside the records of failures.
    pub log: Option<Arc<Log>>,
    /// What Python libraries find in their environment, besides what they always do.
    pub variables: Vec<(&'static str, String)>,
    /// Where workers and who judges for them leave tensors for each other; none if no op of a user's is run.
    shelf: Option<Shelf>,
    pub start_time: Duration,
    /// Time that workers spent on requests, by their own account.
    pub busy: Duration,
}

#[derive(Clone)]
pub struct Hello {
    pub device: DeviceId,
    pub calibration: Option<Calibration>,
    /// Free bytes of a device whose memory is not the host's.
    pub memory: Option<u64>,
}

impl Workers {
    pub fn new(device: Choice, calibrate: bool) -> Workers {
        kmark_device::inherited::keep_to_ourselves();
        Workers {
            device,
            calibrate,
            running: HashMap::new(),
            generations: HashMap::new(),
            hellos: HashMap::new(),
            absent: HashMap::new(),
            lost: None,
            log: None,
            variables: Vec::new(),
            shelf: None,
            start_time: Duration::ZERO,
            busy: Duration::ZERO,
        }
    }

    pub fn device(&self) -> Choice {
        self.device
    }

    /// Changes when a state in the family's worker is lost; 0 before its first start.
    pub fn generation(&self, family: &str) -> u32 {
        self.generations.get(family).copied().unwrap_or(0)
    }

    /// Asks the family's worker. A reply `Failed` comes back as `Err` like a death, but the worker lives on.
    pub fn ask(&mut self, family: &str, request: &Request, limits: Limits) -> std::result::Result<Reply, Fault> {
        self.start(family).map_err(|e| match &self.lost {
            Some(why) => Fault::new(Status::Crashed, format!("the GPU no longer works: {why}")),
            None => Fault::new(Status::Unavailable, e.message),
        })?;
        let mut answer = self.running.get_mut(family).expect("just started").ask(request, limits);
        while let Ok(Reply::Asks { question }) = answer {
            let reply = Box::new(self.judge(question));
            // It stood still meanwhile: the time of its request begins anew.
            let worker = self.running.get_mut(family).expect("it asked, so it runs");
            answer = worker.ask(&Request::Answer { reply }, limits);
        }
        end_orphans();
        match answer {
            Ok(Reply::Failed { status, message, traceback, busy_ns }) => {
                self.busy += Duration::from_nanos(busy_ns);
                if status == Status::Crashed {
                    self.forget(family); // a fault on a GPU leaves nothing there that works
                }
                Err(Fault { traceback, ..Fault::new(status, message) })
            }
            Ok(reply) => {
                self.busy += Duration::from_nanos(reply.busy_ns());
                Ok(reply)
            }
            Err(fault) => {
                self.forget(family);
                Err(fault)
            }
        }
    }

    /// Takes a question to the process that runs the reference of the case's op.
    fn judge(&mut self, question: Question) -> Reply {
        let failed = |message: String| {
            let (status, traceback) = (Status::Unavailable, String::new());
            Reply::Failed { status, message, traceback, busy_ns: 0 }
        };
        let op = &question.case().op;
        let Some((own, _)) = kmark_core::own::find(op) else { return failed(format!("{op} is no op of a user's")) };
        let limits = Limits { time: JUDGING, memory: env::available_memory() / 10 * 9 };
        match self.ask(&own::judge_of(own), &Request::Asked { question }, limits) {
            Ok(reply) => reply,
            Err(fault) => failed(format!("{}: {}", own.file, fault.message)),
        }
    }

    /// Ends the family's worker; the next request starts another.
    fn forget(&mut self, family: &str) {
        self.running.remove(family);
        end_orphans();
        *self.generations.entry(family.to_string()).or_default() += 1;
    }

    /// Starts the family's worker unless it runs, and learns its device and calibration.
    pub fn start(&mut self, family: &str) -> Result<()> {
        if self.running.contains_key(family) {
            return Ok(());
        }
        if let Some(why) = self.absent.get(family) {
            return Err(Error::own(why.clone()));
        }
        if let Some(why) = &self.lost {
            return Err(Error::own(why.clone()));
        }
        let again = self.hellos.contains_key(family);
        let Err(e) = self.start_now(family) else { return Ok(()) };
        let worked = again || (!python::runs(family) && !self.hellos.is_empty());
        match self.device {
            // What disturbed it once may be over.
            Choice::Cuda(_) if worked => {
                return self.start_now(family).inspect_err(|e| self.lost = Some(e.message.clone()));
            }
            _ if !again => drop(self.absent.insert(family.to_string(), e.message.clone())),
            _ => {}
        }
        Err(e)
    }

    fn start_now(&mut self, family: &str) -> Result<()> {
        let start = Instant::now();
        if self.shelf.is_none() && !kmark_core::own::known().is_empty() {
            self.shelf = Some(Shelf::new()?);
        }
        let (worker, hello) = self.greet(family, self.calibrate)?;
        if !own::is_judge(family) {
            self.hellos.entry(family.to_string()).or_insert(hello);
        }
        self.running.insert(family.to_string(), worker);
        *self.generations.entry(family.to_string()).or_default() += 1;
        self.start_time += start.elapsed();
        Ok(())
    }

    fn greet(&self, family: &str, calibrate: bool) -> Result<(Worker, Hello)> {
        let judges = own::is_judge(family);
        let device = if judges { Choice::Cpu } else { self.device };
        let mut worker = Worker::spawn(family, device, self.log.clone(), &self.variables)?;
        let limits = Limits { time: Duration::from_secs(60), memory: u64::MAX };
        let own = kmark_core::own::known().into_iter().cloned().collect();
        let shelf = self.shelf.as_ref().filter(|_| !judges);
        let folder = shelf.map_or_else(String::new, |s| s.0.display().to_string());
        let calibrate = calibrate && !judges;
        match worker.ask(&Request::Hello { protocol: PROTOCOL, calibrate, own, folder }, limits) {
            Ok(Reply::Hello { device, calibration, memory, .. }) => Ok((worker, Hello { device, calibration, memory })),
            Ok(Reply::Failed { message, .. }) => Err(Error::own(message)),
            Ok(other) => Err(Error::own(format!("worker {family} answered hello with {other:?}"))),
            Err(fault) => Err(Error::own(format!("worker {family} did not start: {}", fault.message))),
        }
    }

    /// After a crash on a GPU: whether it still works, which a fresh process finds out.
    pub fn look_after(&mut self) {
        if let (Choice::Cuda(_), None) = (self.device, &self.lost)
            && let Err(e) = self.greet(self.device.kind(), false)
        {
            self.lost = Some(e.message);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.running.clear();
        end_orphans();
    }
}

/// A reference that takes longer than this for one set of values hangs.
const JUDGING: Duration = Duration::from_secs(900);
/// How long the last words of a worker that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A folder of ours, which goes when we do.
struct Shelf(PathBuf);

impl Shelf {
    fn new() -> Result<Shelf> {
        // Memory where there is such a place: what lies here is read once.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let key = Key::draw().map_err(|e| Error::own(format!("cannot draw a name: {e}")))?.line();
        let path = place.join(format!("kmark-{}-{}", std::process::id(), &key[..16]));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| Error::own(format!("cannot make {}: {e}", path.display())))?;
        Ok(Shelf(path))
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Worker {
    child: Child,
    requests: Option<PipeWriter>,
    outgoing: Seal,
    /// Or what came instead.
    replies: Receiver<std::result::Result<Reply, String>>,
    /// It runs code of a user's, which may leave threads behind: between requests it stands still.
    halts: bool,
    log: Arc<Mutex<Tail>>,
    readers: [JoinHandle<()>; 2],
}

impl Worker {
    fn spawn(family: &str, device: Choice, file: Option<Arc<Log>>, variables: &[(&str, String)]) -> Result<Worker> {
        let failed = |what: &str, e: &dyn std::fmt::Display| Error::own(format!("cannot {what}: {e}"));
        let key = Key::draw().map_err(|e| failed("draw a key", &e))?;
        let (requests_rx, mut requests) = std::io::pipe().map_err(|e| failed("make a pipe", &e))?;
        requests.write_all(key.line().as_bytes()).map_err(|e| failed("write to a pipe", &e))?;
        let (replies, replies_tx) = std::io::pipe().map_err(|e| failed("make a pipe", &e))?;
        let mut command = if python::runs(family) {
            let mut library = python::worker(family, device)?;
            library.envs(variables.iter().map(|(name, value)| (name, value)));
            library
        } else {
            let mut own = Command::new(std::env::current_exe().map_err(|e| failed("find this program", &e))?);
            own.args(["worker", family, "--device", &device.word()]);
            own
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RUST_BACKTRACE", "0"); // the log keeps the last words: what was wrong, not where it stood
        command.process_group(0); // so that it can be ended with everything it started
        command
            .fd_mappings(vec![
                FdMapping { parent_fd: requests_rx.into(), child_fd: REQUESTS_FD },
                FdMapping { parent_fd: replies_tx.into(), child_fd: REPLIES_FD },
            ])
            .map_err(|e| failed("set up a worker's pipes", &e))?;
        let mut child = processes::start(&mut command).map_err(|e| failed("start a worker", &e))?;
        drop(command); // closes the host's copies of the worker's ends
        let log = Arc::new(Mutex::new(Tail::new(family)));
        let readers = [
            Tail::follow(&log, file.clone(), child.stdout.take().expect("piped")),
            Tail::follow(&log, file, child.stderr.take().expect("piped")),
        ];
        let (tx, rx) = channel();
        let mut incoming = Seal::new(&key, Way::Reply);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(replies);
            loop {
                let mut line = Vec::new();
                match lines.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line) {
                    Ok(n) if n > 0 => {}
                    _ => break,
                }
                let shown = || String::from_utf8_lossy(&line[..line.len().min(80)]).trim_end().to_string();
                let reply = match incoming.open(&line) {
                    Some(text) => {
                        Reply::parse(text).map_err(|e| format!("the worker spoke nonsense: {e}: {}", shown()))
                    }
                    None => Err(format!("something wrote to the worker's pipe: {}", shown())),
                };
                // After a line that is not the engine's nothing on this pipe is believed.
                let last = reply.is_err();
                if tx.send(reply).is_err() || last {
                    break;
                }
            }
        });
        let outgoing = Seal::new(&key, Way::Request);
        let halts = holds_python(family);
        Ok(Worker { child, requests: Some(requests), outgoing, replies: rx, halts, log, readers })
    }

    fn ask(&mut self, request: &Request, limits: Limits) -> std::result::Result<Reply, Fault> {
        if let Ok(mut log) = self.log.lock() {
            log.asked(request);
        }
        if self.halts {
            self.signal(Signal::CONT);
        }
        let reply = self.answer(request, limits);
        if self.halts && reply.is_ok() {
            self.signal(Signal::STOP);
        }
        reply
    }

    fn answer(&mut self, request: &Request, limits: Limits) -> std::result::Result<Reply, Fault> {
        let line = self.outgoing.close(&serde_json::to_string(request).expect("requests are plain data"));
        // A write to a dead worker fails; the wait below then tells how it died.
        let _ = self.requests.as_mut().expect("open until dropped").write_all(line.as_bytes());
        let (start, mut ended) = (Instant::now(), false);
        loop {
            match self.replies.recv_timeout(Duration::from_millis(10)) {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(what)) => return Err(self.fault(Status::Crashed, what)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.death()),
                Err(RecvTimeoutError::Timeout) if ended => return Err(self.death()),
                // A child of its own may keep the pipe open when it is gone; what it said last is read first.
                Err(RecvTimeoutError::Timeout) => ended = matches!(self.child.try_wait(), Ok(Some(_))),
            }
            if start.elapsed() > limits.time {
                let after = units::time(limits.time.as_nanos() as f64);
                return Err(self.fault(Status::Hung, format!("no answer after {after}; the worker was ended")));
            }
            if let Some(resident) = env::resident(self.child.id()).filter(|r| *r > limits.memory) {
                let (has, may) = (units::bytes(resident), units::bytes(limits.memory));
                return Err(self.fault(Status::OutOfMemory, format!("the worker grew to {has}; it may have {may}")));
            }
        }
    }

    /// The pipe is closed or the process is gone: say how it ended.
    fn death(&mut self) -> Fault {
        let deadline = Instant::now() + Duration::from_secs(2);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                _ if Instant::now() > deadline => break None,
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let how = match status {
            Some(s) => match (s.signal(), s.code()) {
                (Some(6), _) => "the worker aborted".to_string(),
                (Some(11), _) => "the worker hit an invalid address (SIGSEGV)".to_string(),
                (Some(9), _) => "the worker was killed, perhaps by the system for its memory".to_string(),
                (Some(n), _) => format!("the worker was ended by signal {n}"),
                (None, code) => format!("the worker ended with code {}", code.unwrap_or(-1)),
            },
            None => "the worker closed its pipe".to_string(),
        };
        self.fault(Status::Crashed, how)
    }

    fn fault(&mut self, status: Status, what: String) -> Fault {
        self.kill();
        let tail = self.log.lock().map(|t| t.text()).unwrap_or_default();
        let message = if tail.is_empty() { what } else { format!("{what}\nlog: {tail}") };
        Fault::new(status, message)
    }

    /// To the worker and all that it started.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            signal_tree(pid, signal);
        }
    }

    fn kill(&mut self) {
        // What is left without a parent is ours then, and ends with the next look at orphans.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The readers of its output end when the pipes do; somebody else may hold these open.
        let start = Instant::now();
        while !self.readers.iter().all(JoinHandle::is_finished) && start.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Worker {
    /// Closing the pipe is the goodbye; a worker that does not leave is ended.
    fn drop(&mut self) {
        self.requests = None;
        self.signal(Signal::CONT);
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return processes::forget(self.child.id());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        processes::forget(self.child.id());
    }
}
