//! Memory of a case's tensors: aligned, with guard bands on both sides, shared by the problem and the launches bound to
//! it. A launch takes its borrow when it runs, so launches have no lifetime. On a GPU the tensor lies in the GPU's
//! memory; reading it here makes a copy, and a copy that was written goes back when it is let go.

use crate::Fault;
use crate::guard;
use bytemuck::{AnyBitPattern, NoUninit};
use kmark_core::tensor::{Role, TensorSpec};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// NaN in every float format, -1 in the integers.
pub const POISON_BYTE: u8 = 0xff;

/// Where a tensor lies in its memory, on the host and on a GPU alike: bytes before it, and all there are. The bands reach
/// from the bytes right beside it to the ends; its end is followed by at least a whole band.
pub(crate) fn extent(spec: &TensorSpec) -> (usize, usize) {
    let before = guard::BYTES + spec.offset * spec.dtype.size();
    (before, (before + spec.bytes() + guard::BYTES).next_multiple_of(page()))
}

fn page() -> usize {
    rustix::param::page_size()
}

/// Memory of the host with a page at each end that nobody can touch: whoever oversteps the guard bands ends there.
struct Memory {
    /// The first byte behind the first of those pages.
    start: *mut u8,
    len: usize,
    /// Bytes before the tensor, the guard band and an offset that unaligned tensors have.
    before: usize,
    bytes: usize,
}

// SAFETY: the memory is the value's own, reached through its references only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros for `spec`, guards set. `None` if the memory cannot be had.
    fn guarded(spec: &TensorSpec) -> Option<Memory> {
        let (before, len) = extent(spec);
        let (page, access) = (page(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: new memory, at a place of the system's choice.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), len + 2 * page, access, MapFlags::PRIVATE) }.ok()?;
        let start = map.cast::<u8>().wrapping_add(page);
        let mut memory = Memory { start, len, before, bytes: spec.bytes() };
        for end in [map, start.wrapping_add(len).cast()] {
            // SAFETY: the first and the last page of what was just mapped; nothing refers to them.
            unsafe { mprotect(end, page, MprotectFlags::empty()) }.ok()?;
        }
        memory.ask_for_huge_pages();
        let (payload, at) = (memory.payload(), memory.start as u64);
        let all = memory.all_mut();
        guard::fill(&mut all[..payload.start], at);
        guard::fill(&mut all[payload.end..], at + payload.end as u64);
        Some(memory)
    }

    /// Large tensors lie in large pages where the system has them, as in any allocator that cares for speed: with pages
    /// of 4 KiB the page walks cost as much as the data. A hint; if it is refused nothing else changes.
    fn ask_for_huge_pages(&mut self) {
        #[cfg(target_os = "linux")]
        if self.len >= 4 << 20 {
            use rustix::mm::{Advice, madvise};
            // SAFETY: the range is the value's own; the advice changes no byte.
            let _ = unsafe { madvise(self.start.cast(), self.len, Advice::LinuxHugepage) };
        }
    }

    fn all(&self) -> &[u8] {
        // SAFETY: mapped, readable and zeroed by the system, as long as the value lives.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and writable; the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
    fn payload(&self) -> std::ops::Range<usize> {
        self.before..self.before + self.bytes
    }
    /// Of the tensor's first element.
    fn address(&self) -> u64 {
        self.start as u64 + self.before as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let page = page();
        // SAFETY: exactly what was mapped, with the page at each end; nobody borrows it any more.
        let _ = unsafe { munmap(self.start.wrapping_sub(page).cast(), self.len + 2 * page) };
    }
}

/// Memory of a tensor that the host does not reach, laid out as it would be there.
pub trait DeviceMemory: Send + Sync {
    /// Of the tensor's first element.
    fn address(&self) -> u64;
    /// Everything, guards included.
    fn fetch(&self, all: &mut [u8]) -> Result<(), Fault>;
    /// Puts everything back, guards included.
    fn put(&self, all: &[u8]) -> Result<(), Fault>;
}

#[derive(Clone)]
pub struct Buffer {
    spec: Arc<TensorSpec>,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Host(Arc<RwLock<Memory>>),
    Device(Arc<dyn DeviceMemory>),
}

impl Buffer {
    /// Host memory for `spec`, guards set. `None` if the memory cannot be had.
    pub fn host(spec: &TensorSpec) -> Option<Buffer> {
        let memory = Memory::guarded(spec)?;
        Some(Buffer { spec: Arc::new(spec.clone()), place: Place::Host(Arc::new(RwLock::new(memory))) })
    }

    pub fn on_device(spec: &TensorSpec, memory: Arc<dyn DeviceMemory>) -> Buffer {
        Buffer { spec: Arc::new(spec.clone()), place: Place::Device(memory) }
    }

    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Whether the host does not reach it.
    pub fn is_on_device(&self) -> bool {
        matches!(self.place, Place::Device(_))
    }

    /// Where the tensor lies, in the host's memory or a device's. It stays there as long as the buffer lives.
    pub fn address(&self) -> u64 {
        match &self.place {
            Place::Host(memory) => memory.read().unwrap_or_else(|e| e.into_inner()).address(),
            Place::Device(memory) => memory.address(),
        }
    }

    fn memory(&self) -> &RwLock<Memory> {
        match &self.place {
            Place::Host(memory) => memory,
            Place::Device(_) => panic!("{} does not lie on the host", self.spec.name),
        }
    }

    /// The tensor with its guard bands, copied from its device.
    fn fetched(&self, device: &dyn DeviceMemory) -> Memory {
        let mut memory = Memory::guarded(&self.spec).expect("host memory");
        // A device that does not answer shows in the next launch; what was read is then nobody's result.
        let _ = device.fetch(memory.all_mut());
        memory
    }

    pub fn read<T: AnyBitPattern>(&self) -> ReadGuard<'_, T> {
        let memory = match &self.place {
            Place::Host(memory) => Held::Host(memory.read().unwrap_or_else(|e| e.into_inner())),
            Place::Device(device) => Held::Copy(self.fetched(&**device)),
        };
        ReadGuard { memory, kind: PhantomData }
    }

    pub fn write<T: AnyBitPattern + NoUninit>(&self) -> WriteGuard<'_, T> {
        let memory = match &self.place {
            Place::Host(memory) => Changing::Host(memory.write().unwrap_or_else(|e| e.into_inner())),
            Place::Device(device) => Changing::Copy(self.fetched(&**device), &**device),
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
        let address = self.address();
        let mut bytes = self.write::<u8>();
        bytes.fill(POISON_BYTE);
        self.spec.gaps().for_each(|gap| guard::fill(&mut bytes[gap.clone()], address + gap.start as u64));
    }

    /// `Err` says on which side and how far from the tensor the guard band was overwritten, or behind which row.
    pub fn check_guards(&self) -> Result<(), String> {
        let memory = self.memory().read().unwrap_or_else(|e| e.into_inner());
        let (payload, address) = (memory.payload(), memory.address());
        let (all, name) = (memory.all(), self.spec.name);
        if let Some(i) = guard::others(&all[..payload.start], memory.start as u64).next_back() {
            return Err(format!("memory was written {} bytes before the start of {name}", payload.start - i));
        }
        if let Some(i) = guard::others(&all[payload.end..], address + payload.len() as u64).next() {
            return Err(format!("memory was written {} bytes past the end of {name}", i + 1));
        }
        // Gaps of inputs are inputs: whoever changes one is caught by their hash.
        if self.spec.role == Role::Out {
            let tensor = &all[payload];
            let written = |gap: std::ops::Range<usize>| {
                guard::others(&tensor[gap.clone()], address + gap.start as u64).next().is_some()
            };
            if let Some(row) = self.spec.gaps().position(written) {
                return Err(format!("memory was written between the rows of {name}, behind row {row}"));
            }
        }
        Ok(())
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
    Copy(Memory, &'a dyn DeviceMemory),
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
        if let Changing::Copy(memory, device) = self {
            // As for reading: a device that does not answer shows in the next launch.
            let _: Result<(), Fault> = device.put(memory.all());
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
        b.overstep(4, |bytes| *bytes.last_mut().unwrap() ^= 1);
        assert_eq!(b.check_guards(), Err("memory was written 4 bytes past the end of y".into()));
    }

    #[test]
    fn beyond_the_bands_there_is_no_access() {
        let spec = TensorSpec::output("y", DType::F32, &[1000]);
        let b = Buffer::host(&spec).unwrap();
        let (before, all) = extent(&spec);
        assert!(all - before - spec.bytes() >= guard::BYTES && before >= guard::BYTES);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let access = |address: u64| {
            let holds = |line: &&str| {
                let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
                let number = |hex: &str| u64::from_str_radix(hex, 16).unwrap();
                (number(from)..number(to)).contains(&address)
            };
            maps.lines().find(holds).unwrap().split(' ').nth(1).unwrap().to_string()
        };
        let start = b.address() - before as u64;
        assert_eq!((access(start), access(start + all as u64 - 1)), ("rw-p".into(), "rw-p".into()));
        assert_eq!((access(start - 1), access(start + all as u64)), ("---p".into(), "---p".into()));
    }

    #[test]
    fn tensors_start_on_a_cache_line() {
        let b = Buffer::host(&TensorSpec::output("y", DType::Bf16, &[3])).unwrap();
        assert_eq!(b.read::<u16>().as_ptr() as usize % 64, 0);
    }
}
