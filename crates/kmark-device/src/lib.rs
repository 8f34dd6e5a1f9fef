//! Floor 1 of Kernelmark: devices and the measurement engine. It knows cases and the `Op` trait, but no op; it prints
//! nothing and opens no files. The only floor with `unsafe`, each block with its reason.

pub mod buffer;
pub mod cpu;
pub mod fake;
pub mod measure;
pub mod problem;

use buffer::{Buffer, Buffers};
use kmark_core::case::Case;
use kmark_core::record::{DeviceId, Mode, Status};
use kmark_core::tensor::TensorSpec;

/// One way to compute an op.
pub trait Impl: Sync {
    /// `family/rest`; impls of one family share a worker process.
    fn name(&self) -> &str;
    /// One line: the idea.
    fn about(&self) -> &str;
    /// Changes whenever the code that computes changes.
    fn hash(&self) -> String;
    /// `Err` says why the impl does not claim this case.
    fn supports(&self, case: &Case) -> Result<(), String>;
    /// Everything that may be done once: compile, plan, look up memory. The engine times only the launch.
    fn bind(&self, device: &dyn Device, case: &Case, buffers: &Buffers) -> Result<Box<dyn Launch>, Fault>;
}

impl<T: Impl + ?Sized> Impl for &T {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn about(&self) -> &str {
        (**self).about()
    }
    fn hash(&self) -> String {
        (**self).hash()
    }
    fn supports(&self, case: &Case) -> Result<(), String> {
        (**self).supports(case)
    }
    fn bind(&self, device: &dyn Device, case: &Case, buffers: &Buffers) -> Result<Box<dyn Launch>, Fault> {
        (**self).bind(device, case, buffers)
    }
}

/// A bound impl, ready to run any number of times on the memory it was bound to.
pub trait Launch {
    fn launch(&mut self) -> Result<(), Fault>;
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
}

impl Fault {
    pub fn new(status: Status, message: impl Into<String>) -> Fault {
        Fault { status, message: message.into() }
    }
}

/// One timed launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub ns: f64,
    pub clock_mhz: Option<f64>,
}

/// What is timed, and what must happen before it outside the interval.
pub struct Timed<'a> {
    pub launch: &'a mut dyn Launch,
    pub buffers: &'a Buffers,
    /// Restores what the launch overwrites.
    pub prepare: &'a dyn Fn(),
    pub mode: Mode,
    /// Launches per sample; above 1 only for hot samples.
    pub batch: u32,
}

pub trait Device {
    fn id(&self) -> DeviceId;
    fn alloc(&self, spec: &TensorSpec) -> Result<Buffer, Fault>;
    /// The clock by which budgets are kept.
    fn now_ns(&self) -> u64;
    fn sample(&self, timed: Timed) -> Result<Sample, Fault>;
}
