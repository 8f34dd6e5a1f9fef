//! Libraries that compile at first use, several processes at a time, before anything is timed. Each launches its share of
//! the cases once; the workers that time them find what was compiled in the libraries' caches on disk. Who fails here is
//! judged when its turn comes.

use super::lanes::Lanes;
use crate::bench::{Bench, Deadlines};
use crate::env;
use crate::host::Workers;
use crate::plan::Planned;
use crate::python;
use kmark_core::record::{Status, family, holds_python};
use kmark_core::run::Phases;
use kmark_device::workload;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// How many processes or threads a library compiles with, as torch.compile, Quack and whoever runs ninja call it.
const COMPILERS: [&str; 3] = ["TORCHINDUCTOR_COMPILE_THREADS", "QUACK_COMPILE_WORKERS", "MAX_JOBS"];
/// Tells a library's process that others compile beside it: what must be timed is not chosen now.
const AHEAD: &str = "KMARK_AHEAD";

/// Jobs share the cores, of which each would take all. What somebody has set stays.
fn variables(jobs: usize) -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let unset = COMPILERS.into_iter().filter(|name| std::env::var_os(name).is_none());
    unset.map(|name| (name, (cores / jobs).max(1).to_string())).chain([(AHEAD, "1".to_string())]).collect()
}

struct Work<'a> {
    planned: &'a Planned,
    impl_name: &'a str,
    library: String,
}

/// What is left to compile, by library. A process has one library at a time, which takes seconds to load: jobs begin with
/// different ones, and who has done all of one helps where most is left.
struct Shares<W>(Mutex<Vec<VecDeque<W>>>);

impl<W> Shares<W> {
    /// The next work of a job whose last was of library `mine`.
    fn take(&self, mine: &mut usize) -> Option<W> {
        let mut left = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if left[*mine].is_empty() {
            *mine = (0..left.len()).max_by_key(|i| left[*i].len())?;
        }
        left[*mine].pop_front()
    }
}

/// Bytes of tensors that processes hold on a device at a time.
#[derive(Default)]
struct Room {
    taken: Mutex<u64>,
    freed: Condvar,
}

impl Room {
    /// While `f` works, `bytes` of `all` are taken; more than there are only by one that is alone.
    fn with<R>(&self, bytes: u64, all: u64, f: impl FnOnce() -> R) -> R {
        let taken = self.taken.lock().unwrap_or_else(|e| e.into_inner());
        let full = |taken: &mut u64| *taken > 0 && *taken + bytes > all;
        *self.freed.wait_while(taken, full).unwrap_or_else(|e| e.into_inner()) += bytes;
        let done = f();
        *self.taken.lock().unwrap_or_else(|e| e.into_inner()) -= bytes;
        self.freed.notify_all();
        done
    }
}

/// Lets them compile with `jobs` processes at a time; where the time went.
pub fn compile(lanes: &Lanes, jobs: usize) -> Phases {
    let of = |planned, impl_name| Work { planned, impl_name, library: family(impl_name) };
    let all = lanes.plan.items.iter().flat_map(|p| p.impls.iter().map(move |i| of(p, i.name())));
    let mut work: BTreeMap<String, VecDeque<Work>> = BTreeMap::new();
    for w in all.filter(|w| python::runs(&w.library) && !holds_python(&w.library)) {
        work.entry(w.library.clone()).or_default().push_back(w);
    }
    let rows: usize = work.values().map(VecDeque::len).sum();
    let (jobs, libraries) = (jobs.min(rows), work.len());
    if jobs == 0 {
        return Phases::default();
    }
    let (start, failed) = (Instant::now(), AtomicUsize::new(0));
    let shares = Shares(Mutex::new(work.into_values().collect()));
    let rooms: Vec<Room> = lanes.plan.devices.iter().map(|_| Room::default()).collect();
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let (at, shares, failed) = (job % rooms.len(), &shares, &failed);
            let room = &rooms[at];
            scope.spawn(move || {
                let (mut mine, mut workers) = (job % libraries, None);
                while let Some(w) = shares.take(&mut mine) {
                    lanes.progress().now(&format!("compiling {}: {}", w.library, w.planned.case.id));
                    let (library, workers) = workers.get_or_insert_with(|| (w.library.clone(), fresh(lanes, at, jobs)));
                    if *library != w.library {
                        (*library, *workers) = (w.library.clone(), fresh(lanes, at, jobs));
                    }
                    if !one(lanes, &w, workers, room) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let took = start.elapsed();
    let of_which = match failed.into_inner() {
        0 => String::new(),
        failed => format!("; {failed} could not, and are tried again"),
    };
    let what = format!("libraries were ready for {rows} rows after {:.0} s{of_which}", took.as_secs_f64());
    lanes.progress().note(&what);
    Phases { prepare_ns: took.as_nanos() as u64, ..Phases::default() }
}

fn fresh(lanes: &Lanes, at: usize, jobs: usize) -> Workers {
    let mut workers = Workers::new(lanes.plan.devices[at], false);
    workers.variables = variables(jobs);
    workers.log = Some(Arc::clone(&lanes.log));
    workers
}

/// Whether nothing went wrong; what a library does not have or do is nothing wrong.
fn one(lanes: &Lanes, work: &Work, workers: &mut Workers, room: &Room) -> bool {
    if workers.start(&work.library).is_err() {
        return true; // its rows say why
    }
    let free = workers.hellos.values().filter_map(|h| h.memory).min().unwrap_or_else(env::available_memory);
    let bytes = workload::bytes(work.planned.entry.op, &work.planned.case);
    let (deadlines, phases) = (Deadlines::of(lanes.deadline), Phases::default());
    let mut bench = Bench { workers, settings: lanes.settings, deadlines, roofs: None, phases };
    let compiled = room.with(bytes, free / 2, || bench.compile(work.planned, work.impl_name));
    compiled.err().is_none_or(|f| matches!(f.status, Status::Unsupported | Status::Unavailable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_keep_their_library_and_help_when_it_is_done() {
        let shares =
            Shares(Mutex::new(vec![VecDeque::from([1, 2, 3, 4]), VecDeque::from([10]), VecDeque::from([20, 21])]));
        let (mut first, mut second) = (0, 1);
        assert_eq!([shares.take(&mut first), shares.take(&mut first)], [Some(1), Some(2)]);
        assert_eq!([shares.take(&mut second), shares.take(&mut second)], [Some(10), Some(20)]);
        assert_eq!((second, shares.take(&mut first), shares.take(&mut second)), (2, Some(3), Some(21)));
        assert_eq!(
            (shares.take(&mut second), shares.take(&mut first), shares.take(&mut second)),
            (Some(4), None, None)
        );
    }
}
