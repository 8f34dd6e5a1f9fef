//! A GPU's memory for one tensor, with guard bands on both sides as on the host.
//!
//! Beyond the bands a driver offers no page without access: it maps memory in pieces of 2 MiB, and what follows a block in
//! its piece is another allocation of this process or nothing at all. A write that leaves the piece is an illegal address,
//! which the driver reports; one that stays inside and passes over a whole band meets the band or the values of another
//! tensor, or memory that nobody reads.

use super::driver::{Address, Queue};
use crate::Fault;
use crate::buffer::{DeviceMemory, extent};
use crate::guard;
use kmark_core::tensor::TensorSpec;
use std::sync::Arc;

/// Plain memory of a GPU.
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
        self.download_first(self.bytes / size_of::<T>())
    }

    /// The first `count` values.
    pub fn download_first<T: bytemuck::Pod>(&self, count: usize) -> Result<Vec<T>, Fault> {
        let mut all = vec![T::zeroed(); count];
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
        let (bytes, (before, all)) = (spec.bytes(), extent(spec));
        let no_room =
            |f: Fault| Fault::new(f.status, format!("no memory for {} ({bytes} bytes): {}", spec.name, f.message));
        let raw = Raw::new(queue, all).map_err(no_room)?;
        let block = Block { raw, before, bytes };
        for (address, bytes) in block.guards() {
            let mut band = vec![0; bytes];
            guard::fill(&mut band, address);
            queue.upload(address, &band)?;
        }
        Ok(block)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The guard bands: address and length of each.
    pub fn guards(&self) -> [(Address, usize); 2] {
        let end = self.before + self.bytes;
        [(self.raw.address, self.before), (self.raw.address + end as u64, self.raw.bytes - end)]
    }
}

impl DeviceMemory for Block {
    fn address(&self) -> Address {
        self.raw.address + self.before as u64
    }

    fn fetch(&self, all: &mut [u8]) -> Result<(), Fault> {
        assert_eq!(all.len(), self.raw.bytes, "host and GPU lay tensors out alike");
        self.raw.queue.download(self.raw.address, all)
    }

    fn put(&self, all: &[u8]) -> Result<(), Fault> {
        assert_eq!(all.len(), self.raw.bytes, "host and GPU lay tensors out alike");
        self.raw.upload(all)
    }
}
