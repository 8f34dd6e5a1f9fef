//! A case laid out in host memory, judged by the op's own oracle.
//!
//! Holds the tensors once, plus one copy of those that the op changes in place; the oracle streams through the gate in
//! small blocks, so that verifying never needs more than about twice the tensors' own memory.

use crate::Fault;
use crate::buffer::{Buffer, Buffers};
use crate::decoy::{self, Look};
use crate::workload::{GLANCE, Kept, Workload, derive, judged_elsewhere};
use kmark_core::case::Case;
use kmark_core::fill::Fill;
use kmark_core::gate::{Gate, Verify};
use kmark_core::inputs::fill;
use kmark_core::op::Op;
use kmark_core::record::Status;
use kmark_core::tensor::{Role, TensorSpec, View};

pub struct HostWorkload {
    op: &'static Op,
    case: Case,
    specs: Vec<TensorSpec>,
    buffers: Buffers,
    /// What an in-place tensor held before the launch.
    pristine: Vec<Option<Vec<u8>>>,
    /// Hashes of the pure inputs, to see whether a launch changed one.
    hashes: Vec<Option<blake3::Hash>>,
    seed: u64,
}

impl HostWorkload {
    pub fn new(op: &'static Op, case: &Case, seed: u64) -> Result<HostWorkload, Fault> {
        let specs = op.tensors(case);
        let no_memory =
            |s: &TensorSpec| Fault::new(Status::OutOfMemory, format!("no memory for {} ({} bytes)", s.name, s.bytes()));
        let buffers =
            specs.iter().map(|s| Buffer::host(s).ok_or_else(|| no_memory(s))).collect::<Result<Vec<_>, _>>()?;
        let mut workload = HostWorkload {
            op,
            case: case.clone(),
            pristine: vec![None; specs.len()],
            hashes: vec![None; specs.len()],
            specs,
            buffers: Buffers(buffers),
            seed,
        };
        workload.refill(seed)?;
        workload.reset()?;
        Ok(workload)
    }

    fn derive(&self, target: usize, case: &Case) {
        let known = |i: usize, s: &TensorSpec| s.role.is_input() && (s.fill != Fill::Derived || i < target);
        let guards: Vec<_> = (self.specs.iter().zip(&self.buffers.0).enumerate())
            .map(|(i, (s, b))| known(i, s).then(|| b.read::<u8>()))
            .collect();
        let view = View { specs: &self.specs, bytes: guards.iter().map(|g| g.as_deref()).collect() };
        derive(self.op, case, &view, target, &mut self.buffers.0[target].write::<u8>());
    }

    fn outputs(&self) -> impl Iterator<Item = (usize, &TensorSpec, &Buffer)> {
        let all = self.specs.iter().zip(&self.buffers.0).enumerate();
        all.filter(|(_, (s, _))| s.role.is_output()).map(|(t, (s, b))| (t, s, b))
    }

    /// The kept hashes, each changed by `f(kept, now)`.
    fn rehash(&self, kept: &Kept, f: impl Fn(u64, u64) -> u64) -> Result<Kept, Fault> {
        let kept: &Vec<Vec<u64>> = kept.get();
        let mut kept = kept.clone();
        for (t, _, buffer) in self.outputs() {
            let now = decoy::hashes(&buffer.read::<u8>());
            kept[t].iter_mut().zip(now).for_each(|(kept, now)| *kept = f(*kept, now));
        }
        Ok(Kept(Box::new(kept)))
    }
}

impl Workload for HostWorkload {
    fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    fn refill(&mut self, seed: u64) -> Result<(), Fault> {
        self.seed = seed;
        for (i, spec) in self.specs.iter().enumerate() {
            if spec.role.is_input() && spec.fill != Fill::Derived {
                fill(spec, seed, &mut self.buffers.0[i].write::<u8>());
            }
        }
        let filled = Case { seed, ..self.case.clone() };
        for i in 0..self.specs.len() {
            if self.specs[i].fill == Fill::Derived {
                self.derive(i, &filled);
            }
        }
        for (i, spec) in self.specs.iter().enumerate() {
            let bytes = self.buffers.0[i].read::<u8>();
            match spec.role {
                Role::In => self.hashes[i] = Some(hash(&bytes)),
                Role::InOut => self.pristine[i] = Some(bytes.to_vec()),
                Role::Out => {}
            }
        }
        Ok(())
    }

    fn reset(&self) -> Result<(), Fault> {
        self.restore()?;
        for (spec, buffer) in self.specs.iter().zip(&self.buffers.0) {
            if spec.role == Role::Out {
                buffer.poison();
            }
        }
        Ok(())
    }

    fn restore(&self) -> Result<(), Fault> {
        for (buffer, pristine) in self.buffers.0.iter().zip(&self.pristine) {
            if let Some(bytes) = pristine {
                buffer.write::<u8>().copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn is_in_place(&self) -> bool {
        self.pristine.iter().any(|p| p.is_some())
    }

    fn check(&self) -> Result<Verify, Fault> {
        let mut problems = self.oversteps()?;
        let guards: Vec<_> = self.buffers.0.iter().map(|b| b.read::<u8>()).collect();
        for ((spec, bytes), known) in self.specs.iter().zip(&guards).zip(&self.hashes) {
            if known.is_some_and(|known| known != hash(bytes)) {
                problems.push(format!("input {} was changed", spec.name));
            }
        }
        if problems.iter().any(|p| p.starts_with("input ")) {
            // The oracle reads the inputs where they lie; without them there is nothing to compare with.
            return Ok(Verify { checks: 1, problems, ..Verify::default() });
        }
        let view = |keep: &dyn Fn(usize) -> bool, pristine: bool| View {
            specs: &self.specs,
            bytes: (0..self.specs.len())
                .map(|i| match &self.pristine[i] {
                    _ if !keep(i) => None,
                    Some(before) if pristine => Some(before.as_slice()),
                    _ => Some(&*guards[i]),
                })
                .collect(),
        };
        let inputs = view(&|i| self.specs[i].role.is_input(), true);
        let outputs = view(&|i| self.specs[i].role.is_output(), false);
        if let Some(judge) = self.op.judge {
            return judged_elsewhere(judge, &self.case, self.seed, &outputs, problems);
        }
        let gate = Gate::new(&outputs, self.op.regions, (self.op.invariants)(&self.case));
        (self.op.oracle)(&self.case, &inputs, &gate);
        let mut verify = gate.finish();
        verify.problems.extend((self.op.properties)(&self.case, &inputs, &outputs));
        verify.add_problems(problems);
        Ok(verify)
    }

    fn oversteps(&self) -> Result<Vec<String>, Fault> {
        let mut problems: Vec<String> = self.buffers.0.iter().filter_map(|b| b.check_guards().err()).collect();
        for ((spec, buffer), before) in self.specs.iter().zip(&self.buffers.0).zip(&self.pristine) {
            let Some(before) = before else { continue };
            let bytes = buffer.read::<u8>();
            if let Some(row) = spec.gaps().position(|gap| before[gap.clone()] != bytes[gap]) {
                problems.push(format!("memory was written between the rows of {}, behind row {row}", spec.name));
            }
        }
        Ok(problems)
    }

    fn disguise(&self, look: Look) -> Result<(), Fault> {
        self.restore()?;
        for (t, spec, buffer) in self.outputs().filter(|(_, s, _)| s.role == Role::Out) {
            decoy::disguise(spec, &mut buffer.write::<u8>(), &look.pieces(t, spec.bytes()), look.word);
        }
        Ok(())
    }

    fn keep(&self) -> Result<Kept, Fault> {
        let mut kept = vec![Vec::new(); self.specs.len()];
        self.outputs().for_each(|(t, _, buffer)| kept[t] = decoy::hashes(&buffer.read::<u8>()));
        Ok(Kept(Box::new(kept)))
    }

    fn compare(&self, kept: &Kept, look: Look) -> Result<u64, Fault> {
        let kept: &Vec<Vec<u64>> = kept.get();
        let differing = |(t, spec, buffer): (usize, &TensorSpec, &Buffer)| {
            decoy::differing(&buffer.read::<u8>(), &kept[t], &look.pieces(t, spec.bytes()))
        };
        Ok(self.outputs().map(differing).sum())
    }

    fn renew(&self, kept: &Kept) -> Result<Kept, Fault> {
        self.rehash(kept, |kept, now| if kept == 0 { 0 } else { now })
    }

    fn loosen(&self, kept: &Kept) -> Result<Kept, Fault> {
        self.rehash(kept, |kept, now| if kept == now { kept } else { 0 })
    }

    fn glance(&self, word: u64) -> Result<Vec<f64>, Fault> {
        let mut seen = Vec::new();
        for (_, spec, buffer) in self.outputs() {
            let (bytes, mut value) = (buffer.read::<u8>(), [0.0]);
            seen.extend(decoy::glance_at(spec, word, GLANCE).map(|at| {
                spec.read(&bytes, at, &mut value);
                value[0]
            }));
        }
        Ok(seen)
    }
}

fn hash(bytes: &[u8]) -> blake3::Hash {
    blake3::hash(bytes)
}
