//! Mutants: impls that are wrong on purpose, in ways that kernels are wrong. The gate must reject every one. A mutant
//! starts from the right answer of one of the op's impls on its device and spoils it, so that it is wrong in one way only;
//! on a GPU some are the right kernel launched or compiled wrongly. Others are not wrong but round on the way, as many
//! libraries do: the gate must grade these loose, neither tight nor wrong.

pub(crate) mod attention;
pub mod shared;

use crate::Entry;
use crate::plain::{HARMLESS, Plain, plainly};

pub use crate::plain::read;

use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::op::Op;
use kmark_core::record::Status;
use kmark_core::tally::Grade;
use kmark_core::tensor::{Role, TensorSpec};
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cuda::Wrong;
use kmark_device::{Device, Fault, Impl, Launch};

/// Makes a launch that computes wrong outputs of one that computes the right ones.
pub type Of = fn(Box<dyn Launch>, &Case, &Buffers) -> Box<dyn Launch>;

/// How outputs become wrong.
pub enum Spoil {
    Plain(Plain),
    Of(Of),
}

pub struct Mutant {
    /// Shown as `mutant/NAME`.
    pub name: &'static str,
    pub about: &'static str,
    /// Whether the mutant differs from a right answer, or from a tight one, at all on this case.
    pub applies: fn(&Case) -> bool,
    pub spoil: Spoil,
}

impl Mutant {
    /// Differs from a right answer on every case; [`Mutant::on`] says where that is not so.
    pub const fn new(name: &'static str, about: &'static str, of: Of) -> Mutant {
        Mutant { name, about, applies: |_| true, spoil: Spoil::Of(of) }
    }

    /// The same in plain loops.
    pub const fn plain(name: &'static str, about: &'static str, plain: Plain) -> Mutant {
        Mutant { name, about, applies: |_| true, spoil: Spoil::Plain(plain) }
    }

    pub const fn on(self, applies: fn(&Case) -> bool) -> Mutant {
        Mutant { applies, ..self }
    }

    /// `right` computes the correct outputs; what is returned computes the wrong ones.
    fn launch(&self, right: Box<dyn Launch>, case: &Case, buffers: &Buffers) -> Box<dyn Launch> {
        match self.spoil {
            Spoil::Plain(plain) => plainly(case, buffers, plain),
            Spoil::Of(spoil) => spoil(right, case, buffers),
        }
    }
}

/// The mutants of an op on a kind of device: its own, those that every op can have, and on a GPU those that every kernel
/// can have.
pub fn of(entry: &Entry, device: &str) -> Vec<MutantImpl> {
    let device = if device == "cuda" { "cuda" } else { "cpu" };
    let new = |name: &str, about, how, grade| MutantImpl {
        name: format!("mutant/{name}"),
        about,
        how,
        grade,
        rights: entry.impls_on(device),
        device,
    };
    let spoiled = |grade| move |m: &'static Mutant| (m.name, m.about, How::Spoiled(m), grade);
    let launched = WRONG.iter().filter(|_| device == "cuda");
    let wrong = entry.mutants.iter().chain(COMMON).map(spoiled(None));
    let wrong = wrong.chain(launched.map(|(name, about, wrong)| (*name, *about, How::Wrong(*wrong), None)));
    let all = wrong.chain(entry.loose.iter().map(spoiled(Some(Grade::Loose))));
    all.map(|(name, about, how, grade)| new(name, about, how, grade)).collect()
}

/// Kernels of a GPU, launched or compiled wrongly.
const WRONG: &[(&str, &str, Wrong)] = &[
    ("last-block-skipped", "the last block of threads does not run", Wrong::LastBlock),
    ("barriers-missing", "threads do not wait for each other, and some are late", Wrong::Race),
];

/// Whether the mutant of that name, with `mutant/`, may fault on the GPU where others give a wrong answer.
pub fn may_fault(name: &str) -> bool {
    WRONG.iter().any(|(wrong, ..)| name.strip_prefix("mutant/") == Some(wrong))
}

/// A mutant as an impl of its op.
pub struct MutantImpl {
    name: String,
    about: &'static str,
    how: How,
    grade: Option<Grade>,
    rights: &'static [&'static dyn Impl],
    device: &'static str,
}

enum How {
    Spoiled(&'static Mutant),
    Wrong(Wrong),
}

impl MutantImpl {
    /// What the gate must say of it: a grade, or none if it is wrong.
    pub fn grade(&self) -> Option<Grade> {
        self.grade
    }

    /// The right impl that it starts from.
    fn right(&self, op: &'static Op, case: &Case) -> Result<&'static dyn Impl, String> {
        let first = self.rights.iter().copied().find(|i| i.supports(op, case).is_ok());
        first.ok_or_else(|| format!("no impl on {} claims the case", self.device))
    }
}

impl Impl for MutantImpl {
    fn name(&self) -> &str {
        &self.name
    }
    fn about(&self) -> std::borrow::Cow<'_, str> {
        self.about.into()
    }
    fn device(&self) -> &'static str {
        self.device
    }
    fn hash(&self) -> String {
        self.rights.first().map_or_else(String::new, |r| r.hash())
    }
    fn supports(&self, op: &'static Op, case: &Case) -> Result<(), String> {
        self.right(op, case)?;
        match &self.how {
            How::Spoiled(mutant) if !(mutant.applies)(case) => Err(HARMLESS.into()),
            _ => Ok(()),
        }
    }
    fn bind(
        &self,
        device: &dyn Device,
        op: &'static Op,
        case: &Case,
        buffers: &Buffers,
    ) -> Result<Box<dyn Launch>, Fault> {
        let right = self.right(op, case).map_err(|e| Fault::new(Status::Unsupported, e))?;
        let launch = right.bind(device, op, case, buffers)?;
        match &self.how {
            How::Spoiled(mutant) => Ok(mutant.launch(launch, case, buffers)),
            How::Wrong(wrong) => {
                let no_file = || Fault::new(Status::Unsupported, format!("{} is no kernel file", right.name()));
                let file = crate::cuda::kernel_file(right).ok_or_else(no_file)?;
                let wrong = crate::cuda::bind(&file, device, op, case, buffers, Some(*wrong))?;
                Ok(unlike(launch, wrong, buffers))
            }
        }
    }
}

/// Runs `wrong` where `right` would run; if they agree, it was no mutant here.
fn unlike(mut right: Box<dyn Launch>, mut wrong: Box<dyn Launch>, buffers: &Buffers) -> Box<dyn Launch> {
    let outs = outputs(buffers);
    let bytes = move |outs: &[Buffer]| outs.iter().map(|o| o.read::<u8>().to_vec()).collect::<Vec<_>>();
    Box::new(Spoiled(move || {
        let before = bytes(&outs);
        right.launch().expect(WORKS);
        let expected = bytes(&outs);
        for (out, before) in outs.iter().zip(&before) {
            out.write::<u8>().copy_from_slice(before);
        }
        wrong.launch().expect(WORKS);
        outs.iter().zip(&expected).zip(&bytes(&outs)).any(|((out, a), b)| beyond_rounding(out.spec(), a, b))
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

pub fn write(buffer: &Buffer, values: &[f64]) {
    buffer.spec().write(values, 0, &mut buffer.write::<u8>());
}

fn outputs(buffers: &Buffers) -> Vec<Buffer> {
    buffers.0.iter().filter(|b| b.spec().role.is_output()).cloned().collect()
}

/// A launch that may find that there was nothing to spoil: then it is no mutant on this case, and says so.
pub(crate) struct Spoiled<F>(pub(crate) F);

impl<F: FnMut() -> bool> Launch for Spoiled<F> {
    fn launch(&mut self) -> Result<(), Fault> {
        (self.0)().then_some(()).ok_or_else(|| Fault::new(Status::Unsupported, HARMLESS))
    }
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
    Mutant::new(
        "tail-stale",
        "the last vector of 8 elements keeps the values of an earlier launch",
        |mut right, _, buffers| {
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
        },
    )
    // Of one class the loss is always zero, but for what rounding leaves of it.
    .on(|c| c.axes.get("n") != Some(&1)),
    Mutant::new("tail-unwritten", "the last element is never written", |mut right, _, buffers| {
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
    }),
    Mutant::new("one-past-the-end", "writes one element past its output", |right, _, buffers| {
        let out = outputs(buffers).remove(0);
        let size = out.spec().dtype.size();
        after(right, move || out.overstep(size, |bytes| *bytes.last_mut().expect("not empty") ^= 1))
    }),
    Mutant::new("changes-its-input", "leaves one bit of an input changed", |right, case, buffers| {
        let input = buffers.0.iter().find(|b| b.spec().role == Role::In).cloned();
        match input {
            Some(input) => after(right, move || {
                let mut bytes = input.write::<u8>();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }),
            None => find_common("tail-unwritten").launch(right, case, buffers),
        }
    }),
    Mutant::new("yesterday", "computes once, then returns that output for ever", |mut right, _, buffers| {
        let outs = outputs(buffers);
        let mut kept: Option<Vec<Vec<u8>>> = None;
        Box::new(Spoiled(move || {
            right.launch().expect(WORKS);
            let now: Vec<Vec<u8>> = outs.iter().map(|o| o.read::<u8>().to_vec()).collect();
            let first = kept.is_none();
            let kept = kept.get_or_insert_with(|| now.clone());
            for (out, bytes) in outs.iter().zip(kept.iter()) {
                out.write::<u8>().copy_from_slice(bytes);
            }
            let differ = |(out, (a, b)): (&Buffer, (&Vec<u8>, &Vec<u8>))| last_difference(out.spec(), a, b).is_some();
            first || outs.iter().zip(kept.iter().zip(&now)).any(differ)
        }))
    }),
    Mutant::new("needs-zeroed-output", "adds to its output instead of writing it", |mut right, _, buffers| {
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

fn find_common(name: &str) -> &'static Mutant {
    COMMON.iter().find(|m| m.name == name).expect("a common mutant")
}
