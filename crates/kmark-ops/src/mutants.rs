//! Mutants: impls that are wrong on purpose, in ways that kernels are wrong. The gate must reject every one. A mutant
//! starts from the right answer of the op's first impl and spoils it, so that it is wrong in one way only.

pub mod shared;

use crate::Entry;
use kmark_core::case::Case;
use kmark_core::fill::{row_is_ignored, row_scale};
use kmark_core::tensor::Role;
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
        if (self.mutant.applies)(case) { Ok(()) } else { Err("the mutant is no mutant here".into()) }
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
    buffer.spec().dtype.decode(&buffer.read::<u8>(), &mut values);
    values
}

pub fn write(buffer: &Buffer, values: &[f64]) {
    buffer.spec().dtype.encode(values, &mut buffer.write::<u8>());
}

fn outputs(buffers: &Buffers) -> Vec<Buffer> {
    buffers.0.iter().filter(|b| b.spec().role.is_output()).cloned().collect()
}

/// Whether old and new values differ at the end of the outputs: not where a row is special, nor in a softmax of one.
fn ordinary_end(c: &Case) -> bool {
    let last = c.axes.get("m").map_or(0, |m| m - 1);
    row_scale(last) == 1.0 && !row_is_ignored(last) && c.axes.get("n").is_none_or(|n| *n >= 8)
}

/// What any kernel can do wrong.
pub static COMMON: &[Mutant] = &[
    Mutant {
        name: "tail-stale",
        about: "the last vector of 8 elements keeps the values of an earlier launch",
        applies: ordinary_end,
        spoil: |right, _, buffers| {
            let out = outputs(buffers).remove(0);
            let mut yesterday: Option<Vec<f64>> = None;
            after(right, move || {
                let mut values = read(&out);
                let last = values.len().saturating_sub(8);
                let old = yesterday.get_or_insert_with(|| values[last..].to_vec());
                values[last..].copy_from_slice(old);
                write(&out, &values);
            })
        },
    },
    Mutant {
        name: "tail-unwritten",
        about: "the last element is never written",
        applies: ordinary_end,
        spoil: |mut right, _, buffers| {
            let out = outputs(buffers).pop().expect("an op has outputs");
            Box::new(move || {
                let size = out.spec().dtype.size();
                let at = out.spec().bytes() - size;
                let before = out.read::<u8>()[at..].to_vec();
                right.launch().expect("CPU impls do not fail");
                out.write::<u8>()[at..].copy_from_slice(&before);
            })
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
        applies: ordinary_end,
        spoil: |mut right, _, buffers| {
            let outs = outputs(buffers);
            let mut kept: Option<Vec<Vec<u8>>> = None;
            Box::new(move || match &kept {
                Some(kept) => {
                    for (out, bytes) in outs.iter().zip(kept) {
                        out.write::<u8>().copy_from_slice(bytes);
                    }
                }
                None => {
                    right.launch().expect("CPU impls do not fail");
                    kept = Some(outs.iter().map(|o| o.read::<u8>().to_vec()).collect());
                }
            })
        },
    },
    Mutant {
        name: "needs-zeroed-output",
        about: "adds to its output instead of writing it",
        applies: ordinary_end,
        spoil: |mut right, _, buffers| {
            let out = outputs(buffers).pop().expect("an op has outputs");
            Box::new(move || {
                let before = read(&out);
                right.launch().expect("CPU impls do not fail");
                let sum: Vec<f64> = read(&out).iter().zip(&before).map(|(a, b)| a + b).collect();
                write(&out, &sum);
            })
        },
    },
];

fn find_common(name: &str) -> &'static Mutant {
    COMMON.iter().find(|m| m.name == name).expect("a common mutant")
}
