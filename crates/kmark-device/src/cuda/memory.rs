//! A GPU's memory for one tensor, with guard bands on both sides as on the host. Each tensor has pages of its own (of
//! 2 MiB, where nobody says otherwise) between addresses without any: whoever passes over a band and leaves the pages is at
//! an illegal address, which the driver reports.

use super::driver::{Address, Pages, Queue};
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

/// How tensors lie: in pages of their own, which can be exchanged, or beside others, where there are many small ones.
#[derive(Clone, Copy, PartialEq)]
pub enum Lies {
    InPages,
    Beside,
}

/// Where a tensor lies. A driver that cannot exchange pages gives plain memory.
enum Place {
    Pages(Pages),
    Plain(Raw),
}

/// A tensor between its guard bands.
pub struct Block {
    queue: Arc<Queue>,
    place: Place,
    /// Bytes before the tensor, of the tensor, and with both bands.
    before: usize,
    bytes: usize,
    all: usize,
}

impl Block {
    pub fn new(queue: &Arc<Queue>, spec: &TensorSpec, lies: Lies) -> Result<Block, Fault> {
        let (bytes, (before, all)) = (spec.bytes(), extent(spec));
        let no_room =
            |f: Fault| Fault::new(f.status, format!("no memory for {} ({bytes} bytes): {}", spec.name, f.message));
        let pages = if lies == Lies::InPages { Pages::new(queue, all).map_err(no_room)? } else { None };
        let place = match pages {
            Some(pages) => Place::Pages(pages),
            None => Place::Plain(Raw::new(queue, all).map_err(no_room)?),
        };
        let block = Block { queue: Arc::clone(queue), place, before, bytes, all };
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

    /// Moves what is here to other pages; addresses stay.
    pub fn elsewhere(&self) -> Result<(), Fault> {
        match &self.place {
            Place::Pages(pages) => pages.elsewhere(),
            Place::Plain(_) => Ok(()),
        }
    }

    fn start(&self) -> Address {
        match &self.place {
            Place::Pages(pages) => pages.address,
            Place::Plain(raw) => raw.address,
        }
    }

    /// The guard bands: address and length of each.
    pub fn guards(&self) -> [(Address, usize); 2] {
        let end = self.before + self.bytes;
        [(self.start(), self.before), (self.start() + end as u64, self.all - end)]
    }
}

impl DeviceMemory for Block {
    fn address(&self) -> Address {
        self.start() + self.before as u64
    }

    fn fetch(&self, all: &mut [u8]) -> Result<(), Fault> {
        assert_eq!(all.len(), self.all, "host and GPU lay tensors out alike");
        self.queue.download(self.start(), all)
    }

    fn put(&self, all: &[u8]) -> Result<(), Fault> {
        assert_eq!(all.len(), self.all, "host and GPU lay tensors out alike");
        self.queue.upload(self.start(), all)
    }
}
