//! Floor 1 of Kernelmark: devices and the measurement engine. It knows cases and what an op is, but no op; it prints
//! nothing and opens no files. The only floor with `unsafe`, each block with its reason.

pub mod buffer;
pub mod clock;
pub mod cpu;
pub mod cuda;
pub mod decoy;
pub mod fake;
mod guard;
pub mod inherited;
pub mod last_words;
pub mod measure;
pub mod workload;

use buffer::Buffers;
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::record::{Calibration, Conditions, DeviceId, KernelFigures, Mode, Status};
use std::any::Any;
use std::borrow::Cow;
use workload::Workload;

/// One way to compute an op.
pub trait Impl: Sync {
    /// `family/rest`; impls of one family share a worker process.
    fn name(&self) -> &str;
    /// One line: the idea.
    fn about(&self) -> Cow<'_, str>;
    /// Changes whenever the code that computes changes.
    fn hash(&self) -> String;
    /// The kind of device it runs on, as [`DeviceId`] names it.
    fn device(&self) -> &'static str {
        "cpu"
    }
    /// `Err` says why the impl does not claim this case.
    fn supports(&self, op: &'static Op, case: &Case) -> Result<(), String>;
    /// Everything that may be done once: compile, plan, look up memory. The engine times only the launch.
    fn bind(
        &self,
        device: &dyn Device,
        op: &'static Op,
        case: &Case,
        buffers: &Buffers,
    ) -> Result<Box<dyn Launch>, Fault>;
    /// What can be chosen of it in a case on a device of that architecture, as words; most leave nothing to choose. `NAME#WORD` is
    /// the impl with that choice made.
    fn variants(&self, _op: &'static Op, _case: &Case, _arch: &str) -> Vec<String> {
        Vec::new()
    }
    /// Itself, for code that knows the kind, where there is such code.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

impl<T: Impl + ?Sized> Impl for &T {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn about(&self) -> Cow<'_, str> {
        (**self).about()
    }
    fn hash(&self) -> String {
        (**self).hash()
    }
    fn device(&self) -> &'static str {
        (**self).device()
    }
    fn supports(&self, op: &'static Op, case: &Case) -> Result<(), String> {
        (**self).supports(op, case)
    }
    fn bind(
        &self,
        device: &dyn Device,
        op: &'static Op,
        case: &Case,
        buffers: &Buffers,
    ) -> Result<Box<dyn Launch>, Fault> {
        (**self).bind(device, op, case, buffers)
    }
    fn variants(&self, op: &'static Op, case: &Case, arch: &str) -> Vec<String> {
        (**self).variants(op, case, arch)
    }
    fn as_any(&self) -> Option<&dyn Any> {
        (**self).as_any()
    }
}

/// A bound impl, ready to run any number of times on the memory it was bound to.
pub trait Launch {
    /// Does the work, or enqueues it on the device.
    fn launch(&mut self) -> Result<(), Fault>;
    /// Inputs have changed: brings up to date what was made of them outside the launch.
    fn refresh(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// Puts what the last launch returned into the case's tensors, where it did not write them itself. Never timed.
    fn settle(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// The timer has just stopped: whoever is to answer for what was there at this moment looks at it now. Never timed.
    fn witness(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// Whether [`Launch::settle`] has anything to do.
    fn settles(&self) -> bool {
        false
    }
    /// Memory that the last launch returned, if somebody else's code did the launching, which may use any stream; `None`
    /// where every launch is ours.
    fn returned(&self) -> Option<Vec<Span>> {
        None
    }
    /// What making it took and came to.
    fn built(&self) -> Built {
        Built::default()
    }
}

/// A piece of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub address: u64,
    pub bytes: usize,
}

/// What making a launch took and came to.
#[derive(Clone, Debug, Default)]
pub struct Built {
    /// Compiling, in ns; absent if nothing was compiled, not even taken from a cache.
    pub build_ns: Option<f64>,
    /// Choosing among algorithms by timing them, in ns.
    pub tune_ns: Option<f64>,
    /// What the engine did for itself meanwhile, in ns: no cost of the impl's.
    pub aside_ns: f64,
    pub kernels: Vec<KernelFigures>,
    pub notes: Vec<String>,
    /// Libraries that it stands on, as they were loaded, with their versions; part of its hash.
    pub libraries: String,
    /// What it does, where that is not quite what the op asks.
    pub contract: Option<String>,
}

impl<F: FnMut()> Launch for F {
    fn launch(&mut self) -> Result<(), Fault> {
        self();
        Ok(())
    }
}

/// Why something could not be done, as a record states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub status: Status,
    pub message: String,
    /// Of a Python exception; empty otherwise.
    pub traceback: String,
}

impl Fault {
    pub fn new(status: Status, message: impl Into<String>) -> Fault {
        Fault { status, message: message.into(), traceback: String::new() }
    }
}

/// One timed launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub ns: f64,
    pub clock_mhz: Option<f64>,
    /// Pieces of the outputs that were not as [`Timed::check`] wants them.
    pub differing: u64,
}

/// What is timed, and what must happen before it outside the interval.
pub struct Timed<'a> {
    pub launch: &'a mut dyn Launch,
    pub buffers: &'a Buffers,
    /// Restores what the launch overwrites.
    pub prepare: &'a dyn Fn() -> Result<(), Fault>,
    /// Holds what the launch left against what is known, after the interval: how many pieces differ, where that is known
    /// at once.
    pub check: Option<&'a dyn Fn() -> Result<u64, Fault>>,
    pub mode: Mode,
    /// Launches per sample; above 1 only for hot samples.
    pub batch: u32,
}

pub trait Device {
    fn id(&self) -> DeviceId;
    /// The case in this device's memory, filled from `seed`.
    fn workload(&self, op: &'static Op, case: &Case, seed: u64) -> Result<Box<dyn Workload>, Fault>;
    /// The same as one of hundreds, which must not take more memory than its tensors do.
    fn one_of_many(&self, op: &'static Op, case: &Case, seed: u64) -> Result<Box<dyn Workload>, Fault> {
        self.workload(op, case, seed)
    }
    /// The clock by which budgets are kept.
    fn now_ns(&self) -> u64;
    fn sample(&self, timed: Timed) -> Result<Sample, Fault>;
    /// Waits for everything that was enqueued.
    fn wait(&self) -> Result<(), Fault> {
        Ok(())
    }
    /// Launches once more, and says if work was done outside the stream that is timed. The workload has been reset.
    fn check_order(&self, _launch: &mut dyn Launch, _buffers: &Buffers) -> Result<(), Fault> {
        Ok(())
    }
    /// How much faster a launch may be on values that it met before without having kept anything, by what the hardware
    /// learns; `elements` is the size of its tensors together.
    fn habit_ns(&self, _elements: usize) -> f64 {
        0.0
    }
    /// A launch that takes this long shows nothing of what ran before it, so that only the first turn warms up.
    fn long_ns(&self) -> f64 {
        f64::INFINITY
    }
    /// Finds out whether the clock can be trusted.
    fn calibrate(&self) -> Result<Calibration, Fault>;
    /// How many sets of a workload's memory a graph launches in turn, so that none is still in the cache when its turn
    /// comes again; 0 if the device has no graphs.
    fn rotation(&self, _bytes: u64) -> usize {
        0
    }
    /// What `launch` enqueues, as one graph, which keeps alive what it runs.
    fn capture(&self, _launch: Box<dyn Launch>) -> Result<Box<dyn Launch>, Fault> {
        Err(Fault::new(Status::Unsupported, format!("the {} device has no graphs", self.id().kind)))
    }
    /// What the device was seen to do since this was last asked.
    fn conditions(&self) -> Option<Conditions> {
        None
    }
    /// Free bytes of its memory, where that is not the host's.
    fn memory(&self) -> Option<u64> {
        None
    }
    /// Itself, for code that knows the kind: [`kind_of`].
    fn as_any(&self) -> &dyn Any;
}

/// The device as one of kind `D`, if it is.
pub fn kind_of<D: Device + 'static>(device: &dyn Device) -> Option<&D> {
    device.as_any().downcast_ref()
}
