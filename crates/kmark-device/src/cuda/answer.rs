//! Known answers on a GPU: outputs are given wrong values, hashed, and held against the hashes of a launch that was judged,
//! all by kernels of the engine. What differs is counted where the engine's stamps lie, and read with them.

use super::driver::Address;
use super::engine::{Hashing, Strided};
use super::memory::Raw;
use super::workload::GpuWorkload;
use crate::Fault;
use crate::decoy::{Look, PIECE};
use crate::workload::{GLANCE, Kept};
use kmark_core::tensor::{Role, TensorSpec};

impl GpuWorkload {
    fn outputs(&self) -> impl Iterator<Item = (usize, &TensorSpec, Strided)> {
        let outputs = self.specs.iter().enumerate().filter(|(_, s)| s.role.is_output());
        outputs.map(|(t, spec)| (t, spec, Strided::of(spec, self.at(t))))
    }

    pub(super) fn disguise_outputs(&self, look: Look) -> Result<(), Fault> {
        let mut pure = self.outputs().filter(|(_, s, _)| s.role == Role::Out);
        pure.try_for_each(|(t, spec, at)| self.cuda.engine().disguise(at, look.pieces(t, spec.bytes()), look.word))
    }

    /// Hashes of what the outputs hold, or what becomes of the kept ones by it.
    pub(super) fn rehash(&self, kept: Option<&Kept>, what: Hashing) -> Result<Kept, Fault> {
        let mut all: Vec<Option<Raw>> = self.specs.iter().map(|_| None).collect();
        for (t, spec, at) in self.outputs() {
            let hashes = Raw::new(self.cuda.queue(), (spec.bytes().div_ceil(PIECE) * 8).max(8))?;
            if let Some(kept) = kept {
                self.cuda.queue().copy(hashes.address, address(kept, t), hashes.bytes)?;
            }
            let whole = Look::whole().pieces(t, spec.bytes());
            self.cuda.engine().hash_pieces(at, whole, hashes.address, what)?;
            all[t] = Some(hashes);
        }
        Ok(Kept(Box::new(all)))
    }

    pub(super) fn compare_hashes(&self, kept: &Kept, look: Look) -> Result<(), Fault> {
        self.outputs().try_for_each(|(t, spec, at)| {
            let pieces = look.pieces(t, spec.bytes());
            self.cuda.engine().hash_pieces(at, pieces, address(kept, t), Hashing::Compare)
        })
    }

    pub(super) fn glance_at_outputs(&self, word: u64) -> Result<Vec<f64>, Fault> {
        let seen = Raw::new(self.cuda.queue(), self.specs.len() * GLANCE * 8)?;
        let mut count = 0;
        for (_, _, at) in self.outputs() {
            self.cuda.engine().glance(at, word, GLANCE, seen.address + (count * GLANCE * 8) as u64)?;
            count += 1;
        }
        let mut values: Vec<f64> = seen.download()?;
        values.truncate(count * GLANCE);
        Ok(values)
    }
}

/// Where the hashes of an output lie.
fn address(kept: &Kept, tensor: usize) -> Address {
    kept.get::<Vec<Option<Raw>>>()[tensor].as_ref().expect("of an output").address
}
