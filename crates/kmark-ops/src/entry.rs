//! An op and everything that computes it: what a folder of this floor comes to.

use crate::cuda::Source;
use crate::mutant::Mutant;
use kmark_core::op::Op;
use kmark_device::Impl;

pub struct Entry {
    pub op: &'static Op,
    /// The same oracle as CUDA C++, and the derivation of inputs: judges what a launch left on a GPU where it lies.
    pub oracle: Source,
    pub cpu: &'static [&'static dyn Impl],
    pub cuda: &'static [&'static dyn Impl],
    /// Wrong on purpose, or right but loose: its own, and groups that it shares with other ops. Every op has those of
    /// `mutant::COMMON` as well.
    pub mutants: &'static [&'static [Mutant]],
}

impl Entry {
    /// Everything that computes the op, on whatever device.
    pub fn impls(&self) -> impl Iterator<Item = &'static dyn Impl> + use<> {
        self.cpu.iter().chain(self.cuda).copied()
    }

    /// Those for a kind of device.
    pub fn impls_on(&self, kind: &str) -> &'static [&'static dyn Impl] {
        if kind == "cuda" { self.cuda } else { self.cpu }
    }

    pub fn mutants(&self) -> impl Iterator<Item = &'static Mutant> + use<> {
        self.mutants.iter().copied().flatten()
    }
}
