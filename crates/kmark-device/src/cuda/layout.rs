//! Where things lie in the scratch memory of a check on a GPU.

use super::engine::Found;
use super::prelude::SLOTS;
use kmark_core::tally::PLACES;

/// A tally on the GPU, in words: seen, elements, err2, twin2, expect2, allowed2, allowed4, and for each grade the
/// elements beyond it, the worst ratio and slack2.
pub(super) const TALLY: usize = 13;
/// Of each grade: how many elements lie beyond it, and the places of the first.
pub(super) const EXCESS: usize = 1 + PLACES;
/// Where things lie in the scratch memory of a check, in words.
pub(super) struct Layout {
    pub(super) regions: usize,
    pub(super) tensors: usize,
}

impl Layout {
    /// Three findings and a hash for each tensor.
    const PER_TENSOR: usize = 3 * 3 + 2;
    pub(super) fn found(&self, tensor: usize, which: usize) -> usize {
        tensor * Self::PER_TENSOR + which * 3
    }
    pub(super) fn hash(&self, tensor: usize) -> usize {
        tensor * Self::PER_TENSOR + 9
    }
    /// Tallies, the row tally, the index, what is told and what lies beyond each grade, for each tensor.
    pub(super) fn per_output(&self) -> usize {
        SLOTS * self.regions * TALLY + 2 + 1 + 5 + 2 * EXCESS
    }
    pub(super) fn output(&self, tensor: usize) -> usize {
        self.tensors * Self::PER_TENSOR + tensor * self.per_output()
    }
    pub(super) fn rows(&self, tensor: usize) -> usize {
        self.output(tensor) + SLOTS * self.regions * TALLY
    }
    pub(super) fn index(&self, tensor: usize) -> usize {
        self.rows(tensor) + 2
    }
    pub(super) fn told(&self, tensor: usize) -> usize {
        self.index(tensor) + 1
    }
    pub(super) fn excess(&self, tensor: usize, grade: usize) -> usize {
        self.told(tensor) + 5 + grade * EXCESS
    }
    pub(super) fn property(&self) -> usize {
        self.output(self.tensors)
    }
    /// Where the findings end, which is where the tallies begin.
    pub(super) fn end_of_findings(&self) -> usize {
        self.output(0)
    }
    /// As it is before a check.
    pub(super) fn fresh(&self) -> Vec<u64> {
        let mut words = vec![0; self.property() + 2];
        for t in 0..self.tensors {
            (0..3).for_each(|which| words[self.found(t, which)] = Found::NONE.lowest);
            words[self.rows(t) + 1] = u64::MAX;
            words[self.index(t)] = u64::MAX;
        }
        words[self.property() + 1] = u64::MAX;
        words
    }
}
