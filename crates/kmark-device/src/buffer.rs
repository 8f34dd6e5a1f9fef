//! Memory of a case's tensors: aligned, with guard bands on both sides, shared by the problem and the launches bound to
//! it. A launch takes its borrow when it runs, so launches have no lifetime. On a card the tensor lies in the card's
//! memory; reading it here makes a copy, and a copy that was written goes back when it is let go.

use crate::Fault;
use crate::cuda::Block;
use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use kmark_core::tensor::{Role, TensorSpec};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A cache line; tensors start on one.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Guard band on each side, in lines. Wide enough to catch a whole vector or row tail written past the end.
const GUARD_LINES: usize = 64;
pub const GUARD_BYTES: usize = GUARD_LINES * 64;
pub const GUARD_BYTE: u8 = 0xa5;
/// NaN in every float format, -1 in the integers.
pub const POISON_BYTE: u8 = 0xff;

struct Memory {
    lines: Vec<Line>,
    /// Bytes before the tensor, the guard band and an offset that unaligned tensors have.
    before: usize,
    bytes: usize,
}

impl Memory {
    /// `bytes` bytes, `offset` bytes past an aligned address, guards set. `None` if the memory cannot be had.
    fn guarded(offset: usize, bytes: usize) -> Option<Memory> {
        let count = (bytes + offset).div_ceil(64) + 2 * GUARD_LINES;
        let mut lines: Vec<Line> = Vec::new();
        lines.try_reserve_exact(count).ok()?;
        ask_for_huge_pages(&mut lines);
        lines.resize(count, Line::zeroed());
        let mut memory = Memory { lines, before: GUARD_BYTES + offset, bytes };
        let payload = memory.payload();
        memory.all_mut()[..payload.start].fill(GUARD_BYTE);
        memory.all_mut()[payload.end..].fill(GUARD_BYTE);
        Some(memory)
    }

    fn all(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines)
    }
    fn all_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
    fn payload(&self) -> std::ops::Range<usize> {
        self.before..self.before + self.bytes
    }
}

#[derive(Clone)]
pub struct Buffer {
    spec: Arc<TensorSpec>,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Host(Arc<RwLock<Memory>>),
    Card(Arc<Block>),
}

impl Buffer {
    /// Host memory for `spec`, guards set. `None` if the memory cannot be had.
    pub fn host(spec: &TensorSpec) -> Option<Buffer> {
        let memory = Memory::guarded(spec.offset * spec.dtype.size(), spec.bytes())?;
        Some(Buffer { spec: Arc::new(spec.clone()), place: Place::Host(Arc::new(RwLock::new(memory))) })
    }

    /// Memory of a card.
    pub fn card(spec: &TensorSpec, block: Block) -> Buffer {
        Buffer { spec: Arc::new(spec.clone()), place: Place::Card(Arc::new(block)) }
    }

    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// The card's memory that holds it, if it lies on one.
    pub fn on_card(&self) -> Option<&Block> {
        match &self.place {
            Place::Host(_) => None,
            Place::Card(block) => Some(block),
        }
    }

    /// Where the tensor lies, in the host's memory or a card's. It stays there as long as the buffer lives.
    pub fn address(&self) -> u64 {
        match &self.place {
            Place::Host(memory) => {
                let mut memory = memory.write().unwrap_or_else(|e| e.into_inner());
                let payload = memory.payload();
                memory.all_mut()[payload].as_mut_ptr() as u64
            }
            Place::Card(block) => block.address(),
        }
    }

    fn memory(&self) -> &RwLock<Memory> {
        match &self.place {
            Place::Host(memory) => memory,
            Place::Card(_) => panic!("{} lies on a card", self.spec.name),
        }
    }

    /// The tensor with its guard bands, copied from the card.
    fn fetched(&self, block: &Block) -> Memory {
        let mut memory =
            Memory::guarded(self.spec.offset * self.spec.dtype.size(), self.spec.bytes()).expect("host memory");
        // A card that does not answer shows in the next launch; what was read is then nobody's result.
        let _ = block.fetch(memory.all_mut());
        memory
    }

    pub fn read<T: AnyBitPattern>(&self) -> ReadGuard<'_, T> {
        let memory = match &self.place {
            Place::Host(memory) => Held::Host(memory.read().unwrap_or_else(|e| e.into_inner())),
            Place::Card(block) => Held::Copy(self.fetched(block)),
        };
        ReadGuard { memory, kind: PhantomData }
    }

    pub fn write<T: AnyBitPattern + NoUninit>(&self) -> WriteGuard<'_, T> {
        let memory = match &self.place {
            Place::Host(memory) => Changing::Host(memory.write().unwrap_or_else(|e| e.into_inner())),
            Place::Card(block) => Changing::Copy(self.fetched(block), block),
        };
        WriteGuard { memory, kind: PhantomData }
    }

    /// Runs `f` on the tensor's bytes with `past` bytes of the guard band behind them: how a mutant oversteps.
    pub fn overstep(&self, past: usize, f: impl FnOnce(&mut [u8])) {
        let mut guard = self.write::<u8>();
        let payload = guard.memory.get().payload();
        f(&mut guard.memory.get_mut().all_mut()[payload.start..payload.end + past]);
    }

    /// Makes a pure output unusable until it is written: NaN in every row, a guard between the rows.
    pub fn poison(&self) {
        let mut bytes = self.write::<u8>();
        bytes.fill(POISON_BYTE);
        self.spec.gaps().for_each(|gap| bytes[gap].fill(GUARD_BYTE));
    }

    /// `Err` says on which side and how far from the tensor the guard band was overwritten, or behind which row.
    pub fn check_guards(&self) -> Result<(), String> {
        let memory = self.memory().read().unwrap_or_else(|e| e.into_inner());
        let payload = memory.payload();
        let (all, name) = (memory.all(), self.spec.name);
        if let Some(i) = all[..payload.start].iter().rposition(|b| *b != GUARD_BYTE) {
            return Err(format!("memory was written {} bytes before the start of {name}", payload.start - i));
        }
        if let Some(i) = all[payload.end..].iter().position(|b| *b != GUARD_BYTE) {
            return Err(format!("memory was written {} bytes past the end of {name}", i + 1));
        }
        // Gaps of inputs are inputs: whoever changes one is caught by their hash.
        if self.spec.role == Role::Out {
            let tensor = &all[payload];
            if let Some(row) = self.spec.gaps().position(|gap| tensor[gap].iter().any(|b| *b != GUARD_BYTE)) {
                return Err(format!("memory was written between the rows of {name}, behind row {row}"));
            }
        }
        Ok(())
    }
}

/// Large tensors lie in large pages where the system has them, as in any allocator that cares for speed: with pages of
/// 4 KiB the page walks cost as much as the data. A hint; if it is refused nothing else changes.
fn ask_for_huge_pages(lines: &mut Vec<Line>) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let bytes = lines.capacity() * size_of::<Line>();
        let start = lines.as_mut_ptr().cast::<u8>();
        let skip = start.align_offset(4096);
        if bytes >= 4 << 20 {
            // SAFETY: the range lies inside memory that the vector owns; the advice changes no value.
            let _ = unsafe { madvise(start.add(skip).cast(), (bytes - skip) / 4096 * 4096, Advice::LinuxHugepage) };
        }
    }
}

enum Held<'a> {
    Host(RwLockReadGuard<'a, Memory>),
    Copy(Memory),
}

pub struct ReadGuard<'a, T> {
    memory: Held<'a>,
    kind: PhantomData<T>,
}

impl<T: AnyBitPattern> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        let memory = match &self.memory {
            Held::Host(memory) => memory,
            Held::Copy(memory) => memory,
        };
        bytemuck::cast_slice(&memory.all()[memory.payload()])
    }
}

enum Changing<'a> {
    Host(RwLockWriteGuard<'a, Memory>),
    Copy(Memory, &'a Block),
}

impl Changing<'_> {
    fn get(&self) -> &Memory {
        match self {
            Changing::Host(memory) => memory,
            Changing::Copy(memory, _) => memory,
        }
    }
    fn get_mut(&mut self) -> &mut Memory {
        match self {
            Changing::Host(memory) => memory,
            Changing::Copy(memory, _) => memory,
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Changing::Copy(memory, block) = self {
            // As for reading: a card that does not answer shows in the next launch.
            let _: Result<(), Fault> = block.put(memory.all());
        }
    }
}

pub struct WriteGuard<'a, T> {
    memory: Changing<'a>,
    kind: PhantomData<T>,
}

impl<T: AnyBitPattern + NoUninit> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        let memory = self.memory.get();
        bytemuck::cast_slice(&memory.all()[memory.payload()])
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let memory = self.memory.get_mut();
        let payload = memory.payload();
        bytemuck::cast_slice_mut(&mut memory.all_mut()[payload])
    }
}

/// The buffers of a case, in the order of the op's tensors.
#[derive(Clone)]
pub struct Buffers(pub Vec<Buffer>);

impl Buffers {
    /// The buffer of tensor `name`; a handle of its own.
    pub fn get(&self, name: &str) -> Buffer {
        let found = self.0.iter().find(|b| b.spec.name == name);
        found.unwrap_or_else(|| panic!("the case has no tensor {name}")).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmark_core::dtype::DType;

    #[test]
    fn guards_tell_where_memory_was_overwritten() {
        let b = Buffer::host(&TensorSpec::output("y", DType::F32, &[5])).unwrap();
        assert_eq!(b.read::<f32>().len(), 5);
        b.write::<f32>().fill(1.0);
        assert_eq!(b.check_guards(), Ok(()));
        b.overstep(4, |bytes| *bytes.last_mut().unwrap() = 0);
        assert_eq!(b.check_guards(), Err("memory was written 4 bytes past the end of y".into()));
    }

    #[test]
    fn tensors_start_on_a_cache_line() {
        let b = Buffer::host(&TensorSpec::output("y", DType::Bf16, &[3])).unwrap();
        assert_eq!(b.read::<u16>().as_ptr() as usize % 64, 0);
    }
}
