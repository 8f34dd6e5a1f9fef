//! A case laid out in a device's memory: inputs filled, outputs poisoned, and the check of what a launch left behind. Each
//! kind of device keeps workloads in its own way; what a workload is stands here.

use crate::buffer::Buffers;
use crate::decoy::{Look, unforeseen};
use crate::{Built, Device, Fault, Impl};
use kmark_core::case::Case;
use kmark_core::gate::Verify;
use kmark_core::inputs::GAP_BYTE;
use kmark_core::op::{Judge, Op, by_rows};
use kmark_core::record::Status;
use kmark_core::tensor::{Role, TensorSpec, View};
use std::any::Any;
use std::ops::Range;

pub trait Workload {
    fn buffers(&self) -> &Buffers;
    /// Fresh input values; pure outputs stay as they are.
    fn refill(&mut self, seed: u64) -> Result<(), Fault>;
    /// Puts in-place tensors back and poisons the pure outputs: nothing of an earlier launch is left to be found.
    fn reset(&self) -> Result<(), Fault>;
    /// Puts in-place tensors back.
    fn restore(&self) -> Result<(), Fault>;
    /// The same at the same addresses, but elsewhere in the device's memory, where that makes a difference.
    fn elsewhere(&self) -> Result<(), Fault> {
        Ok(())
    }
    /// Whether a launch overwrites one of its inputs.
    fn is_in_place(&self) -> bool;
    /// Judges what the last launch left: guard bands, untouched inputs, and every element of every output.
    fn check(&self) -> Result<Verify, Fault>;
    /// What was written where nobody may write, before, behind or between the rows of a tensor; empty if nothing was.
    fn oversteps(&self) -> Result<Vec<String>, Fault>;
    /// Puts in-place tensors back and gives part of the pure outputs wrong values that look like right ones.
    fn disguise(&self, look: Look) -> Result<(), Fault>;
    /// Keeps what the outputs hold now, as the answer that later launches are held to.
    fn keep(&self) -> Result<Kept, Fault>;
    /// Holds part of the outputs against the kept answer: how many pieces differ. A GPU only enqueues it, and its next
    /// [`Sample`](crate::Sample) tells.
    fn compare(&self, kept: &Kept, look: Look) -> Result<u64, Fault>;
    /// The same for what the outputs hold now, as other values gave it; pieces that might differ still may.
    fn renew(&self, kept: &Kept) -> Result<Kept, Fault>;
    /// Pieces that differ now may do so from now on.
    fn loosen(&self, kept: &Kept) -> Result<Kept, Fault>;
    /// Some elements of the outputs, always the same for the same word.
    fn glance(&self, word: u64) -> Result<Vec<f64>, Fault>;
}

/// Hashes of the pieces of every output, where and as the kind of workload keeps them; 0: the piece may hold anything.
pub struct Kept(pub Box<dyn Any>);

impl Kept {
    /// As the kind that kept it knows it.
    pub fn get<K: 'static>(&self) -> &K {
        self.0.downcast_ref().expect("kept by a workload of this kind")
    }
}

/// Elements of each output that a glance takes.
pub const GLANCE: usize = 4096;

/// Launches after the first whose bits are looked at, of a case that asks for the same ones.
const REPEATS: usize = 4;

/// Of an impl whose results are right, but not always the same where the case asks for that.
pub(crate) fn other_bits() -> Fault {
    let message = "two launches left different bits; with deterministic=yes all must leave the same";
    Fault::new(Status::Inconsistent, message.to_string())
}

/// Memory that a workload of this case takes beside small change.
pub fn bytes(op: &Op, case: &Case) -> u64 {
    let twice = |t: &TensorSpec| if t.role == Role::InOut { 2 } else { 1 };
    op.tensors(case).iter().map(|t| t.bytes() as u64 * twice(t)).sum()
}

/// Verifies an impl on fresh memory: two or more launches of one binding, each with fresh values and poisoned outputs, so
/// that an output kept from an earlier launch, or from earlier values behind the same pointers, is caught; as many as
/// show every kind of row to it.
pub fn verify(device: &dyn Device, op: &'static Op, imp: &dyn Impl, case: &Case) -> Result<Verify, Fault> {
    verify_on(device, op, imp, case, 0..op.checks(case)).map(|(verify, _)| verify)
}

/// The same on some of the case's sets of values, and what was built for it.
pub fn verify_on(
    device: &dyn Device,
    op: &'static Op,
    imp: &dyn Impl,
    case: &Case,
    mut sets: Range<u64>,
) -> Result<(Verify, Built), Fault> {
    let first = sets.next().unwrap_or(0);
    let mut workload = device.workload(op, case, op.value_seed(case, first))?;
    let mut launch = imp.bind(device, op, case, workload.buffers())?;
    workload.reset()?; // binding may have tried itself out
    launch.launch()?;
    launch.settle()?;
    let mut verify = workload.check()?;
    for set in sets {
        if !verify.ok() {
            break;
        }
        workload.refill(op.value_seed(case, set))?;
        workload.reset()?;
        launch.refresh()?;
        launch.launch()?;
        launch.settle()?;
        verify.merge(workload.check()?);
    }
    if verify.ok() && case.repeats_bits() {
        let look = |w: &dyn Workload, word| Ok(w.glance(word)?.into_iter().map(f64::to_bits).collect::<Vec<_>>());
        let word = unforeseen();
        let known = look(&*workload, word)?;
        for _ in 0..REPEATS {
            workload.reset()?;
            launch.launch()?;
            launch.settle()?;
            if look(&*workload, word)? != known {
                return Err(other_bits());
            }
        }
    }
    if verify.ok() {
        workload.reset()?;
        device.check_order(&mut *launch, workload.buffers())?;
    }
    Ok((verify, launch.built()))
}

/// The word of who knows what is right, for an op whose truth is not in this program; `problems` are what is wrong beside
/// the outputs' values.
pub(crate) fn judged_elsewhere(
    judge: Judge,
    case: &Case,
    seed: u64,
    outputs: &View,
    problems: Vec<String>,
) -> Result<Verify, Fault> {
    let filled = Case { seed, ..case.clone() };
    let mut verify = judge(&filled, outputs).map_err(|why| Fault::new(Status::Unavailable, why))?;
    verify.add_problems(problems);
    Ok(verify)
}

/// Computes the derived input number `target` into its memory; `view` holds what it is derived from.
pub fn derive(op: &Op, case: &Case, view: &View, target: usize, memory: &mut [u8]) {
    let spec = &view.specs[target];
    let row = if spec.shape.len() > 1 { spec.row_len() } else { 1 };
    let m = spec.elems() / row.max(1);
    // The work per row is the width of the widest tensor, not of the derived one.
    let width = view.specs.iter().map(|s| s.elems() / m.max(1)).max().unwrap_or(1);
    if spec.pitch > spec.row_len() {
        memory.fill(GAP_BYTE);
    }
    let out = std::sync::Mutex::new(memory);
    by_rows(m, width, |rows| {
        let mut values = vec![0.0; rows.len() * row];
        (op.derive)(case, spec.name, view, rows.clone(), &mut values);
        spec.write(&values, rows.start * row, &mut out.lock().expect("no panic while deriving"));
    });
}
