//! A case laid out in a GPU's memory: filled, derived, poisoned and judged there, by the op's CUDA oracle. Only tallies
//! come back to the host.

use super::Cuda;
use super::driver::Address;
use super::engine::Hashing;
use super::layout::{Layout, TALLY};
use super::memory::{Block, Lies, Raw};
use super::oracle::Oracle;
use super::prelude::{For, SLOTS, Slot, pack, slots};
use super::program::address;
use crate::buffer::{Buffer, Buffers, DeviceMemory, extent};
use crate::decoy::Look;
use crate::workload::{Kept, Workload, derive, judged_elsewhere};
use crate::{Device, Fault};
use kmark_core::case::Case;
use kmark_core::fill::Fill;
use kmark_core::gate::{BadRows, Findings, Verify, row_sums};
use kmark_core::inputs::GAP_BYTE;
use kmark_core::op::Op;
use kmark_core::record::Status;
use kmark_core::tally::{Element, Grade, PLACES, Tally};
use kmark_core::tensor::{Role, TensorSpec, View};
use std::sync::Arc;

pub struct GpuWorkload {
    pub(super) cuda: Cuda,
    pub(super) op: &'static Op,
    pub(super) case: Case,
    pub(super) specs: Vec<TensorSpec>,
    slots: Vec<Slot>,
    blocks: Vec<Arc<Block>>,
    pub(super) buffers: Buffers,
    oracle: Oracle,
    /// What an in-place tensor held before the launch.
    pristine: Vec<Option<Raw>>,
    /// Hashes of the pure inputs.
    hashes: Vec<[u64; 2]>,
    pub(super) seed: u64,
}

/// What the gate does, by `judge.cuh`'s numbers.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ask {
    Tally,
    Find { ratio: u64, region: usize },
    Tell,
    Dump { expect: Address, slack: Address, loose: Address, region: Address },
}

impl GpuWorkload {
    pub fn new(cuda: &Cuda, op: &'static Op, case: &Case, seed: u64, lies: Lies) -> Result<GpuWorkload, Fault> {
        let specs = op.tensors(case);
        let blocks =
            specs.iter().map(|s| Block::new(cuda.queue(), s, lies).map(Arc::new)).collect::<Result<Vec<_>, Fault>>()?;
        let on_device = |(s, block): (&TensorSpec, &Arc<Block>)| Buffer::on_device(s, Arc::clone(block) as _);
        let buffers = Buffers(specs.iter().zip(&blocks).map(on_device).collect());
        let mut pristine = Vec::new();
        for spec in &specs {
            pristine.push((spec.role == Role::InOut).then(|| Raw::new(cuda.queue(), spec.bytes())).transpose()?);
        }
        let mut workload = GpuWorkload {
            cuda: cuda.clone(),
            op,
            case: case.clone(),
            slots: slots(op, case),
            oracle: Oracle::load(cuda, op, case, &specs)?,
            pristine,
            hashes: vec![[0; 2]; specs.len()],
            specs,
            blocks,
            buffers,
            seed,
        };
        workload.refill(seed)?;
        workload.reset()?;
        Ok(workload)
    }

    pub(super) fn layout(&self) -> Layout {
        Layout { regions: self.op.regions.len(), tensors: self.specs.len() }
    }

    pub(super) fn at(&self, tensor: usize) -> Address {
        self.blocks[tensor].address()
    }

    /// `Args` of the oracle. `scratch` is where a check's words lie; `ask` concerns tensor `of`, the others tally.
    fn args(&self, scratch: Address, of: Option<usize>, ask: Ask) -> Vec<u64> {
        let input = |name: &str| {
            let i = self.specs.iter().position(|s| s.name == name).expect("a tensor of the case");
            self.pristine[i].as_ref().map_or_else(|| address(&self.buffers, name), |p| p.address)
        };
        let mut words = pack(self.op, &self.case, &self.slots, For::Oracle, &input, self.oracle.workspace.address);
        let (layout, word) = (self.layout(), |at: usize| scratch + 8 * at as u64);
        words.extend([self.seed, word(layout.property())]);
        for slot in self.slots.iter().filter(|s| s.may_be_output) {
            let found = self.specs.iter().position(|s| s.name == slot.name && s.role.is_output());
            let Some(t) = found else {
                words.extend([0; 15]);
                continue;
            };
            let ask = if of.is_none_or(|of| of == t) { ask } else { Ask::Tally };
            let (mode, ratio, region, dump) = match ask {
                Ask::Tally => (0, 0, 0, [0; 4]),
                Ask::Find { ratio, region } => (1, ratio, region as u64, [0; 4]),
                Ask::Tell => (2, 0, 0, [0; 4]),
                Ask::Dump { expect, slack, loose, region } => (3, 0, 0, [expect, slack, loose, region]),
            };
            let spec = &self.specs[t];
            words.extend([self.at(t), spec.row_len() as u64, spec.pitch as u64]);
            let places = [layout.output(t), layout.rows(t), layout.index(t), layout.told(t), layout.excess(t, 0)];
            words.extend(places.map(word));
            words.extend(dump);
            words.extend([ratio, mode, region]);
        }
        words
    }

    /// Runs the oracle over scratch memory that begins as `words`; what it has become.
    pub(super) fn judge(&self, words: &[u64], of: Option<usize>, ask: Ask) -> Result<Vec<u64>, Fault> {
        let scratch = self.cuda.scratch(words.len() * 8)?;
        scratch.upload(bytemuck::cast_slice(words))?;
        if of.is_none() && ask == Ask::Tally {
            self.look_at_bounds(scratch.address)?;
            self.look_at_inputs(scratch.address)?;
        }
        let mut args = self.args(scratch.address, of, ask);
        for step in &self.oracle.kernels {
            step.launch(self.cuda.queue(), &mut args, &mut [])?;
        }
        scratch.download_first(words.len())
    }

    /// Guards and gaps into the scratch memory. Gaps of inputs are inputs.
    fn look_at_bounds(&self, scratch: Address) -> Result<(), Fault> {
        let (engine, layout) = (self.cuda.engine(), self.layout());
        for (t, spec) in self.specs.iter().enumerate() {
            let found = |which| scratch + 8 * layout.found(t, which) as u64;
            for (which, (from, bytes)) in self.blocks[t].guards().into_iter().enumerate() {
                engine.find_other(from, bytes, found(which))?;
            }
            if spec.role.is_output() {
                let old = self.pristine[t].as_ref().map(|old| old.address);
                engine.find_gaps(spec, self.at(t), old, found(2))?;
            }
        }
        Ok(())
    }

    /// Hashes of the inputs into the scratch memory.
    fn look_at_inputs(&self, scratch: Address) -> Result<(), Fault> {
        let layout = self.layout();
        for (t, spec) in self.specs.iter().enumerate().filter(|(_, s)| s.role == Role::In) {
            self.cuda.engine().hash(self.at(t), spec.bytes(), scratch + 8 * layout.hash(t) as u64)?;
        }
        Ok(())
    }

    /// What was written beside the tensors.
    fn beside(&self, words: &[u64]) -> Vec<String> {
        let (layout, mut problems) = (self.layout(), Vec::new());
        let found = |t, which| {
            let at = layout.found(t, which);
            (words[at + 2] > 0).then_some((words[at], words[at + 1]))
        };
        for (t, spec) in self.specs.iter().enumerate() {
            let name = spec.name;
            if let Some((_, highest)) = found(t, 0) {
                let ago = extent(spec).0 as u64 - highest;
                problems.push(format!("memory was written {ago} bytes before the start of {name}"));
            }
            if let Some((lowest, _)) = found(t, 1) {
                problems.push(format!("memory was written {} bytes past the end of {name}", lowest + 1));
            }
            if let Some((row, _)) = found(t, 2) {
                problems.push(format!("memory was written between the rows of {name}, behind row {row}"));
            }
        }
        problems
    }

    fn changed_inputs(&self, words: &[u64]) -> Vec<String> {
        let (layout, inputs) = (self.layout(), self.specs.iter().enumerate().filter(|(_, s)| s.role == Role::In));
        let changed = inputs.filter(|(t, _)| words[layout.hash(*t)..][..2] != self.hashes[*t]);
        changed.map(|(_, spec)| format!("input {} was changed", spec.name)).collect()
    }

    /// The tallies of a check as the gate of the host would have them, the worst elements looked up where there is
    /// something to report.
    fn findings(&self, words: &[u64]) -> Result<Findings, Fault> {
        let (layout, sums) = (self.layout(), row_sums((self.op.invariants)(&self.case)));
        let mut all = Findings::new(self.specs.len(), layout.regions, sums.len());
        for (t, spec) in self.specs.iter().enumerate().filter(|(_, s)| s.role.is_output()) {
            for region in 0..layout.regions {
                let (seen, mut tally) = self.tally(words, t, region);
                all.seen[t] += seen;
                if tally.grade(spec).is_none() {
                    let score = &mut tally.scores[Grade::Loose as usize];
                    let ratio = score.worst.to_bits();
                    score.worst_at = self.worst_at(t, Ask::Find { ratio, region })?;
                }
                all.tallies[t * layout.regions + region] = tally;
            }
            if all.seen[t] != spec.elems() as u64 {
                let message =
                    format!("the oracle spoke of {} of {} elements of {}", all.seen[t], spec.elems(), spec.name);
                return Err(Fault::new(Status::Crashed, message));
            }
        }
        for (bad, (tensor, _)) in all.bad_rows.iter_mut().zip(&sums) {
            let Some(t) = self.specs.iter().position(|s| s.name == *tensor) else { continue };
            let at = layout.rows(t);
            if words[at] > 0 {
                let mut fresh = layout.fresh();
                fresh[at + 1] = words[at + 1];
                let told = self.judge(&fresh, Some(t), Ask::Tell)?;
                let number = |i: usize| f64::from_bits(told[layout.told(t) + i]);
                *bad = BadRows { count: words[at], first: Some((words[at + 1] as usize, number(3), number(4))) };
            }
        }
        Ok(all)
    }

    fn tally(&self, words: &[u64], tensor: usize, region: usize) -> (u64, Tally) {
        let (layout, mut seen, mut sum) = (self.layout(), 0, Tally::default());
        for slot in 0..SLOTS {
            let at = layout.output(tensor) + (slot * layout.regions + region) * TALLY;
            let (w, number) = (&words[at..at + TALLY], |i: usize| f64::from_bits(words[at + i]));
            seen += w[0];
            sum.elements += w[1];
            sum.err2 += number(2);
            sum.twin2 += number(3);
            sum.expect2 += number(4);
            sum.allowed2 += number(5);
            sum.allowed4 += number(6);
            for (score, at) in sum.scores.iter_mut().zip([7, 10]) {
                score.beyond += w[at];
                score.worst = score.worst.max(number(at + 1));
                score.slack2 += number(at + 2);
            }
        }
        for (grade, score) in sum.scores.iter_mut().enumerate() {
            let at = layout.excess(tensor, grade);
            let places = &words[at + 1..][..(words[at] as usize).min(PLACES)];
            // The region stands in the highest byte.
            let here = places.iter().filter(|p| (*p >> 56) as usize == region);
            score.places = here.map(|p| p & (u64::MAX >> 8)).collect();
        }
        (seen, sum)
    }

    /// Where the worst element is, what it is and what it should be.
    fn worst_at(&self, tensor: usize, find: Ask) -> Result<Option<Element>, Fault> {
        let layout = self.layout();
        let index = self.judge(&layout.fresh(), Some(tensor), find)?[layout.index(tensor)];
        if index == u64::MAX {
            return Ok(None);
        }
        let mut fresh = layout.fresh();
        fresh[layout.index(tensor)] = index;
        let told = self.judge(&fresh, Some(tensor), Ask::Tell)?;
        let number = |i: usize| f64::from_bits(told[layout.told(tensor) + i]);
        Ok(Some(Element { index: index as usize, got: number(0), expect: number(1), allowed: number(2) }))
    }
}

impl Workload for GpuWorkload {
    fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    fn refill(&mut self, seed: u64) -> Result<(), Fault> {
        self.seed = seed;
        let engine = self.cuda.engine();
        let filled = Case { seed, ..self.case.clone() };
        // Tables and lengths follow from the seed alone, and what a user's op derives no kernel knows: the host makes them.
        let by_host = |s: &TensorSpec| s.fill == Fill::Derived && (!s.dtype.is_float() || self.op.judge.is_some());
        for (t, spec) in self.specs.iter().enumerate().filter(|(_, s)| s.role.is_input()) {
            if spec.fill != Fill::Derived {
                engine.fill(spec, seed, self.at(t))?;
            } else if by_host(spec) {
                let view = View { specs: &self.specs, bytes: vec![None; self.specs.len()] };
                derive(self.op, &filled, &view, t, &mut self.buffers.0[t].write::<u8>());
            } else {
                engine.fill_gaps(spec, self.at(t), GAP_BYTE)?;
            }
        }
        let mut args = self.args(0, None, Ask::Tally);
        for (t, spec) in self.specs.iter().enumerate() {
            if spec.fill != Fill::Derived || by_host(spec) {
                continue;
            }
            let mut steps = self.oracle.derives.iter().filter(|(name, _)| name == spec.name).peekable();
            if steps.peek().is_none() {
                let message = format!("the oracle of {} derives no {} ({t})", self.op.name, spec.name);
                return Err(Fault::new(Status::BuildFailed, message));
            }
            steps.try_for_each(|(_, step)| step.launch(self.cuda.queue(), &mut args, &mut []))?;
        }
        let sums = Raw::new(self.cuda.queue(), self.specs.len() * 16)?;
        self.cuda.queue().set(sums.address, 0, sums.bytes)?;
        for (t, spec) in self.specs.iter().enumerate() {
            match &self.pristine[t] {
                Some(kept) => self.cuda.queue().copy(kept.address, self.at(t), spec.bytes())?,
                None if spec.role == Role::In => engine.hash(self.at(t), spec.bytes(), sums.address + 16 * t as u64)?,
                None => {}
            }
        }
        self.hashes = sums.download()?;
        Ok(())
    }

    fn reset(&self) -> Result<(), Fault> {
        self.restore()?;
        for (t, spec) in self.specs.iter().enumerate().filter(|(_, s)| s.role == Role::Out) {
            self.cuda.engine().poison(spec, self.at(t))?;
        }
        Ok(())
    }

    fn restore(&self) -> Result<(), Fault> {
        for (t, spec) in self.specs.iter().enumerate() {
            if let Some(kept) = &self.pristine[t] {
                self.cuda.queue().copy(self.at(t), kept.address, spec.bytes())?;
            }
        }
        Ok(())
    }

    fn elsewhere(&self) -> Result<(), Fault> {
        self.blocks.iter().try_for_each(|b| b.elsewhere())
    }

    fn is_in_place(&self) -> bool {
        self.pristine.iter().any(Option::is_some)
    }

    fn check(&self) -> Result<Verify, Fault> {
        self.cuda.wait()?; // a launch that failed says so before anything else does
        let words = self.judge(&self.layout().fresh(), None, Ask::Tally)?;
        let mut problems = self.beside(&words);
        let changed = self.changed_inputs(&words);
        if !changed.is_empty() {
            // The oracle reads the inputs where they lie; without them there is nothing to compare with.
            problems.extend(changed);
            return Ok(Verify { checks: 1, problems, ..Verify::default() });
        }
        if let Some(judge) = self.op.judge {
            let copies: Vec<_> =
                self.buffers.0.iter().map(|b| b.spec().role.is_output().then(|| b.read::<u8>())).collect();
            let outputs = View { specs: &self.specs, bytes: copies.iter().map(|c| c.as_deref()).collect() };
            return judged_elsewhere(judge, &self.case, self.seed, &outputs, problems);
        }
        let sums = row_sums((self.op.invariants)(&self.case));
        let mut verify = self.findings(&words)?.verify(&self.specs, self.op.regions, &sums);
        let broken = &words[self.layout().property()..][..2];
        if broken[0] > 0 {
            let message = format!("{} elements break a property of the op; the first is {}", broken[0], broken[1]);
            verify.problems.push(message);
        }
        verify.add_problems(problems);
        Ok(verify)
    }

    fn oversteps(&self) -> Result<Vec<String>, Fault> {
        let (words, end) = (self.layout().fresh(), self.layout().end_of_findings());
        let scratch = self.cuda.scratch(words.len() * 8)?;
        scratch.upload(bytemuck::cast_slice(&words[..end]))?;
        self.look_at_bounds(scratch.address)?;
        Ok(self.beside(&scratch.download_first(end)?))
    }

    fn disguise(&self, look: Look) -> Result<(), Fault> {
        self.restore().and_then(|()| self.disguise_outputs(look))
    }
    fn keep(&self) -> Result<Kept, Fault> {
        self.rehash(None, Hashing::Keep)
    }
    fn compare(&self, kept: &Kept, look: Look) -> Result<u64, Fault> {
        self.compare_hashes(kept, look).map(|()| 0)
    }
    fn renew(&self, kept: &Kept) -> Result<Kept, Fault> {
        self.rehash(Some(kept), Hashing::Renew)
    }
    fn loosen(&self, kept: &Kept) -> Result<Kept, Fault> {
        self.rehash(Some(kept), Hashing::Loosen)
    }
    fn glance(&self, word: u64) -> Result<Vec<f64>, Fault> {
        self.glance_at_outputs(word)
    }
}
