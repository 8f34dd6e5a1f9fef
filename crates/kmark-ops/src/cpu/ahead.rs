//! Memory that is asked for before it is read.

use kmark_device::cpu::cache::prefetch;

/// What will be read next: elements of `size` bytes, to be asked for early.
#[derive(Clone, Copy)]
pub struct Ahead<'a> {
    pub bytes: &'a [u8],
    pub size: usize,
}

impl Ahead<'_> {
    pub const NOTHING: Ahead<'static> = Ahead { bytes: &[], size: 1 };

    #[inline(always)]
    pub fn part(&self, at: usize, len: usize) -> &[u8] {
        let (end, size) = (self.bytes.len(), self.size);
        &self.bytes[(at * size).min(end)..((at + len) * size).min(end)]
    }

    #[inline(always)]
    pub fn ask(&self, at: usize, len: usize) {
        prefetch(self.part(at, len));
    }
}
