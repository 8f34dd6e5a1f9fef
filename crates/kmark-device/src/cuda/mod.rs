//! An NVIDIA GPU as a device. Driver, compiler and management library are loaded at run time; where one is missing, that
//! is said and nothing panics. Knows no op: kernels and oracles come as text.

mod answer;
mod compare;
pub mod cublaslt;
pub mod declare;
pub mod directives;
mod driver;
mod engine;
pub mod jit;
pub mod kernel_line;
mod layout;
mod library;
pub mod machine;
mod memory;
mod nvml;
mod nvrtc;
mod oracle;
pub mod prelude;
mod program;
mod sample;
pub mod tensor_map;
pub mod tune;
mod workload;
mod workspace;

pub use cublaslt::{Matmul, Matrix, Product};
pub use driver::{Driver, LAUNCH_FAILED, Queue};
pub use library::PATH_VARIABLE;
pub use memory::Lies;
pub use memory::{Block, Raw};
pub use nvml::{Nvml, State};
pub use nvrtc::Nvrtc;
pub use oracle::{compile_oracle, oracle_name};
pub use prelude::{For, prelude};
pub use program::{KernelFile, Program, Text, Wrong};
pub use workload::GpuWorkload;

use crate::buffer::Buffers;
use crate::workload::Workload;
use crate::{Device, Fault, Launch, Sample, Timed};
use driver::Attribute;
use engine::Engine;
use jit::{Headers, Jit};
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::record::{Calibration, Conditions, DeviceId, Status};
use machine::Machine;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// One GPU, its stream, and everything the engine keeps on it. A handle: clones are the same device.
#[derive(Clone)]
pub struct Cuda(Arc<Inner>);

struct Inner {
    ordinal: i32,
    name: String,
    uuid: String,
    machine: Machine,
    jit: Jit,
    /// What kernels and oracles may include.
    headers: Headers,
    /// Its functions are used only while the queue lives.
    engine: Engine,
    watch: Option<nvml::Watch>,
    /// What two events cost by themselves, once it is known.
    pair_ns: OnceLock<f64>,
    start: Instant,
    /// Memory for the words of one check. Kept: taking it and giving it back costs more than a short check.
    scratch: Mutex<Option<Arc<Raw>>>,
    queue: Arc<Queue>,
}

impl Cuda {
    /// GPU number `ordinal`. `cache` is where compiled kernels are kept, `headers` what they may include.
    pub fn open(ordinal: usize, cache: Option<PathBuf>, headers: Headers) -> Result<Cuda, Fault> {
        let driver = Driver::get().map_err(|e| Fault::new(Status::Unavailable, e))?;
        let count = driver.device_count()?;
        if ordinal >= count {
            let message = format!("there is no GPU {ordinal}; the driver knows {count}");
            return Err(Fault::new(Status::Unavailable, message));
        }
        let queue = Queue::open(driver, ordinal as i32)?;
        Cuda::on(driver, ordinal as i32, queue, cache, headers)
    }

    /// A GPU on whose stream somebody else works, too.
    ///
    /// # Safety
    /// `stream` is a stream of this process on device `ordinal` that outlives all clones of the result.
    pub unsafe fn borrow(
        ordinal: usize,
        stream: *mut std::ffi::c_void,
        cache: Option<PathBuf>,
        headers: Headers,
    ) -> Result<Cuda, Fault> {
        let driver = Driver::get().map_err(|e| Fault::new(Status::Unavailable, e))?;
        // SAFETY: as the caller promises.
        let queue = unsafe { Queue::borrow(driver, ordinal as i32, stream)? };
        Cuda::on(driver, ordinal as i32, queue, cache, headers)
    }

    fn on(
        driver: &'static Driver,
        ordinal: i32,
        queue: Queue,
        cache: Option<PathBuf>,
        headers: Headers,
    ) -> Result<Cuda, Fault> {
        let get = |attribute| driver.attribute(ordinal, attribute);
        let arch = driver.arch(ordinal)?;
        if get(Attribute::Major)? < 8 {
            let message = format!("GPU {ordinal} is {arch}; kmark needs sm_80 or newer");
            return Err(Fault::new(Status::Unavailable, message));
        }
        let (jit, queue) = (Jit::new(cache), Arc::new(queue));
        let machine = Machine {
            arch,
            sms: get(Attribute::Multiprocessors)? as u32,
            shared: get(Attribute::SharedBytes)? as u32,
            l2: driver.l2_bytes(ordinal)?,
        };
        let engine = Engine::new(&queue, &jit, &machine.arch, machine.sms, machine.l2 as usize)?;
        let uuid = driver.device_uuid(ordinal)?;
        Ok(Cuda(Arc::new(Inner {
            ordinal,
            name: driver.device_name(ordinal)?,
            watch: nvml::Watch::start(&uuid),
            uuid,
            machine,
            jit,
            headers,
            engine,
            pair_ns: OnceLock::new(),
            start: Instant::now(),
            scratch: Mutex::new(None),
            queue,
        })))
    }

    pub fn arch(&self) -> &str {
        &self.0.machine.arch
    }
    pub fn sms(&self) -> u32 {
        self.0.machine.sms
    }
    pub fn machine(&self) -> &Machine {
        &self.0.machine
    }
    fn driver(&self) -> &'static Driver {
        self.0.queue.driver()
    }
    pub fn ordinal(&self) -> i32 {
        self.0.ordinal
    }
    pub fn jit(&self) -> &Jit {
        &self.0.jit
    }
    pub fn headers(&self) -> Headers {
        self.0.headers
    }
    pub fn queue(&self) -> &Arc<Queue> {
        &self.0.queue
    }
    /// So many bytes at least, for a check that ends before the next one begins.
    fn scratch(&self, bytes: usize) -> Result<Arc<Raw>, Fault> {
        let mut kept = self.0.scratch.lock().unwrap_or_else(|e| e.into_inner());
        match &*kept {
            Some(raw) if raw.bytes >= bytes => Ok(Arc::clone(raw)),
            _ => Ok(Arc::clone(kept.insert(Arc::new(Raw::new(self.queue(), bytes)?)))),
        }
    }
    fn engine(&self) -> &Engine {
        &self.0.engine
    }
}

impl Device for Cuda {
    fn id(&self) -> DeviceId {
        DeviceId { kind: "cuda".into(), name: self.0.name.clone(), id: self.0.uuid.clone() }
    }

    fn workload(&self, op: &'static Op, case: &Case, seed: u64) -> Result<Box<dyn Workload>, Fault> {
        Ok(Box::new(GpuWorkload::new(self, op, case, seed, Lies::InPages)?))
    }

    fn one_of_many(&self, op: &'static Op, case: &Case, seed: u64) -> Result<Box<dyn Workload>, Fault> {
        Ok(Box::new(GpuWorkload::new(self, op, case, seed, Lies::Beside)?))
    }

    fn long_ns(&self) -> f64 {
        5e5
    }

    fn now_ns(&self) -> u64 {
        self.0.start.elapsed().as_nanos() as u64
    }

    fn sample(&self, timed: Timed) -> Result<Sample, Fault> {
        sample::sample(self, timed)
    }

    fn wait(&self) -> Result<(), Fault> {
        self.0.queue.wait()
    }

    fn check_order(&self, launch: &mut dyn Launch, buffers: &Buffers) -> Result<(), Fault> {
        sample::check_order(self, launch, buffers)
    }

    fn calibrate(&self) -> Result<Calibration, Fault> {
        sample::calibrate(self)
    }

    /// Twice the cache, as few copies as that takes.
    fn rotation(&self, bytes: u64) -> usize {
        (2 * self.0.machine.l2).div_ceil(bytes.max(1)).clamp(1, 512) as usize + 1
    }

    fn capture(&self, mut launch: Box<dyn Launch>) -> Result<Box<dyn Launch>, Fault> {
        let graph = self.0.queue.capture(|| launch.launch())?;
        let queue = Arc::clone(&self.0.queue);
        Ok(Box::new(sample::Replay { queue, graph, launch }))
    }

    fn conditions(&self) -> Option<Conditions> {
        self.0.watch.as_ref().and_then(nvml::Watch::take)
    }

    fn memory(&self) -> Option<u64> {
        self.0.queue.memory().ok().map(|(free, _)| free)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
