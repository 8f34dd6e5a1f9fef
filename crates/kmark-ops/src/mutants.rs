//! The mutants of an op as impls of it. The gate must reject every one, or grade it loose if it only rounds on the way.

use crate::cuda::{self, Bound};
use crate::entry::Entry;
use crate::mutant::{COMMON, LAUNCHED, Mutant, Spoil, unlike};
use crate::plain::{HARMLESS, plainly};
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::record::Status;
use kmark_core::tally::Grade;
use kmark_device::buffer::Buffers;
use kmark_device::{Device, Fault, Impl};

/// The mutants of an op on a kind of device: its own, those that every op can have, and on a GPU those that every kernel
/// can have.
pub fn of(entry: &Entry, device: &str) -> Vec<MutantImpl> {
    let (device, rights) = (if device == "cuda" { "cuda" } else { "cpu" }, entry.impls_on(device));
    let (wrong, loose): (Vec<_>, Vec<_>) = entry.mutants().partition(|m| m.grade.is_none());
    let launched = LAUNCHED.iter().filter(|_| device == "cuda");
    let all = wrong.into_iter().chain(COMMON).chain(launched).chain(loose);
    all.map(|mutant| MutantImpl { name: format!("mutant/{}", mutant.name), mutant, rights, device }).collect()
}

/// Whether the mutant of that name, with `mutant/`, may fault on the GPU where others give a wrong answer.
pub fn may_fault(name: &str) -> bool {
    LAUNCHED.iter().any(|wrong| name.strip_prefix("mutant/") == Some(wrong.name))
}

/// A mutant as an impl of its op.
pub struct MutantImpl {
    name: String,
    mutant: &'static Mutant,
    rights: &'static [&'static dyn Impl],
    device: &'static str,
}

impl MutantImpl {
    /// What the gate must say of it: a grade, or none if it is wrong.
    pub fn grade(&self) -> Option<Grade> {
        self.mutant.grade
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
        self.mutant.about.into()
    }
    fn device(&self) -> &'static str {
        self.device
    }
    fn hash(&self) -> String {
        self.rights.first().map_or_else(String::new, |r| r.hash())
    }
    fn supports(&self, op: &'static Op, case: &Case) -> Result<(), String> {
        self.right(op, case)?;
        if (self.mutant.applies)(case) { Ok(()) } else { Err(HARMLESS.into()) }
    }
    fn bind(&self, device: &dyn Device, op: &'static Op, case: &Case, buffers: &Buffers) -> Bound {
        let right = self.right(op, case).map_err(|e| Fault::new(Status::Unsupported, e))?;
        let launch = right.bind(device, op, case, buffers)?;
        Ok(match self.mutant.spoil {
            Spoil::Plain(plain) => plainly(case, buffers, plain),
            Spoil::Of(spoil) => spoil(launch, case, buffers),
            Spoil::Launched(wrong) => {
                let no_file = || Fault::new(Status::Unsupported, format!("{} is no kernel file", right.name()));
                let file = cuda::kernel_file(right).ok_or_else(no_file)?;
                unlike(launch, cuda::bind(&file, device, op, case, buffers, Some(wrong))?, buffers)
            }
        })
    }
}
