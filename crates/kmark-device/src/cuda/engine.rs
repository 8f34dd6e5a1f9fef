//! The engine's own kernels (`device/engine.cu`), loaded once per device: inputs, poison, wrong values, guards, hashes;
//! flush, blocker and clocks.

use super::driver::{Address, Function, Module, Queue};
use super::jit::{HEADERS, Jit, Source};
use super::kernel_line::Shape;
use super::memory::Raw;
use crate::Fault;
use crate::buffer::POISON_BYTE;
use crate::decoy::Pieces;
use crate::guard;
use kmark_core::dtype::DType;
use kmark_core::fill::{Fill, key};
use kmark_core::inputs::GAP_BYTE;
use kmark_core::tensor::TensorSpec;
use std::ffi::c_void;
use std::sync::Arc;

pub struct Engine {
    functions: Functions,
    sms: u32,
    /// What a flush reads.
    flush: Raw,
    /// Words that host and device share: the blocker's flag and its status.
    flag: *mut u32,
    flag_address: Address,
    /// Stamps before and after a sample, one per multiprocessor, and behind them how many pieces of outputs differ, in
    /// memory that host and device share: nothing need be copied after a sample.
    stamps: *const u64,
    stamps_address: Address,
    /// How many pieces of outputs were found to differ, on the device.
    differing: Raw,
    _module: Module,
    queue: Arc<Queue>,
}

struct Functions {
    fill: Function,
    set_gaps: Function,
    guard_gaps: Function,
    find_other: Function,
    find_gaps: Function,
    hash: Function,
    disguise: Function,
    hash_pieces: Function,
    glance: Function,
    publish: Function,
    flush: Function,
    hold: Function,
    stamp: Function,
    empty: Function,
    spin: Function,
    timer_step: Function,
}

// SAFETY: the shared words are read and written as volatile words only; the driver's handles may be used by any thread.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

/// Lowest and highest place of what was looked for, and how often it was found.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Found {
    pub lowest: u64,
    pub highest: u64,
    pub count: u64,
}

impl Found {
    pub const NONE: Found = Found { lowest: u64::MAX, highest: 0, count: 0 };
}

/// A tensor as rows, as the kernels' struct.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Strided {
    ptr: u64,
    /// Those of gaps between rows included.
    elems: i64,
    row: i64,
    pitch: i64,
    dtype: i64,
}

impl Strided {
    pub fn of(spec: &TensorSpec, address: Address) -> Strided {
        let elems = (spec.bytes() / spec.dtype.size()) as i64;
        let (row, pitch) = (spec.row_len() as i64, spec.pitch as i64);
        Strided { ptr: address, elems, row: row.max(1), pitch: pitch.max(1), dtype: number(spec.dtype) }
    }
}

/// What becomes of the hashes of pieces, by the kernel's numbers.
#[derive(Clone, Copy)]
pub enum Hashing {
    Keep,
    Compare,
    Renew,
    Loosen,
}

/// Arguments of `km_fill`, as the kernel's struct.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Filled {
    ptr: u64,
    rows: i64,
    cols: i64,
    pitch: i64,
    key: u64,
    seed: u64,
    a: f64,
    b: f64,
    shift: f64,
    kind: i64,
    dtype: i64,
}

/// How long the blocker waits for the host before it gives up.
const HOLD_LIMIT_NS: u64 = 2_000_000_000;
/// Multiprocessors that can be stamped.
const STAMPS: usize = 256;
/// Two numbers of 64 bits.
const STAMP_WORDS: usize = 4;

impl Engine {
    pub fn new(queue: &Arc<Queue>, jit: &Jit, arch: &str, sms: u32, l2_bytes: usize) -> Result<Engine, Fault> {
        let source = Source {
            name: "engine.cu",
            prelude: "",
            text: include_str!("device/engine.cu"),
            headers: HEADERS,
            folder: None,
            flags: vec!["--fmad=false".into()],
        };
        let module = queue.module(&jit.compile(&source, arch)?.cubin)?;
        let functions = Functions {
            fill: module.function("km_fill")?,
            set_gaps: module.function("km_set_gaps")?,
            guard_gaps: module.function("km_guard_gaps")?,
            find_other: module.function("km_find_other")?,
            find_gaps: module.function("km_find_gaps")?,
            hash: module.function("km_hash")?,
            disguise: module.function("km_disguise")?,
            hash_pieces: module.function("km_hash_pieces")?,
            glance: module.function("km_glance")?,
            publish: module.function("km_publish")?,
            flush: module.function("km_flush")?,
            hold: module.function("km_hold")?,
            stamp: module.function("km_stamp")?,
            empty: module.function("km_empty")?,
            spin: module.function("km_spin")?,
            timer_step: module.function("km_timer_step")?,
        };
        let (flag, flag_address) = queue.shared_words(2)?;
        let (stamps, stamps_address) = queue.shared_words(2 * STAMPS * STAMP_WORDS + 2)?;
        let engine = Engine {
            functions,
            sms,
            flush: Raw::new(queue, 2 * l2_bytes.max(1 << 20))?,
            flag,
            flag_address,
            stamps: stamps.cast(),
            stamps_address,
            differing: Raw::new(queue, 8)?,
            _module: module,
            queue: Arc::clone(queue),
        };
        // A kernel's first launch loads it, which waits for the device; behind the blocker that would never end.
        engine.empty()?;
        engine.stamp(0)?;
        engine.flush()?;
        engine.hold(0)?;
        let nothing = Pieces { start: 0, stride: 1, count: 0, of: 0 };
        let nowhere = Strided { ptr: engine.differing.address, elems: 0, row: 1, pitch: 1, dtype: 0 };
        engine.disguise(nowhere, nothing, 0)?;
        engine.hash_pieces(nowhere, nothing, engine.differing.address, Hashing::Compare)?;
        engine.publish()?;
        engine.queue.wait()?;
        Ok(engine)
    }

    fn launch(&self, function: &Function, blocks: u32, threads: u32, params: &mut [*mut c_void]) -> Result<(), Fault> {
        let shape =
            Shape { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0, cluster: [1; 3], with: Vec::new() };
        self.queue.launch(function, &shape, params)
    }

    /// Blocks for `work` items, one thread each, at most enough to fill the GPU a few times: kernels loop.
    fn blocks(&self, work: usize) -> u32 {
        (work.div_ceil(256)).clamp(1, self.sms as usize * 16) as u32
    }

    /// The values of tensor `spec` for `seed`, at `address`; the same bits as on the host.
    pub fn fill(&self, spec: &TensorSpec, seed: u64, address: Address) -> Result<(), Fault> {
        let (kind, a, b, shift) = match spec.fill {
            Fill::Constant(v) => (0, v, 0.0, 0.0),
            Fill::Normal { mean, std } => (1, mean, std, 0.0),
            Fill::Rows { mean, std, shift } => (2, mean, std, shift),
            Fill::Logits { std, shift } => (3, 0.0, std, shift),
            Fill::Classes { classes, ignore } => (4, classes as f64, ignore as f64, 0.0),
            Fill::Tiles { std } => (5, 0.0, std, 0.0),
            Fill::Tf32 { std } => (6, 0.0, std, 0.0),
            Fill::Derived => unreachable!("derived inputs are computed by the op"),
        };
        self.fill_gaps(spec, address, GAP_BYTE)?;
        let mut filled = Filled {
            ptr: address,
            rows: spec.rows() as i64,
            cols: spec.row_len() as i64,
            pitch: spec.pitch as i64,
            key: key(seed, spec.name),
            seed,
            a,
            b,
            shift,
            kind,
            dtype: number(spec.dtype),
        };
        self.launch(&self.functions.fill, self.blocks(spec.elems()), 256, &mut [(&raw mut filled).cast()])
    }

    /// Sets what lies between the rows; nothing if rows are adjacent.
    pub fn fill_gaps(&self, spec: &TensorSpec, address: Address, value: u8) -> Result<(), Fault> {
        if spec.pitch == spec.row_len() {
            return Ok(());
        }
        let (mut ptr, [mut rows, mut row, mut pitch], mut value) = (address, gaps_of(spec), value as u32);
        let params = &mut [
            (&raw mut ptr).cast(),
            (&raw mut rows).cast(),
            (&raw mut row).cast(),
            (&raw mut pitch).cast(),
            (&raw mut value).cast(),
        ];
        self.launch(&self.functions.set_gaps, self.blocks((rows * (pitch - row)) as usize), 256, params)
    }

    /// NaN in every row, a guard between the rows.
    pub fn poison(&self, spec: &TensorSpec, address: Address) -> Result<(), Fault> {
        self.queue.set(address, POISON_BYTE, spec.bytes())?;
        self.guard_gaps(spec, address)
    }

    /// Makes what lies between the rows a guard; nothing if rows are adjacent.
    fn guard_gaps(&self, spec: &TensorSpec, address: Address) -> Result<(), Fault> {
        if spec.pitch == spec.row_len() {
            return Ok(());
        }
        let (mut ptr, [mut rows, mut row, mut pitch], mut key) = (address, gaps_of(spec), guard::key());
        let params = &mut [
            (&raw mut ptr).cast(),
            (&raw mut rows).cast(),
            (&raw mut row).cast(),
            (&raw mut pitch).cast(),
            (&raw mut key).cast(),
        ];
        self.launch(&self.functions.guard_gaps, self.blocks((rows * (pitch - row)) as usize), 256, params)
    }

    /// Bytes from `from` on that are no guard any more; what is found is added at `found`.
    pub fn find_other(&self, from: Address, bytes: usize, found: Address) -> Result<(), Fault> {
        let (mut ptr, mut bytes, mut key, mut found) = (from, bytes as i64, guard::key(), found);
        let params =
            &mut [(&raw mut ptr).cast(), (&raw mut bytes).cast(), (&raw mut key).cast(), (&raw mut found).cast()];
        self.launch(&self.functions.find_other, self.blocks(bytes as usize), 256, params)
    }

    /// Rows behind which there is something else than `old` says, or than a guard if there is no `old`.
    pub fn find_gaps(&self, spec: &TensorSpec, at: Address, old: Option<Address>, found: Address) -> Result<(), Fault> {
        if spec.pitch == spec.row_len() {
            return Ok(());
        }
        let (mut ptr, mut old, mut key, mut found) = (at, old.unwrap_or(0), guard::key(), found);
        let [mut rows, mut row, mut pitch] = gaps_of(spec);
        let params = &mut [
            (&raw mut ptr).cast(),
            (&raw mut old).cast(),
            (&raw mut rows).cast(),
            (&raw mut row).cast(),
            (&raw mut pitch).cast(),
            (&raw mut key).cast(),
            (&raw mut found).cast(),
        ];
        self.launch(&self.functions.find_gaps, self.blocks((rows * (pitch - row)) as usize), 256, params)
    }

    /// Adds a hash of the bytes to the two words at `sum`.
    pub fn hash(&self, from: Address, bytes: usize, sum: Address) -> Result<(), Fault> {
        let (mut ptr, mut count, mut sum) = (from, bytes as i64, sum);
        let params = &mut [(&raw mut ptr).cast(), (&raw mut count).cast(), (&raw mut sum).cast()];
        self.launch(&self.functions.hash, self.blocks(bytes.div_ceil(8)), 256, params)
    }

    /// Gives the elements of some pieces wrong values.
    pub fn disguise(&self, at: Strided, pieces: Pieces, word: u64) -> Result<(), Fault> {
        let (mut at, Pieces { mut start, mut stride, mut count, mut of }, mut word) = (at, pieces, word);
        let params = &mut [
            (&raw mut at).cast(),
            (&raw mut start).cast(),
            (&raw mut stride).cast(),
            (&raw mut count).cast(),
            (&raw mut of).cast(),
            (&raw mut word).cast(),
        ];
        self.launch(&self.functions.disguise, self.blocks(count as usize * 32), 256, params)
    }

    /// Hashes some pieces and keeps the hashes, counts how many are not the kept ones, or forgets those that are not.
    pub fn hash_pieces(&self, at: Strided, pieces: Pieces, kept: Address, what: Hashing) -> Result<(), Fault> {
        let (mut at, Pieces { mut start, mut stride, mut count, mut of }) = (at, pieces);
        let (mut kept, mut what, mut differing) = (kept, what as u32, self.differing.address);
        let params = &mut [
            (&raw mut at).cast(),
            (&raw mut start).cast(),
            (&raw mut stride).cast(),
            (&raw mut count).cast(),
            (&raw mut of).cast(),
            (&raw mut kept).cast(),
            (&raw mut what).cast(),
            (&raw mut differing).cast(),
        ];
        self.launch(&self.functions.hash_pieces, self.blocks(count as usize * 32), 256, params)
    }

    /// Begins to count differing pieces anew.
    pub fn count_anew(&self) -> Result<(), Fault> {
        self.queue.set(self.differing.address, 0, 8)
    }

    /// Makes the count known to the host, by the next wait.
    pub fn publish(&self) -> Result<(), Fault> {
        let (mut from, mut to) = (self.differing.address, self.stamps_address + (4 * STAMPS * 8) as u64);
        self.launch(&self.functions.publish, 1, 32, &mut [(&raw mut from).cast(), (&raw mut to).cast()])
    }

    /// Elements chosen by a word, as doubles at `to`.
    pub fn glance(&self, at: Strided, word: u64, count: usize, to: Address) -> Result<(), Fault> {
        let (mut at, mut word, mut count, mut to) = (at, word, count as i64, to);
        let params = &mut [(&raw mut at).cast(), (&raw mut word).cast(), (&raw mut count).cast(), (&raw mut to).cast()];
        self.launch(&self.functions.glance, self.blocks(count as usize), 256, params)
    }

    /// Empties the cache: a buffer of twice its size is read, so that what others wrote is written back, and no dirty line is
    /// left whose writing would fall into the sample. (Writing it first takes three times as long, and kernels after it
    /// are as cold: 7.10 and 7.14, 17.70 and 17.70, 32.70 and 32.67 µs on an H200.)
    pub fn flush(&self) -> Result<(), Fault> {
        self.read_flush_buffer(self.flush.bytes)
    }

    /// Reads as much as half the cache holds, for the proof that a flush works.
    pub fn read_half_a_cache(&self) -> Result<(), Fault> {
        // The flush buffer is twice the cache.
        self.read_flush_buffer(self.flush.bytes / 4)
    }

    fn read_flush_buffer(&self, bytes: usize) -> Result<(), Fault> {
        let (mut ptr, mut count) = (self.flush.address, (bytes / 16) as i64);
        let (mut never, mut out) = (0xdead_beefu32, self.flush.address);
        let params =
            &mut [(&raw mut ptr).cast(), (&raw mut count).cast(), (&raw mut never).cast(), (&raw mut out).cast()];
        self.launch(&self.functions.flush, self.sms * 8, 512, params)
    }

    /// Stops the stream until [`Engine::release`] with the same ticket.
    pub fn hold(&self, ticket: u32) -> Result<(), Fault> {
        let (mut flag, mut status) = (self.flag_address, self.flag_address + 4);
        let (mut ticket, mut limit) = (ticket, HOLD_LIMIT_NS);
        let params =
            &mut [(&raw mut flag).cast(), (&raw mut status).cast(), (&raw mut ticket).cast(), (&raw mut limit).cast()];
        self.launch(&self.functions.hold, 1, 1, params)
    }

    pub fn release(&self, ticket: u32) {
        // SAFETY: the word is ours for the life of the process.
        unsafe { self.flag.write_volatile(ticket) }
    }

    /// Whether the last blocker was released by the host; it gives up if the host never came to that.
    pub fn was_released(&self) -> bool {
        // SAFETY: as above; the second word is the status.
        unsafe { self.flag.add(1).read_volatile() == 1 }
    }

    /// Stamps every multiprocessor's clock: 0 before the sample, 1 after it.
    pub fn stamp(&self, which: u64) -> Result<(), Fault> {
        let (mut to, mut count) = (self.stamps_address + which * (STAMPS * STAMP_WORDS * 4) as u64, STAMPS as u32);
        self.launch(&self.functions.stamp, self.sms, 32, &mut [(&raw mut to).cast(), (&raw mut count).cast()])
    }

    /// The multiprocessors' clock between the stamps in MHz, which is the median over those that were stamped twice; and
    /// how many pieces were found to differ. After a wait.
    pub fn read_back(&self) -> Result<(Option<f64>, u64), Fault> {
        // SAFETY: memory of ours for the life of the process, as many words as were asked for; the stream is done with it.
        let words: Vec<u64> = (0..4 * STAMPS + 1).map(|i| unsafe { self.stamps.add(i).read_volatile() }).collect();
        let (stamps, differing) = words.split_at(4 * STAMPS);
        let (before, after) = stamps.split_at(2 * STAMPS);
        let mhz = |(a, b): (&[u64], &[u64])| {
            let (cycles, ns) = (b[0].checked_sub(a[0])?, b[1].checked_sub(a[1])?);
            (a[1] > 0 && ns > 0).then(|| cycles as f64 * 1e3 / ns as f64)
        };
        let all: Vec<f64> = before.chunks(2).zip(after.chunks(2)).take(self.sms as usize).filter_map(mhz).collect();
        Ok(((!all.is_empty()).then(|| kmark_core::stats::median(&all)), differing[0]))
    }

    pub fn empty(&self) -> Result<(), Fault> {
        self.launch(&self.functions.empty, 1, 32, &mut [])
    }

    /// A launch of `ns` nanoseconds; writes the global timer's start and end to the two words at `times`.
    pub fn spin(&self, ns: u64, times: Address) -> Result<(), Fault> {
        let (mut ns, mut times) = (ns, times);
        self.launch(&self.functions.spin, 1, 1, &mut [(&raw mut ns).cast(), (&raw mut times).cast()])
    }

    /// Writes the global timer's smallest step in ns to `out`.
    pub fn timer_step(&self, out: Address) -> Result<(), Fault> {
        let mut out = out;
        self.launch(&self.functions.timer_step, 1, 1, &mut [(&raw mut out).cast()])
    }
}

/// Rows, bytes of a row, bytes from row to row.
fn gaps_of(spec: &TensorSpec) -> [i64; 3] {
    let size = spec.dtype.size();
    [spec.rows() as i64, (spec.row_len() * size) as i64, (spec.pitch * size) as i64]
}

/// As `engine.cu` numbers them.
fn number(dtype: DType) -> i64 {
    DType::ALL.iter().position(|d| *d == dtype).expect("all are listed") as i64
}
