//! Kernels that compute rows by themselves: tensors are handed out job by job, with scratch and the dtypes' conversions.

use super::elem::{Real, by_acc, narrow, simd, widened};
use super::jobs::{Jobs, each_job};
use super::tensors::{In, Out, per_row};
use bytemuck::cast_slice;
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::tensor::{Role, TensorSpec};
use kmark_device::Launch;
use kmark_device::buffer::{Buffer, Buffers};
use std::borrow::Cow;
use std::ops::Range;

/// What is computed row by row.
pub trait RowKernel: Send + Sync + 'static {
    /// Some rows.
    fn run<A: Real>(&self, job: &mut Job<A>);
}

/// Some rows of a case: the tensors that have them, from the first of them on, and those that all rows share.
pub struct Job<'a, A: Real> {
    pub first_row: usize,
    /// What a kernel puts here is added up over all jobs, for the outputs that all rows share.
    pub sums: Vec<A>,
    tensors: Vec<(&'static str, Part<'a, A>)>,
    shared: &'a [(&'static str, Cow<'a, [A]>)],
}

enum Part<'a, A: Real> {
    In(In<'a, A>),
    Ints(&'a [i64]),
    Out(Out<'a, A>),
}

impl<'a, A: Real> Part<'a, A> {
    fn read(spec: &TensorSpec, bytes: &'a [u8], rows: Range<usize>) -> Part<'a, A> {
        match spec.dtype {
            DType::I64 => Part::Ints(&cast_slice(bytes)[rows]),
            _ => Part::In(In::new(spec, bytes, rows.start)),
        }
    }
}

impl<'a, A: Real> Job<'a, A> {
    fn take(&mut self, name: &str) -> Option<Part<'a, A>> {
        let at = self.tensors.iter().position(|(n, _)| *n == name)?;
        Some(self.tensors.swap_remove(at).1)
    }

    pub fn input(&self, name: &str) -> In<'a, A> {
        let found = self.tensors.iter().find(|(n, _)| *n == name);
        let Some((_, Part::In(part))) = found else { panic!("the case has no input {name}") };
        part.clone()
    }

    pub fn ints(&mut self, name: &str) -> &'a [i64] {
        let Some(Part::Ints(part)) = self.take(name) else { panic!("the case has no integers {name}") };
        part
    }

    pub fn output(&mut self, name: &str) -> Out<'a, A> {
        self.output_if(name).unwrap_or_else(|| panic!("the case has no output {name}"))
    }

    /// An output that the case may not have.
    pub fn output_if(&mut self, name: &str) -> Option<Out<'a, A>> {
        let Part::Out(part) = self.take(name)? else { panic!("{name} is no output") };
        Some(part)
    }

    pub fn shared(&self, name: &str) -> &'a [A] {
        self.shared_if(name).unwrap_or_else(|| panic!("the case has no {name}"))
    }

    pub fn shared_if(&self, name: &str) -> Option<&'a [A]> {
        self.shared.iter().find(|(n, _)| *n == name).map(|(_, values)| &**values)
    }
}

/// Tensors of `m` rows, whose work is that of `n` elements each, and tensors that all rows share.
pub struct Rowwise {
    pub m: usize,
    pub n: usize,
    pub by_row: Vec<Buffer>,
    pub shared: Vec<Buffer>,
}

/// Binds a kernel to a case of axes m and n. Tensors that are not `shared` by all rows have a row for each.
pub fn by_rows(c: &Case, b: &Buffers, shared: &[&str], kernel: impl RowKernel) -> Box<dyn Launch> {
    let (shared, by_row) = b.0.iter().cloned().partition(|b| shared.contains(&b.spec().name));
    let rows = Rowwise { m: c.axis("m"), n: c.axis("n"), by_row, shared };
    by_acc!(c.dtype, A => Box::new(move || rows.launch::<A>(&kernel)))
}

impl Rowwise {
    pub fn launch<A: Real>(&self, kernel: &impl RowKernel) {
        self.each::<A>(&|job| {
            simd(
                #[inline(always)]
                || kernel.run(job),
            )
        });
    }

    fn each<A: Real>(&self, run: &(dyn Fn(&mut Job<A>) + Sync)) {
        let is_input = |b: &&Buffer| b.spec().role.is_input();
        let shared: Vec<_> = self.shared.iter().filter(is_input).map(|b| (b.spec(), b.read::<u8>())).collect();
        let shared: Vec<_> = shared.iter().map(|(s, bytes)| (s.name, widened(s.dtype, bytes))).collect();
        let sums = self.shared.iter().filter(|b| !is_input(b));
        let (reads, writes) = (|b: &&Buffer| b.spec().role == Role::In, |b: &&Buffer| b.spec().role != Role::In);
        let reads: Vec<_> = self.by_row.iter().filter(reads).map(|b| (b.spec(), b.read::<u8>())).collect();
        let mut writes: Vec<_> = self.by_row.iter().filter(writes).map(|b| (b.spec(), b.write::<u8>())).collect();
        let few = sums.clone().next().is_some();
        let jobs = if few { Jobs::few(self.m, self.n) } else { Jobs::rows(self.m, self.n) };
        let job = |rows: Range<usize>| {
            let mut tensors = Vec::with_capacity(self.by_row.len());
            tensors.extend(reads.iter().map(|(s, bytes)| (s.name, Part::read(s, bytes, rows.clone()))));
            Job { first_row: rows.start, sums: Vec::new(), tensors, shared: &shared }
        };
        let mut parts: Vec<Job<A>> = jobs.ranges().map(job).collect();
        for (spec, bytes) in &mut writes {
            let split = jobs.split(bytes, per_row(spec) * spec.dtype.size());
            for (job, bytes) in parts.iter_mut().zip(split) {
                job.tensors.push((spec.name, Part::Out(Out::new(spec, bytes))));
            }
        }
        let mut totals = &add_up(each_job(parts, |mut job| {
            run(&mut job);
            job.sums
        }))[..];
        for sum in sums {
            let total = totals.split_off(..sum.spec().elems()).expect("a kernel returns its sums");
            narrow(sum.spec().dtype, total, &mut sum.write::<u8>());
        }
    }
}

/// Partial sums of jobs added up, in the order of the jobs.
fn add_up<A: Real>(partials: Vec<Vec<A>>) -> Vec<A> {
    let mut partials = partials.into_iter();
    let mut total = partials.next().unwrap_or_default();
    for partial in partials {
        total.iter_mut().zip(&partial).for_each(|(t, p)| *t += *p);
    }
    total
}
