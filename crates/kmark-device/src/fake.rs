//! A device whose clock is a script: launch number i takes what the script says, and no time passes otherwise. For
//! tests of everything that decides by time.

use crate::workload::Workload;
use crate::{Device, Fault, Sample, Timed, measure};
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::record::{Calibration, DeviceId};
use std::cell::Cell;

pub struct Fake {
    script: Box<dyn Fn(u64) -> f64>,
    launches: Cell<u64>,
    clock: Cell<f64>,
    largest_batch: Cell<u32>,
}

impl Fake {
    /// `script` gives the duration of launch 0, 1, 2, … in ns.
    pub fn new(script: impl Fn(u64) -> f64 + 'static) -> Fake {
        Fake { script: Box::new(script), launches: Cell::new(0), clock: Cell::new(0.0), largest_batch: Cell::new(0) }
    }

    pub fn launches(&self) -> usize {
        self.launches.get() as usize
    }

    pub fn largest_batch(&self) -> u32 {
        self.largest_batch.get()
    }
}

impl Device for Fake {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn long_ns(&self) -> f64 {
        1e9
    }

    fn id(&self) -> DeviceId {
        DeviceId { kind: "fake".into(), name: "fake".into(), id: "0".into() }
    }

    fn workload(&self, _: &'static Op, case: &Case, _: u64) -> Result<Box<dyn Workload>, Fault> {
        unreachable!("the fake device times launches, it has no memory for {}", case.id)
    }

    fn calibrate(&self) -> Result<Calibration, Fault> {
        measure::calibrate(self)
    }

    fn now_ns(&self) -> u64 {
        self.clock.get() as u64
    }

    fn sample(&self, timed: Timed) -> Result<Sample, Fault> {
        (timed.prepare)()?;
        let mut total = 0.0;
        for _ in 0..timed.batch {
            timed.launch.launch()?;
            total += (self.script)(self.launches.get());
            self.launches.set(self.launches.get() + 1);
        }
        self.clock.set(self.clock.get() + total);
        self.largest_batch.set(self.largest_batch.get().max(timed.batch));
        let differing = timed.check.map_or(Ok(0), |check| check())?;
        Ok(Sample { ns: total / timed.batch as f64, clock_mhz: None, differing })
    }
}
