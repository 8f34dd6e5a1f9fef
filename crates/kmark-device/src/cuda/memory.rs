//! A card's memory for one tensor, with guard bands on both sides as on the host.

use super::driver::{Address, Queue};
use crate::Fault;
use crate::buffer::{GUARD_BYTE, GUARD_BYTES};
use kmark_core::tensor::TensorSpec;
use std::sync::Arc;

/// Plain memory of a card.
pub struct Raw {
    queue: Arc<Queue>,
    pub address: Address,
    pub bytes: usize,
}

impl Raw {
    pub fn new(queue: &Arc<Queue>, bytes: usize) -> Result<Raw, Fault> {
        Ok(Raw { queue: Arc::clone(queue), address: queue.alloc(bytes)?, bytes })
    }

    pub fn upload(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.queue.upload(self.address, &bytes[..bytes.len().min(self.bytes)])
    }

    pub fn download<T: bytemuck::Pod>(&self) -> Result<Vec<T>, Fault> {
        let mut all = vec![T::zeroed(); self.bytes / size_of::<T>()];
        self.queue.download(self.address, bytemuck::cast_slice_mut(&mut all))?;
        Ok(all)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.queue.free(self.address);
    }
}

/// A tensor between its guard bands.
pub struct Block {
    raw: Raw,
    /// Bytes before the tensor.
    before: usize,
    bytes: usize,
}

impl Block {
    pub fn new(queue: &Arc<Queue>, spec: &TensorSpec) -> Result<Block, Fault> {
        let (offset, bytes) = (spec.offset * spec.dtype.size(), spec.bytes());
        // As on the host: whole lines, then the guard.
        let all = (bytes + offset).div_ceil(64) * 64 + 2 * GUARD_BYTES;
        let no_room =
            |f: Fault| Fault::new(f.status, format!("no memory for {} ({bytes} bytes): {}", spec.name, f.message));
        let raw = Raw::new(queue, all).map_err(no_room)?;
        let block = Block { raw, before: GUARD_BYTES + offset, bytes };
        queue.set(block.raw.address, GUARD_BYTE, block.before)?;
        queue.set(block.address() + bytes as u64, GUARD_BYTE, all - block.before - bytes)?;
        Ok(block)
    }

    /// Of the tensor's first element.
    pub fn address(&self) -> Address {
        self.raw.address + self.before as u64
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The guard bands: address and length of each.
    pub fn guards(&self) -> [(Address, usize); 2] {
        let end = self.before + self.bytes;
        [(self.raw.address, self.before), (self.raw.address + end as u64, self.raw.bytes - end)]
    }

    /// Everything, guards included.
    pub fn fetch(&self, all: &mut [u8]) -> Result<(), Fault> {
        assert_eq!(all.len(), self.raw.bytes, "host and card lay tensors out alike");
        self.raw.queue.download(self.raw.address, all)
    }

    /// Puts everything back, guards included.
    pub fn put(&self, all: &[u8]) -> Result<(), Fault> {
        assert_eq!(all.len(), self.raw.bytes, "host and card lay tensors out alike");
        self.raw.upload(all)
    }
}
