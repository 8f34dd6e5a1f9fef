//! Splitting the rows of a case into jobs for all cores, each with its own part of every output.

use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// Below this many elements one core is done before the others have woken up.
const SERIAL_ELEMS: usize = 1 << 15;
/// A job is at least this large, so that handing it out and starting cold on its first row cost little; and at most so
/// large that every core gets many, because one of them may be disturbed.
const JOB_ELEMS: (usize, usize) = (1 << 16, 1 << 20);
const JOBS_PER_CORE: usize = 32;

/// How `m` rows of `n` elements are cut.
#[derive(Clone, Copy)]
pub struct Jobs {
    m: usize,
    rows: usize,
}

impl Jobs {
    pub fn rows(m: usize, n: usize) -> Jobs {
        let elems = (m * n / (JOBS_PER_CORE * rayon::current_num_threads())).clamp(JOB_ELEMS.0, JOB_ELEMS.1);
        let rows = if m * n <= SERIAL_ELEMS { m } else { elems.div_ceil(n).min(m) };
        Jobs { m, rows: rows.max(1) }
    }

    /// A few large jobs per core: for reductions over rows, where every job has partial sums of its own.
    pub fn few(m: usize, n: usize) -> Jobs {
        let jobs = if m * n <= SERIAL_ELEMS { 1 } else { 4 * rayon::current_num_threads() };
        Jobs { m, rows: m.div_ceil(jobs).max(1) }
    }

    /// The row ranges of the jobs, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Jobs { m, rows } = *self;
        (0..m).step_by(rows).map(move |r| r..(r + rows).min(m))
    }

    /// An output of `per_row` elements a row, cut like the rows.
    pub fn split<'a, T>(&self, out: &'a mut [T], per_row: usize) -> impl Iterator<Item = &'a mut [T]> + use<'a, T> {
        out.chunks_mut((self.rows * per_row).max(1))
    }
}

/// Runs every job, on all cores if there is more than one; results come back in order.
pub fn each_job<J: Send, R: Send>(jobs: impl IntoIterator<Item = J>, f: impl Fn(J) -> R + Sync) -> Vec<R> {
    let mut jobs: Vec<J> = jobs.into_iter().collect();
    if jobs.len() == 1 {
        return jobs.pop().map(f).into_iter().collect();
    }
    let jobs: Vec<Mutex<(Option<J>, Option<R>)>> = jobs.into_iter().map(|j| Mutex::new((Some(j), None))).collect();
    on_all_cores(jobs.len(), &|i| {
        let mut held = jobs[i].lock().expect("every job is run once");
        held.1 = held.0.take().map(&f);
    });
    jobs.into_iter().filter_map(|j| j.into_inner().expect("no job panicked").1).collect()
}

/// Knows no type of job: it is compiled once.
fn on_all_cores(count: usize, run: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(run);
}
