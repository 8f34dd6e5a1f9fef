//! What a mutant is: an impl that is wrong on purpose, in a way that kernels are wrong. It starts from the right answer of
//! one of the op's impls on its device and spoils it, or is the op's plain loops with one twist, so that it is wrong in one
//! way only; on a GPU some are the right kernel launched or compiled wrongly. Others are not wrong but round on the way, as
//! many libraries do.

pub mod attention;
pub mod shared;

use crate::plain::{Plain, Spoiled, read, write};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::tally::Grade;
use kmark_core::tensor::{Role, TensorSpec};
use kmark_device::Launch;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cuda::Wrong;

/// Makes a launch that computes wrong outputs of one that computes the right ones.
pub type Of = fn(Box<dyn Launch>, &Case, &Buffers) -> Box<dyn Launch>;

/// How outputs become wrong.
pub enum Spoil {
    Plain(&'static dyn Plain),
    Of(Of),
    Launched(Wrong),
}

pub struct Mutant {
    /// Shown as `mutant/NAME`.
    pub name: &'static str,
    pub about: &'static str,
    pub spoil: Spoil,
    /// Whether the mutant differs from a right answer, or from a tight one, at all on this case.
    pub applies: fn(&Case) -> bool,
    /// What the gate must say of it: a grade, or none if it is wrong.
    pub grade: Option<Grade>,
}

impl Mutant {
    /// Differs from a right answer on every case; [`Mutant::on`] says where that is not so. How it does is said next.
    pub const fn new(name: &'static str, about: &'static str) -> Mutant {
        Mutant { name, about, spoil: Spoil::Of(|right, _, _| right), applies: |_| true, grade: None }
    }

    /// Right, but rounding on the way to the tensors' 16-bit type; the gate must grade it loose.
    pub const fn loose(name: &'static str, about: &'static str) -> Mutant {
        Mutant { grade: Some(Grade::Loose), ..Mutant::new(name, about) }
    }

    /// By plain loops that are not right.
    pub const fn plain(self, plain: &'static dyn Plain) -> Mutant {
        Mutant { spoil: Spoil::Plain(plain), ..self }
    }

    /// By changing what the right launch does.
    pub const fn of(self, of: Of) -> Mutant {
        Mutant { spoil: Spoil::Of(of), ..self }
    }

    /// By launching a kernel wrongly.
    const fn launched(self, wrong: Wrong) -> Mutant {
        Mutant { spoil: Spoil::Launched(wrong), ..self }
    }

    pub const fn on(self, applies: fn(&Case) -> bool) -> Mutant {
        Mutant { applies, ..self }
    }
}

/// Kernels of a GPU, launched or compiled wrongly.
pub const LAUNCHED: &[Mutant] = &[
    Mutant::new("last-block-skipped", "the last block of threads does not run").launched(Wrong::LastBlock),
    Mutant::new("barriers-missing", "threads do not wait for each other, and some are late").launched(Wrong::Race),
];

/// Runs `wrong` where `right` would run; if they agree, it was no mutant here.
pub fn unlike(mut right: Box<dyn Launch>, mut wrong: Box<dyn Launch>, buffers: &Buffers) -> Box<dyn Launch> {
    let outs = outputs(buffers);
    Box::new(Spoiled(move || {
        let before = bytes_of(&outs);
        right.launch().expect(WORKS);
        let expected = bytes_of(&outs);
        put_back(&outs, &before);
        wrong.launch().expect(WORKS);
        outs.iter().zip(&expected).zip(&bytes_of(&outs)).any(|((out, a), b)| beyond_rounding(out.spec(), a, b))
    }))
}

/// Whether two states of a tensor differ by more than sums in another order do: a few roundings.
fn beyond_rounding(spec: &TensorSpec, a: &[u8], b: &[u8]) -> bool {
    let (a, b) = (values(spec, a), values(spec, b));
    let near = |(a, b): (&f64, &f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 16.0 * spec.dtype.spacing(a.abs().max(b.abs()))
    };
    !a.iter().zip(&b).all(near)
}

/// Mutants start from impls that are right.
pub(crate) const WORKS: &str = "the right impl works";

/// A mutant that runs the right impl and then `edit`s one output.
pub fn edited(
    right: Box<dyn Launch>,
    buffers: &Buffers,
    output: &str,
    edit: impl Fn(&mut [f64]) + 'static,
) -> Box<dyn Launch> {
    let out = buffers.get(output);
    after(right, move || {
        let mut values = read(&out);
        edit(&mut values);
        write(&out, &values);
    })
}

/// Runs `right`, then `then`.
pub fn after(mut right: Box<dyn Launch>, mut then: impl FnMut() + 'static) -> Box<dyn Launch> {
    Box::new(move || {
        right.launch().expect(WORKS);
        then();
    })
}

fn values(spec: &TensorSpec, bytes: &[u8]) -> Vec<f64> {
    let mut values = vec![0.0; spec.elems()];
    spec.read(bytes, 0, &mut values);
    values
}

fn bytes_of(buffers: &[Buffer]) -> Vec<Vec<u8>> {
    buffers.iter().map(|b| b.read::<u8>().to_vec()).collect()
}

fn put_back(buffers: &[Buffer], bytes: &[Vec<u8>]) {
    buffers.iter().zip(bytes).for_each(|(buffer, bytes)| buffer.write::<u8>().copy_from_slice(bytes));
}

fn outputs(buffers: &Buffers) -> Vec<Buffer> {
    buffers.0.iter().filter(|b| b.spec().role.is_output()).cloned().collect()
}

/// The last element in which two states of a tensor differ. Two zeros do not, nor does what is left of a zero in f32, nor
/// what rounding on the way explains in 16 bits.
fn last_difference(spec: &TensorSpec, before: &[u8], after: &[u8]) -> Option<usize> {
    let (before, after) = (values(spec, before), values(spec, after));
    let is_zero = |v: f64| v.abs() < 1e-6 && spec.dtype != DType::F64;
    let near =
        |a: f64, b: f64| spec.dtype.size() == 2 && (a - b).abs() <= 16.0 * spec.dtype.spacing(a.abs().max(b.abs()));
    let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (is_zero(a) && is_zero(b)) || near(a, b);
    (0..before.len()).rev().find(|i| !same(before[*i], after[*i]))
}

/// What any kernel can do wrong.
pub const COMMON: &[Mutant] = &[
    Mutant::new("tail-stale", "the last vector of 8 elements keeps the values of an earlier launch")
        .of(|mut right, _, buffers| {
            let out = outputs(buffers).remove(0);
            let mut yesterday: Option<Vec<u8>> = None;
            Box::new(Spoiled(move || {
                right.launch().expect(WORKS);
                let now = out.read::<u8>().to_vec();
                let Some(old) = &yesterday else {
                    yesterday = Some(now);
                    return true;
                };
                // The last that differ: padding at the very end is the same every time.
                let Some(last) = last_difference(out.spec(), old, &now) else { return false };
                let from = last.saturating_sub(7);
                let mut stale = vec![0.0; last + 1 - from];
                out.spec().read(old, from, &mut stale);
                out.spec().write(&stale, from, &mut out.write::<u8>());
                true
            }))
        })
        // Of one class the loss is always zero, but for what rounding leaves of it.
        .on(|c| c.axes.get("n") != Some(&1)),
    Mutant::new("tail-unwritten", "the last element is never written").of(tail_unwritten),
    Mutant::new("one-past-the-end", "writes one element past its output").of(|right, _, buffers| {
        let out = outputs(buffers).remove(0);
        let size = out.spec().dtype.size();
        after(right, move || out.overstep(size, |bytes| *bytes.last_mut().expect("not empty") ^= 1))
    }),
    Mutant::new("changes-its-input", "leaves one bit of an input changed").of(|right, case, buffers| {
        let input = buffers.0.iter().find(|b| b.spec().role == Role::In).cloned();
        match input {
            Some(input) => after(right, move || {
                let mut bytes = input.write::<u8>();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }),
            None => tail_unwritten(right, case, buffers),
        }
    }),
    Mutant::new("yesterday", "computes once, then returns that output for ever").of(|mut right, _, buffers| {
        let outs = outputs(buffers);
        let mut kept: Option<Vec<Vec<u8>>> = None;
        Box::new(Spoiled(move || {
            right.launch().expect(WORKS);
            let now = bytes_of(&outs);
            let first = kept.is_none();
            let kept = kept.get_or_insert_with(|| now.clone());
            put_back(&outs, kept);
            let differ = |(out, (a, b)): (&Buffer, (&Vec<u8>, &Vec<u8>))| last_difference(out.spec(), a, b).is_some();
            first || outs.iter().zip(kept.iter().zip(&now)).any(differ)
        }))
    }),
    Mutant::new("needs-zeroed-output", "adds to its output instead of writing it").of(|mut right, _, buffers| {
        let out = outputs(buffers).pop().expect("an op has outputs");
        Box::new(Spoiled(move || {
            let before = read(&out);
            right.launch().expect(WORKS);
            let now = read(&out);
            let sum: Vec<f64> = now.iter().zip(&before).map(|(a, b)| a + b).collect();
            write(&out, &sum);
            sum.iter().zip(&now).any(|(sum, now)| sum != now)
        }))
    }),
];

fn tail_unwritten(mut right: Box<dyn Launch>, _: &Case, buffers: &Buffers) -> Box<dyn Launch> {
    let out = outputs(buffers).pop().expect("an op has outputs");
    Box::new(Spoiled(move || {
        let before = out.read::<u8>().to_vec();
        right.launch().expect(WORKS);
        let Some(last) = last_difference(out.spec(), &before, &out.read::<u8>()) else { return false };
        let mut kept = [0.0];
        out.spec().read(&before, last, &mut kept);
        out.spec().write(&kept, last, &mut out.write::<u8>());
        true
    }))
}
