//! One impl on its way through a case: its record as it grows, and how it fails.

use kmark_core::gate::Verify;
use kmark_core::record::{Record, Status};
use kmark_device::{Fault, Impl};

/// One impl on its way through a case.
pub struct Turn {
    pub imp: &'static dyn Impl,
    /// As workers are asked for it: its name, with the values that were chosen if it has any to choose.
    pub word: String,
    pub family: String,
    /// The family in whose process it is timed.
    pub seat: String,
    pub record: Record,
    /// Which worker holds its launch.
    pub generation: u32,
    pub spent_ns: u64,
    /// What choosing its values took.
    pub tune_ns: Option<f64>,
    pub failed: bool,
}

impl Turn {
    pub fn judge(&mut self, verify: Verify) {
        let known = self.record.verify.get_or_insert_default();
        known.merge(verify);
        if !known.ok() {
            let message = known.problems.join("; ");
            self.fail(Fault::new(Status::Wrong, message));
        }
    }

    /// As it failed, or would have failed.
    pub fn fault(&self) -> Fault {
        let Record { status, message, traceback, .. } = &self.record;
        Fault { status: *status, message: message.clone(), traceback: traceback.clone() }
    }

    /// Alone, in the process of its own family, as if it had never been timed.
    pub fn start_again(&mut self, status: Status) {
        self.seat = self.family.clone();
        self.failed = false;
        self.record.status = status;
        self.record.message.clear();
        self.record.traceback.clear();
        self.record.checked = None;
        if let Some(verify) = &mut self.record.verify {
            verify.problems.clear();
        }
    }

    /// A record that failed carries no times.
    pub fn fail(&mut self, fault: Fault) {
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
        self.record.traceback = fault.traceback;
        self.record.samples_ns.clear();
        self.record.clock_mhz.clear();
        self.record.visits.clear();
        self.record.stop = None;
    }
}

pub fn seats<'a>(turns: impl Iterator<Item = &'a Turn>) -> Vec<String> {
    let mut seats: Vec<String> = turns.map(|t| t.seat.clone()).collect();
    seats.sort();
    seats.dedup();
    seats
}
