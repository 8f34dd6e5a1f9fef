//! Scratch memory of kernels, which stays with its thread: a launch on one short row takes half a microsecond, and
//! allocations were almost half of that.

use super::elem::Real;
use bytemuck::{Pod, Zeroable, cast_slice_mut};
use std::cell::RefCell;
use std::marker::PhantomData;

/// A cache line: vectors that lie across two take twice as long.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    /// What nobody uses now.
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Room for accumulators that starts on a cache line.
pub struct Room<A> {
    lines: Vec<Line>,
    of: PhantomData<A>,
}

impl<A> Room<A> {
    /// Holds nothing until it is used.
    pub fn new() -> Room<A> {
        Room { lines: Vec::new(), of: PhantomData }
    }
}

impl<A: Real> Room<A> {
    /// So many of them, whatever they hold.
    #[inline(always)]
    pub fn get(&mut self, len: usize) -> &mut [A] {
        let lines = (len * size_of::<A>()).div_ceil(size_of::<Line>());
        if self.lines.len() < lines {
            grow(&mut self.lines, lines);
        }
        &mut cast_slice_mut(&mut self.lines)[..len]
    }
}

#[cold]
fn grow(lines: &mut Vec<Line>, len: usize) {
    if lines.is_empty() {
        *lines = FREE.with_borrow_mut(|free| free.pop()).unwrap_or_default();
    }
    if lines.len() < len {
        *lines = vec![Line([0; 64]); len];
    }
}

/// A copy has room of its own.
impl<A> Clone for Room<A> {
    fn clone(&self) -> Room<A> {
        Room::new()
    }
}

impl<A> Drop for Room<A> {
    fn drop(&mut self) {
        if !self.lines.is_empty() {
            FREE.with_borrow_mut(|free| free.push(std::mem::take(&mut self.lines)));
        }
    }
}
