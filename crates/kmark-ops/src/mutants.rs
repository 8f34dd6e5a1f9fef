//! Mutants: impls that are wrong on purpose, in ways that kernels are wrong. The gate must reject every one. A mutant
//! starts from the right answer of the op's first impl and spoils it, so that it is wrong in one way only.

pub(crate) mod attention;
pub mod shared;

use crate::Entry;
use kmark_core::case::Case;
use kmark_core::record::Status;
use kmark_core::tensor::{Role, TensorSpec, View};
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::{Device, Fault, Impl, Launch};

pub type Spoil = fn(Box<dyn Launch>, &Case, &Buffers) -> Box<dyn Launch>;

pub struct Mutant {
    /// Shown as `mutant/NAME`.
    pub name: &'static str,
    pub about: &'static str,
    /// Whether the mutant differs from a right answer at all on this case.
    pub applies: fn(&Case) -> bool,
    /// `right` computes the correct outputs; what is returned computes the wrong ones.
    pub spoil: Spoil,
}

/// All mutants of an op: its own, and those that every op can have.
pub fn of(entry: &Entry) -> impl Iterator<Item = &'static Mutant> {
    entry.mutants.iter().chain(COMMON)
}

/// A mutant as an impl of its op.
pub struct MutantImpl {
    name: String,
    mutant: &'static Mutant,
    right: &'static dyn Impl,
}

impl MutantImpl {
    pub fn new(entry: &Entry, mutant: &'static Mutant) -> MutantImpl {
        MutantImpl { name: format!("mutant/{}", mutant.name), mutant, right: entry.impls[0] }
    }
}

impl Impl for MutantImpl {
    fn name(&self) -> &str {
        &self.name
    }
    fn about(&self) -> &str {
        self.mutant.about
    }
    fn hash(&self) -> String {
        self.right.hash()
    }
    fn supports(&self, case: &Case) -> Result<(), String> {
        if (self.mutant.applies)(case) { Ok(()) } else { Err(NO_MUTANT.into()) }
    }
    fn bind(&self, device: &dyn Device, case: &Case, buffers: &Buffers) -> Result<Box<dyn Launch>, Fault> {
        Ok((self.mutant.spoil)(self.right.bind(device, case, buffers)?, case, buffers))
    }
}

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
        right.launch().expect("CPU impls do not fail");
        then();
    })
}

pub fn read(buffer: &Buffer) -> Vec<f64> {
    let mut values = vec![0.0; buffer.spec().elems()];
    buffer.spec().read(&buffer.read::<u8>(), 0, &mut values);
    values
}

pub fn write(buffer: &Buffer, values: &[f64]) {
    buffer.spec().write(values, 0, &mut buffer.write::<u8>());
}

/// Runs `f` on a view of the inputs.
pub fn inputs_of<R>(buffers: &Buffers, f: impl FnOnce(&View) -> R) -> R {
    let specs: Vec<TensorSpec> = buffers.0.iter().map(|b| b.spec().clone()).collect();
    let guards: Vec<_> = buffers.0.iter().map(|b| (b.spec().role == Role::In).then(|| b.read::<u8>())).collect();
    f(&View { specs: &specs, bytes: guards.iter().map(|g| g.as_deref()).collect() })
}

fn outputs(buffers: &Buffers) -> Vec<Buffer> {
    buffers.0.iter().filter(|b| b.spec().role.is_output()).cloned().collect()
}

const NO_MUTANT: &str = "the mutant is no mutant here";

/// A launch that may find that there was nothing to spoil: then it is no mutant on this case, and says so.
struct Spoiled<F>(F);

impl<F: FnMut() -> bool> Launch for Spoiled<F> {
    fn launch(&mut self) -> Result<(), Fault> {
        (self.0)().then_some(()).ok_or_else(|| Fault::new(Status::Unsupported, NO_MUTANT))
    }
}

/// The last element in which two states of a tensor differ; the two zeros do not.
fn last_difference(spec: &TensorSpec, before: &[u8], after: &[u8]) -> Option<usize> {
    let values = |bytes| {
        let mut values = vec![0.0; spec.elems()];
        spec.read(bytes, 0, &mut values);
        values
    };
    let (before, after): (Vec<f64>, Vec<f64>) = (values(before), values(after));
    (0..before.len()).rev().find(|i| before[*i] != after[*i] && !(before[*i].is_nan() && after[*i].is_nan()))
}

/// What any kernel can do wrong.
pub const COMMON: &[Mutant] = &[
    Mutant {
        name: "tail-stale",
        about: "the last vector of 8 elements keeps the values of an earlier launch",
        applies: |_| true,
        spoil: |mut right, _, buffers| {
            let out = outputs(buffers).remove(0);
            let mut yesterday: Option<Vec<u8>> = None;
            Box::new(Spoiled(move || {
                right.launch().expect("CPU impls do not fail");
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
        },
    },
    Mutant {
        name: "tail-unwritten",
        about: "the last element is never written",
        applies: |_| true,
        spoil: |mut right, _, buffers| {
            let out = outputs(buffers).pop().expect("an op has outputs");
            Box::new(Spoiled(move || {
                let before = out.read::<u8>().to_vec();
                right.launch().expect("CPU impls do not fail");
                let Some(last) = last_difference(out.spec(), &before, &out.read::<u8>()) else { return false };
                let mut kept = [0.0];
                out.spec().read(&before, last, &mut kept);
                out.spec().write(&kept, last, &mut out.write::<u8>());
                true
            }))
        },
    },
    Mutant {
        name: "one-past-the-end",
        about: "writes one element past its output",
        applies: |_| true,
        spoil: |right, _, buffers| {
            let out = outputs(buffers).remove(0);
            let size = out.spec().dtype.size();
            after(right, move || out.overstep(size, |bytes| *bytes.last_mut().expect("not empty") = 0))
        },
    },
    Mutant {
        name: "changes-its-input",
        about: "leaves one bit of an input changed",
        applies: |_| true,
        spoil: |right, case, buffers| {
            let input = buffers.0.iter().find(|b| b.spec().role == Role::In).cloned();
            match input {
                Some(input) => after(right, move || {
                    let mut bytes = input.write::<u8>();
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                }),
                None => (find_common("tail-unwritten").spoil)(right, case, buffers),
            }
        },
    },
    Mutant {
        name: "yesterday",
        about: "computes once, then returns that output for ever",
        applies: |_| true,
        spoil: |mut right, _, buffers| {
            let outs = outputs(buffers);
            let mut kept: Option<Vec<Vec<u8>>> = None;
            Box::new(Spoiled(move || {
                right.launch().expect("CPU impls do not fail");
                let now: Vec<Vec<u8>> = outs.iter().map(|o| o.read::<u8>().to_vec()).collect();
                let first = kept.is_none();
                let kept = kept.get_or_insert_with(|| now.clone());
                for (out, bytes) in outs.iter().zip(kept.iter()) {
                    out.write::<u8>().copy_from_slice(bytes);
                }
                let differ =
                    |(out, (a, b)): (&Buffer, (&Vec<u8>, &Vec<u8>))| last_difference(out.spec(), a, b).is_some();
                first || outs.iter().zip(kept.iter().zip(&now)).any(differ)
            }))
        },
    },
    Mutant {
        name: "needs-zeroed-output",
        about: "adds to its output instead of writing it",
        applies: |_| true,
        spoil: |mut right, _, buffers| {
            let out = outputs(buffers).pop().expect("an op has outputs");
            Box::new(Spoiled(move || {
                let before = read(&out);
                right.launch().expect("CPU impls do not fail");
                let now = read(&out);
                let sum: Vec<f64> = now.iter().zip(&before).map(|(a, b)| a + b).collect();
                write(&out, &sum);
                sum.iter().zip(&now).any(|(sum, now)| sum != now)
            }))
        },
    },
];

fn find_common(name: &str) -> &'static Mutant {
    COMMON.iter().find(|m| m.name == name).expect("a common mutant")
}
