//! The GPU's inputs and oracle held against the host's, element by element: what makes a verdict on the GPU as good as
//! one on the host.

use super::memory::Raw;
use super::workload::{Ask, GpuWorkload};
use crate::Fault;
use crate::workload::Workload;
use kmark_core::fill::Fill;
use kmark_core::gate::{Block as Expected, Region, Sink};
use kmark_core::tally::allowed;
use kmark_core::tensor::{TensorSpec, View};
use std::sync::Mutex;

impl GpuWorkload {
    /// Holds the GPU's inputs and oracle against the host's, element by element: one line for each tensor that differs.
    pub fn against_host(&self) -> Result<Vec<String>, Fault> {
        let host = crate::cpu::host_problem(self.op, &self.case, self.seed)?;
        let mut problems = Vec::new();
        for (i, spec) in self.specs.iter().enumerate().filter(|(_, s)| s.role.is_input()) {
            let (gpu, ours) = (self.buffers.0[i].read::<u8>(), host.buffers().0[i].read::<u8>());
            problems.extend(input_difference(spec, &gpu, &ours));
        }
        // The host's oracle on the GPU's own inputs: a derived input may differ in its last bit.
        let copies: Vec<_> = self.buffers.0.iter().map(|b| b.read::<u8>()).collect();
        let bytes = copies.iter().zip(&self.specs).map(|(c, s)| s.role.is_input().then_some(&**c)).collect();
        let collect = Collect::new(&self.specs);
        (self.op.oracle)(&self.case, &View { specs: &self.specs, bytes }, &collect);
        for (t, expected) in collect.0.into_iter().enumerate() {
            let Some(expected) = expected else { continue };
            let expected = expected.into_inner().expect("no oracle panicked");
            let dumped = self.dump(t)?;
            problems.extend(oracle_difference(&self.specs[t], &expected, &dumped));
        }
        Ok(problems)
    }

    fn dump(&self, tensor: usize) -> Result<Dumped, Fault> {
        let (queue, elems) = (self.cuda.queue(), self.specs[tensor].elems());
        let array = || Raw::new(queue, elems * 8);
        let (expect, slack, loose) = (array()?, array()?, array()?);
        let region = Raw::new(queue, elems)?;
        // What no kernel writes shows as NaN.
        [&expect, &slack, &loose].into_iter().try_for_each(|r| queue.set(r.address, 0xff, r.bytes))?;
        let [at, slack_at, loose_at] = [&expect, &slack, &loose].map(|r| r.address);
        let ask = Ask::Dump { expect: at, slack: slack_at, loose: loose_at, region: region.address };
        self.judge(&self.layout().fresh(), Some(tensor), ask)?;
        let [expect, slack, loose] = [expect.download()?, slack.download()?, loose.download()?];
        Ok(Dumped { expect, slack, loose, region: region.download()? })
    }
}

/// Every element of an output as an oracle sees it.
#[derive(Default)]
struct Dumped {
    expect: Vec<f64>,
    slack: Vec<f64>,
    loose: Vec<f64>,
    region: Vec<u8>,
}

/// A sink that keeps everything, for tensors that are outputs.
struct Collect<'a>(Vec<Option<Mutex<Dumped>>>, &'a [TensorSpec]);

impl<'a> Collect<'a> {
    fn new(specs: &'a [TensorSpec]) -> Collect<'a> {
        let room = |s: &TensorSpec| {
            let (nan, n) = (vec![f64::NAN; s.elems()], s.elems());
            Mutex::new(Dumped { expect: nan.clone(), slack: nan, loose: vec![0.0; n], region: vec![0; n] })
        };
        Collect(specs.iter().map(|s| s.role.is_output().then(|| room(s))).collect(), specs)
    }
}

impl Sink for Collect<'_> {
    fn put(&self, block: Expected) {
        let t = self.1.iter().position(|s| s.name == block.tensor).expect("an output of the op");
        let mut to = self.0[t].as_ref().expect("an output").lock().expect("no oracle panicked");
        let at = block.start..block.start + block.expect.len();
        to.expect[at.clone()].copy_from_slice(block.expect);
        to.slack[at.clone()].copy_from_slice(block.slack);
        if !block.loose.is_empty() {
            to.loose[at.clone()].copy_from_slice(block.loose);
        }
        match block.region {
            Region::One(r) => to.region[at].fill(r),
            Region::Each(rs) => to.region[at].copy_from_slice(rs),
        }
    }
}

/// Filled inputs have the same bits. Derived ones may round a last bit differently where a function (exp, cos) does.
fn input_difference(spec: &TensorSpec, gpu: &[u8], host: &[u8]) -> Option<String> {
    if gpu == host {
        return None;
    }
    let values = |bytes: &[u8]| {
        let mut v = vec![0.0; spec.elems()];
        spec.read(bytes, 0, &mut v);
        v
    };
    let (a, b) = (values(gpu), values(host));
    // A sum over many terms in another order is off by units of what was summed, not of what is left of it.
    let largest = b.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
    let near = |(a, b): (&f64, &f64)| {
        let last_bit =
            if spec.fill == Fill::Derived && spec.dtype.is_float() { 1.01 * spec.dtype.spacing(*b) } else { 0.0 };
        let order = if spec.fill == Fill::Derived { 1e-14 * largest } else { 0.0 };
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= last_bit + order
    };
    let wrong = a.iter().zip(&b).filter(|p| !near(*p)).count();
    let first = a.iter().zip(&b).position(|p| !near(p));
    match first {
        Some(i) => Some(format!(
            "input {}: {wrong} of {} elements differ from the host's; {} is {:e}, there {:e}",
            spec.name,
            a.len(),
            spec.place(i),
            a[i],
            b[i]
        )),
        None if a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan())
            && spec.fill != Fill::Derived =>
        {
            Some(format!("input {}: what lies between its rows differs from the host's", spec.name))
        }
        None => None,
    }
}

/// Expectations may differ by a thousandth of what a kernel is allowed (by all of it in f64, where both oracles round
/// as the kernel does), slack by a millionth of itself, regions not at all.
fn oracle_difference(spec: &TensorSpec, host: &Dumped, gpu: &Dumped) -> Option<String> {
    let share = if spec.dtype == kmark_core::dtype::DType::F64 { 1.0 } else { 1e-3 };
    let same = |i: usize| {
        let (a, b, sa, sb) = (gpu.expect[i], host.expect[i], gpu.slack[i], host.slack[i]);
        if sb == f64::INFINITY {
            return sa == f64::INFINITY;
        }
        let expect = a == b || (a - b).abs() <= share * allowed(spec.dtype, b, sb);
        let near = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-6 * b.abs();
        let slack = near(sa, sb) && near(gpu.loose[i], host.loose[i]);
        expect && slack && gpu.region[i] == host.region[i]
    };
    let wrong: Vec<usize> = (0..host.expect.len()).filter(|i| !same(*i)).collect();
    wrong.first().map(|&i| {
        format!(
            "oracle of {}: {} of {} elements differ from the host's; {} is {:e} ± {:e} + {:e} (region {}), there {:e} ± {:e} + {:e} (region {})",
            spec.name,
            wrong.len(),
            host.expect.len(),
            spec.place(i),
            gpu.expect[i],
            gpu.slack[i],
            gpu.loose[i],
            gpu.region[i],
            host.expect[i],
            host.slack[i],
            host.loose[i],
            host.region[i]
        )
    })
}
