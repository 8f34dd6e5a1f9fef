//! Scratch memory of a kernel file, between guard bands: poisoned or zero when the file is bound, and never cleared after that.

use super::Cuda;
use super::driver::{Address, Queue};
use super::memory::Raw;
use crate::buffer::POISON_BYTE;
use crate::{Fault, guard};
use kmark_core::record::Status;
use std::sync::Arc;

pub struct Workspace {
    raw: Raw,
    pub bytes: usize,
    queue: Arc<Queue>,
}

impl Workspace {
    /// `None` for no bytes at all.
    pub fn new(cuda: &Cuda, bytes: usize, zeroed: bool) -> Result<Option<Workspace>, Fault> {
        if bytes == 0 {
            return Ok(None);
        }
        let queue = Arc::clone(cuda.queue());
        let workspace = Workspace { raw: Raw::new(&queue, bytes + 2 * guard::BYTES)?, bytes, queue };
        for address in workspace.bands() {
            let mut band = vec![0; guard::BYTES];
            guard::fill(&mut band, address);
            workspace.queue.upload(address, &band)?;
        }
        workspace.queue.set(workspace.address(), if zeroed { 0 } else { POISON_BYTE }, bytes)?;
        Ok(Some(workspace))
    }

    pub fn address(&self) -> Address {
        self.raw.address + guard::BYTES as u64
    }

    fn bands(&self) -> [Address; 2] {
        [self.raw.address, self.address() + self.bytes as u64]
    }

    /// `Err` if a launch wrote beside it.
    pub fn check(&self) -> Result<(), Fault> {
        for (address, side) in self.bands().into_iter().zip(["before", "behind"]) {
            let mut band = vec![0; guard::BYTES];
            self.queue.download(address, &mut band)?;
            if let Some(place) = guard::others(&band, address).next() {
                let message = format!("writes {side} its workspace of {} bytes (byte {place} of the band)", self.bytes);
                return Err(Fault::new(Status::Wrong, message));
            }
        }
        Ok(())
    }
}
