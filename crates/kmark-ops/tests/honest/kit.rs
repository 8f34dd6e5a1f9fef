//! What tests of honest kernels share: a function as an impl, its verdict, and a list of the largest ratios seen.

use crate::common::Random;
use crate::derived::by_reference;
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::gate::Verify;
use kmark_core::op::Op;
use kmark_core::tally::Grade;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cpu::Cpu;
use kmark_device::workload::verify;
use kmark_device::{Device, Fault, Impl, Launch};
use kmark_ops::Entry;
use std::collections::BTreeMap;
use std::sync::Arc;

type Kernel = Arc<dyn Fn(&Case, &Buffers) + Send + Sync>;

/// An impl that is a function of the case and its buffers.
struct Honest(Kernel);

impl Impl for Honest {
    fn name(&self) -> &str {
        "test/honest"
    }
    fn about(&self) -> std::borrow::Cow<'_, str> {
        "rounds as hardware does".into()
    }
    fn hash(&self) -> String {
        String::new()
    }
    fn supports(&self, _: &'static Op, _: &Case) -> Result<(), String> {
        Ok(())
    }
    fn bind(&self, _: &dyn Device, _: &'static Op, case: &Case, buffers: &Buffers) -> Result<Box<dyn Launch>, Fault> {
        let (f, case, buffers) = (self.0.clone(), case.clone(), buffers.clone());
        Ok(Box::new(move || f(&case, &buffers)))
    }
}

pub fn read(b: &Buffer) -> Vec<f64> {
    let mut values = vec![0.0; b.spec().elems()];
    b.spec().read(&b.read::<u8>(), 0, &mut values);
    values
}

pub fn write(b: &Buffer, values: &[f64]) {
    b.spec().write(values, 0, &mut b.write::<u8>());
}

/// How many cases to try, of `few` in an ordinary run.
pub fn rounds(few: u64) -> u64 {
    let times = std::env::var("KMARK_HONEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    few.div_ceil(if derived() { 20 } else { 1 }) * times
}

/// Whether kernels are judged by bounds derived from the ops' NumPy formulas instead of by their oracles. That takes
/// longer, so there are fewer cases, and smaller ones.
fn derived() -> bool {
    std::env::var_os("KMARK_HONEST_BOUND").is_some_and(|bound| bound == "derived")
}

/// Verdicts so far: for each op, dtype and promised grade how many, how many of them were tight, and the largest ratio to
/// what that grade allows.
#[derive(Default)]
pub struct Verdicts(BTreeMap<(String, DType, &'static str), (u64, u64, f64)>);

impl Verdicts {
    /// Judges `kernel` on `case`. It promises `grade`, or a better one where there is nothing to round.
    pub fn add(
        &mut self,
        entry: &Entry,
        case: &Case,
        about: &str,
        grade: Grade,
        kernel: impl Fn(&Case, &Buffers) + Send + Sync + 'static,
    ) {
        let op = if derived() { by_reference(entry.op) } else { entry.op };
        let v = verify(&Cpu::new("test"), op, &Honest(Arc::new(kernel)), case).unwrap();
        let worst = |v: &Verify| {
            let of = |r: &kmark_core::gate::RegionError| match grade {
                Grade::Tight => r.worst,
                Grade::Loose => r.loose_worst.unwrap_or(r.worst),
            };
            v.regions.iter().map(of).fold(0.0, f64::max)
        };
        assert!(v.ok() && v.grade <= Some(grade), "{} by {about} is no {}: {v:#?}", case.id, grade.word());
        let entry = self.0.entry((case.op.clone(), case.dtype, grade.word())).or_default();
        entry.0 += 1;
        entry.1 += u64::from(v.grade == Some(Grade::Tight));
        entry.2 = entry.2.max(worst(&v));
    }

    /// Prints the list (for `--nocapture`). Kernels that promise the loose grade must have had it somewhere.
    pub fn close(self) {
        let mut seen = BTreeMap::new();
        for ((op, dtype, grade), (count, tight, worst)) in &self.0 {
            println!("{op:18} {:6} {grade:5}: {count:6} verdicts, {tight:6} tight, worst {worst:.3}", dtype.name());
            if *grade == Grade::Loose.word() {
                *seen.entry(op).or_insert(0) += count - tight;
            }
        }
        seen.into_iter().for_each(|(op, loose)| assert!(derived() || loose > 0, "{op}: nothing loose was met"));
    }
}

/// A random case of at most so many FLOPs in all its checks, so that many of them take little time.
pub fn small(random: &mut Random, entry: &Entry, flops: u64) -> Case {
    let flops = if derived() { flops / 8 } else { flops };
    loop {
        let case = random.case(entry);
        if entry.op.cost(&case).flops * entry.op.checks(&case) <= flops {
            return case;
        }
    }
}

/// Random numbers for choices between variants.
pub fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}
