//! The CPU as a device: host memory, the monotonic clock, cold samples by flushing the tensors' own cache lines.

pub mod cache;
pub mod matmul;
mod workload;

use crate::buffer::Buffers;
use crate::clock::core_mhz;
use crate::decoy::{mixed, unforeseen};
use crate::workload::Workload;
use crate::{Device, Fault, Sample, Timed, measure};
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::record::{Calibration, DeviceId, Mode, Status};
use std::any::Any;
use std::time::Instant;

/// What a processor saves by an element whose branches it foresees, and for how many elements it can. Seen on a Xeon: up
/// to 9.2 ns by element of inputs and outputs, up to 48 µs in all, up to 3.1 times as fast.
const FORESEEN_NS: f64 = 12.0;
const MOST_FORESEEN: usize = 4096;

pub struct Cpu {
    id: DeviceId,
    start: Instant,
}

impl Cpu {
    /// `name` is the processor's model; whoever may read files knows it.
    pub fn new(name: &str) -> Cpu {
        let threads = rayon::current_num_threads();
        let id = DeviceId {
            kind: "cpu".into(),
            name: name.into(),
            id: format!("{}, {threads} threads", std::env::consts::ARCH),
        };
        Cpu { id, start: Instant::now() }
    }
}

/// A case in host memory, whatever device there is.
pub fn host_problem(op: &'static Op, case: &Case, seed: u64) -> Result<impl Workload + use<>, Fault> {
    workload::HostWorkload::new(op, case, seed)
}

/// Runs `f` on a thread of the pool that parallel CPU code uses.
pub fn in_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| f())
}

impl Device for Cpu {
    fn id(&self) -> DeviceId {
        self.id.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn workload(&self, op: &'static Op, case: &Case, seed: u64) -> Result<Box<dyn Workload>, Fault> {
        Ok(Box::new(workload::HostWorkload::new(op, case, seed)?))
    }

    fn calibrate(&self) -> Result<Calibration, Fault> {
        measure::calibrate(self)
    }

    /// A processor foresees the branches of values that it has met often.
    fn habit_ns(&self, elements: usize) -> f64 {
        FORESEEN_NS * elements.min(MOST_FORESEEN) as f64
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn sample(&self, timed: Timed) -> Result<Sample, Fault> {
        (timed.prepare)()?;
        match timed.mode {
            Mode::Cold => {
                for buffer in &timed.buffers.0 {
                    cache::flush(&buffer.read::<u8>());
                }
            }
            Mode::Hot => {}
            Mode::Graph | Mode::E2e => {
                return Err(Fault::new(Status::Unsupported, format!("the CPU has no {} mode", timed.mode.word())));
            }
        }
        let word = unforeseen();
        let clock_mhz = core_mhz();
        let start = Instant::now();
        for _ in 0..timed.batch {
            timed.launch.launch()?;
        }
        let ns = start.elapsed().as_nanos() as f64 / timed.batch as f64;
        timed.launch.witness()?;
        let mut differing = 0;
        if let Some(check) = timed.check {
            if timed.launch.settles() {
                timed.launch.settle()?;
            }
            let at_once = glimpse(timed.buffers, word);
            differing = check()?;
            if at_once != glimpse(timed.buffers, word) {
                return Err(Fault::new(Status::Wrong, "outputs still changed after the call had returned"));
            }
        }
        // A clock step of zero would be a time of nothing; half a nanosecond is below any clock's step.
        Ok(Sample { ns: ns.max(0.5), clock_mhz, differing })
    }
}

/// A few stretches of every output, at places that `word` chooses: enough to see a thread that goes on writing.
fn glimpse(buffers: &Buffers, word: u64) -> Vec<u8> {
    const STRETCHES: u64 = 8;
    const BYTES: usize = 32;
    let mut seen = Vec::new();
    for (t, buffer) in buffers.0.iter().enumerate().filter(|(_, b)| b.spec().role.is_output()) {
        let bytes = buffer.read::<u8>();
        let room = bytes.len().saturating_sub(BYTES) as u64 + 1;
        for i in 0..STRETCHES {
            let from = (mixed(word.wrapping_add(t as u64 * STRETCHES + i)) % room) as usize;
            seen.extend_from_slice(&bytes[from..(from + BYTES).min(bytes.len())]);
        }
    }
    seen
}
