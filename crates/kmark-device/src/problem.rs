//! A case laid out in memory: inputs filled, outputs poisoned, and the check of what a launch left behind.
//!
//! Holds the tensors once, plus one copy of those that the op changes in place; the oracle streams through the gate in
//! small blocks, so that verifying never needs more than about twice the tensors' own memory.

use crate::buffer::Buffers;
use crate::{Device, Fault, Impl};
use kmark_core::case::Case;
use kmark_core::fill::{Fill, GAP_BYTE, fill};
use kmark_core::gate::{Gate, Verify};
use kmark_core::op::{Op, by_rows};
use kmark_core::tensor::{Role, TensorSpec, View};
use std::ops::Range;

pub struct Problem {
    op: &'static dyn Op,
    case: Case,
    specs: Vec<TensorSpec>,
    pub buffers: Buffers,
    /// What an in-place tensor held before the launch.
    pristine: Vec<Option<Vec<u8>>>,
    /// Hashes of the pure inputs, to see whether a launch changed one.
    hashes: Vec<Option<blake3::Hash>>,
}

impl Problem {
    /// Memory that a problem of this case takes beside small change.
    pub fn bytes(op: &dyn Op, case: &Case) -> u64 {
        let twice = |t: &TensorSpec| if t.role == Role::InOut { 2 } else { 1 };
        op.tensors(case).iter().map(|t| t.bytes() as u64 * twice(t)).sum()
    }

    pub fn new(device: &dyn Device, op: &'static dyn Op, case: &Case, seed: u64) -> Result<Problem, Fault> {
        let specs = op.tensors(case);
        let buffers = specs.iter().map(|s| device.alloc(s)).collect::<Result<Vec<_>, _>>()?;
        let mut problem = Problem {
            op,
            case: case.clone(),
            pristine: vec![None; specs.len()],
            hashes: vec![None; specs.len()],
            specs,
            buffers: Buffers(buffers),
        };
        problem.refill(seed);
        Ok(problem)
    }

    /// Fresh input values, then as [`Problem::reset`].
    pub fn refill(&mut self, seed: u64) {
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
        self.reset();
    }

    fn derive(&self, target: usize, case: &Case) {
        let spec = &self.specs[target];
        let known = |i: usize, s: &TensorSpec| s.role.is_input() && (s.fill != Fill::Derived || i < target);
        let guards: Vec<_> = (self.specs.iter().zip(&self.buffers.0).enumerate())
            .map(|(i, (s, b))| known(i, s).then(|| b.read::<u8>()))
            .collect();
        let view = View { specs: &self.specs, bytes: guards.iter().map(|g| g.as_deref()).collect() };
        let row = if spec.shape.len() > 1 { spec.row_len() } else { 1 };
        let m = spec.elems() / row.max(1);
        // The work per row is the width of the widest tensor, not of the derived one.
        let width = self.specs.iter().map(|s| s.elems() / m.max(1)).max().unwrap_or(1);
        let mut memory = self.buffers.0[target].write::<u8>();
        if spec.pitch > spec.row_len() {
            memory.fill(GAP_BYTE);
        }
        let out = std::sync::Mutex::new(&mut *memory);
        by_rows(m, width, |rows| {
            let mut values = vec![0.0; rows.len() * row];
            self.op.derive(case, spec.name, &view, rows.clone(), &mut values);
            spec.write(&values, rows.start * row, &mut out.lock().expect("no panic while deriving"));
        });
    }

    /// Puts in-place tensors back and poisons the pure outputs: nothing of an earlier launch is left to be found.
    pub fn reset(&self) {
        self.restore();
        for (spec, buffer) in self.specs.iter().zip(&self.buffers.0) {
            if spec.role == Role::Out {
                buffer.poison();
            }
        }
    }

    /// Puts in-place tensors back.
    pub fn restore(&self) {
        for (buffer, pristine) in self.buffers.0.iter().zip(&self.pristine) {
            if let Some(bytes) = pristine {
                buffer.write::<u8>().copy_from_slice(bytes);
            }
        }
    }

    /// Whether a launch overwrites one of its inputs.
    pub fn is_in_place(&self) -> bool {
        self.pristine.iter().any(|p| p.is_some())
    }

    /// Judges what the last launch left: guard bands, untouched inputs, and every element of every output.
    pub fn check(&self) -> Verify {
        let mut problems: Vec<String> = self.buffers.0.iter().filter_map(|b| b.check_guards().err()).collect();
        let guards: Vec<_> = self.buffers.0.iter().map(|b| b.read::<u8>()).collect();
        for ((spec, bytes), known) in self.specs.iter().zip(&guards).zip(&self.hashes) {
            if known.is_some_and(|known| known != hash(bytes)) {
                problems.push(format!("input {} was changed", spec.name));
            }
        }
        for ((spec, bytes), before) in self.specs.iter().zip(&guards).zip(&self.pristine) {
            let changed = |gap: &Range<usize>| before.as_ref().is_some_and(|b| b[gap.clone()] != bytes[gap.clone()]);
            if let Some(row) = spec.gaps().position(|gap| changed(&gap)) {
                problems.push(format!("memory was written between the rows of {}, behind row {row}", spec.name));
            }
        }
        if problems.iter().any(|p| p.starts_with("input ")) {
            // The oracle reads the inputs where they lie; without them there is nothing to compare with.
            return Verify { checks: 1, problems, ..Verify::default() };
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
        let gate = Gate::new(&outputs, self.op.regions(), self.op.invariants(&self.case));
        self.op.oracle(&self.case, &inputs, &gate);
        let mut verify = gate.finish();
        verify.problems.extend(self.op.properties(&self.case, &inputs, &outputs));
        verify.problems.splice(0..0, problems);
        verify
    }
}

/// Verifies an impl on fresh memory: two launches of one binding, each with fresh values and poisoned outputs, so that
/// an output kept from an earlier launch, or from earlier values behind the same pointers, is caught.
pub fn verify(device: &dyn Device, op: &'static dyn Op, imp: &dyn Impl, case: &Case) -> Result<Verify, Fault> {
    let mut problem = Problem::new(device, op, case, case.seed)?;
    let mut launch = imp.bind(device, case, &problem.buffers)?;
    launch.launch()?;
    let mut verify = problem.check();
    if verify.ok() {
        problem.refill(!case.seed);
        launch.launch()?;
        verify.merge(problem.check());
    }
    Ok(verify)
}

fn hash(bytes: &[u8]) -> blake3::Hash {
    blake3::hash(bytes)
}
