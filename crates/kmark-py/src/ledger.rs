//! Whose memory grows. Launches take turns in one process; what grew while one had its turn is of that one. Garbage in
//! cycles is no leak: the collector is off while launches are timed, so it runs here, between samples, when memory grew.

use crate::tools::Tools;
use kmark_core::record::Status;
use kmark_device::Fault;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;

/// Bytes in use: the host's, and those that torch's allocator has handed out on a GPU.
#[derive(Clone, Copy, Default)]
struct Live([i64; 2]);

const KINDS: [&str; 2] = ["the host's", "the GPU's"];
/// What may be kept beside: caches that fill slowly. The allocator on a GPU is exact, the host's is not.
const LEAK_BYTES: [i64; 2] = [64 << 20, 1 << 20];
/// Growth after which garbage is collected, and how many launches go by between two looks.
const GARBAGE_BYTES: i64 = 256 << 20;
const LOOK_EVERY: u64 = 16;
/// Launches before the first look at what grew, and between the two looks that tell a leak.
const SETTLING: u64 = 6;
const APART: u64 = 4;

impl Live {
    fn now(py: Python<'_>, tools: &Tools, ordinal: Option<i32>) -> Live {
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let resident = pages.and_then(|s| s.split(' ').nth(1)?.parse::<i64>().ok()).unwrap_or(0) * 4096;
        Live([resident, ordinal.and_then(|o| tools.card_bytes(py, o)).unwrap_or(0)])
    }
}

#[derive(Default)]
struct Ledger {
    turn: Option<Turn>,
    grown: HashMap<u64, Live>,
    /// Launches and growth when a page was first looked at after it had settled.
    suspects: HashMap<u64, (u64, Live)>,
    /// What was live when garbage was last looked for.
    floor: Live,
}

#[derive(Clone, Copy)]
struct Turn {
    id: u64,
    begun: Live,
    /// What is allocated once was there already.
    settled: bool,
}

thread_local! {
    static LEDGER: RefCell<Ledger> = RefCell::default();
}

/// One launch's page.
pub struct Page {
    id: u64,
    ordinal: Option<i32>,
}

impl Page {
    /// `ordinal` of the GPU that it uses, if it does.
    pub fn new(ordinal: Option<i32>) -> Page {
        thread_local!(static NEXT: std::cell::Cell<u64> = const { std::cell::Cell::new(1) });
        Page { id: NEXT.replace(NEXT.get() + 1), ordinal }
    }

    pub fn has_the_turn(&self) -> bool {
        LEDGER.with_borrow(|l| l.turn.is_some_and(|t| t.id == self.id))
    }

    /// From here on this one launches. What grew until here is of the turn that ends.
    pub fn begin_turn(&self, py: Python<'_>, tools: &Tools, settled: bool) {
        let live = Live::now(py, tools, self.ordinal);
        LEDGER.with_borrow_mut(|l| {
            if let Some(last) = l.turn.filter(|t| t.settled) {
                let grown = l.grown.entry(last.id).or_default();
                (0..2).for_each(|k| grown.0[k] += live.0[k] - last.begun.0[k]);
            }
            l.turn = Some(Turn { id: self.id, begun: live, settled });
        });
    }

    /// Between two samples: garbage of many launches would fill the memory.
    pub fn tidy(&self, py: Python<'_>, tools: &Tools, launches: u64) {
        if !launches.is_multiple_of(LOOK_EVERY) {
            return;
        }
        let live = Live::now(py, tools, self.ordinal);
        let floor = LEDGER.with_borrow(|l| l.floor);
        if (0..2).any(|k| live.0[k] - floor.0[k] > GARBAGE_BYTES) {
            tools.collect_garbage(py);
            let live = Live::now(py, tools, self.ordinal);
            LEDGER.with_borrow_mut(|l| l.floor = live);
        }
    }

    /// Memory that grows with every launch, and that no collection frees, is a leak.
    pub fn check(&self, py: Python<'_>, tools: &Tools, launches: u64) -> Result<(), Fault> {
        if self.leak(py, tools, launches).is_some() {
            tools.collect_garbage(py);
        }
        match self.leak(py, tools, launches) {
            Some((kind, grown)) => {
                let each = grown / launches as i64;
                let message = format!("keeps {each} bytes more of {kind} memory with every launch: a leak");
                Err(Fault::new(Status::OutOfMemory, message))
            }
            None => Ok(()),
        }
    }

    fn leak(&self, py: Python<'_>, tools: &Tools, launches: u64) -> Option<(&'static str, i64)> {
        if let Some(turn) = LEDGER.with_borrow(|l| l.turn) {
            Page { id: turn.id, ordinal: self.ordinal }.begin_turn(py, tools, turn.settled);
        }
        if launches <= SETTLING {
            return None;
        }
        let grown = LEDGER.with_borrow(|l| l.grown.get(&self.id).copied()).unwrap_or_default();
        let (then, before) = LEDGER.with_borrow_mut(|l| *l.suspects.entry(self.id).or_insert((launches, grown)));
        // What is kept once, such as the last result, is no leak: it must grow again.
        let leaks = |k: &usize| {
            let again = grown.0[*k] - before.0[*k] > LEAK_BYTES[*k] / 2;
            launches >= then + APART && again && grown.0[*k] > LEAK_BYTES[*k]
        };
        (0..2).find(leaks).map(|k| (KINDS[k], grown.0[k]))
    }
}

/// A case is over: what was counted is of launches that are gone.
pub fn forget() {
    LEDGER.with_borrow_mut(|l| *l = Ledger::default());
}
