//! cuBLASLt: NVIDIA's matrix product, as an opponent. Matrices are column-major there; whoever has rows swaps the operands.

use super::Cuda;
use super::driver::{Address, Queue};
use super::library::{Library, MISSING, functions};
use super::memory::Raw;
use crate::buffer::Buffers;
use crate::{Built, Fault, Launch};
use kmark_core::dtype::DType;
use kmark_core::record::Status;
use kmark_core::stats::median;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

type Handle = *mut c_void;

/// The text of this file, for the hashes of whoever stands on it.
pub const SOURCE: &str = include_str!("cublaslt.rs");

functions! {
    #[allow(non_snake_case)]
    struct Table {
        cublasLtCreate: fn(handle: *mut Handle);
        cublasLtGetVersion: fn();
        cublasLtMatmulDescCreate: fn(desc: *mut Handle, compute: c_int, scale: c_int);
        cublasLtMatmulDescDestroy: fn(desc: Handle);
        cublasLtMatmulDescSetAttribute: fn(desc: Handle, attribute: c_int, value: *const c_void, size: usize);
        cublasLtMatrixLayoutCreate: fn(layout: *mut Handle, dtype: c_int, rows: u64, cols: u64, ld: i64);
        cublasLtMatrixLayoutDestroy: fn(layout: Handle);
        cublasLtMatmulPreferenceCreate: fn(preference: *mut Handle);
        cublasLtMatmulPreferenceDestroy: fn(preference: Handle);
        cublasLtMatmulPreferenceSetAttribute: fn(preference: Handle, attribute: c_int, value: *const c_void, size: usize);
        cublasLtMatmulAlgoGetHeuristic: fn(handle: Handle, desc: Handle, a: Handle, b: Handle, c: Handle, d: Handle, preference: Handle, wanted: c_int, results: *mut Choice, found: *mut c_int);
        cublasLtMatmul: fn(handle: Handle, desc: Handle, alpha: *const c_void, a: Address, a_layout: Handle, b: Address, b_layout: Handle, beta: *const c_void, c: Address, c_layout: Handle, d: Address, d_layout: Handle, algo: *const [u64; 8], workspace: Address, workspace_bytes: usize, stream: *mut c_void);
    }
}

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Choice {
    algo: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

// Attributes by NVIDIA's numbers.
const TRANS_A: c_int = 3;
const TRANS_B: c_int = 4;
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
const A_SCALE_POINTER: c_int = 17;
const B_SCALE_POINTER: c_int = 18;
const A_SCALE_MODE: c_int = 31;
const B_SCALE_MODE: c_int = 32;
const MAX_WORKSPACE: c_int = 1;
const REDUCTION_SCHEMES: c_int = 3;
const MIN_ALIGNMENT: [c_int; 4] = [5, 6, 7, 8];
const EPILOGUE_BIAS: c_int = 4;

/// What NVIDIA recommends for Hopper.
const WORKSPACE: usize = 32 << 20;
/// Algorithms that are timed before one is chosen, how often, and after what time less often.
const TRIED: usize = 8;
const ROUNDS: usize = 12;
const LONG_ENOUGH: Duration = Duration::from_millis(200);

struct Loaded {
    table: Table,
    handle: Handle,
    path: String,
    _library: Library,
}

// SAFETY: a cuBLASLt handle may be used by any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

fn library() -> Result<&'static Loaded, String> {
    static LIBRARY: OnceLock<Result<Loaded, String>> = OnceLock::new();
    let load = || {
        let library = Library::open(&["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]).map_err(|e| {
            let hint = "it comes with the CUDA toolkit or with `pip install nvidia-cublas`";
            format!("no cuBLASLt: {e}. {hint}; set {} to its folder", super::library::PATH_VARIABLE)
        })?;
        let table = Table::of(&library);
        let mut handle = std::ptr::null_mut();
        // SAFETY: one handle is written; it lives as long as the process.
        match unsafe { table.cublasLtCreate(&mut handle) } {
            0 => Ok(Loaded { table, handle, path: library.path.clone(), _library: library }),
            code => Err(format!("{}: cublasLtCreate failed with code {code}", library.path)),
        }
    };
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// One operand as it lies in memory, column-major: `ld` elements from column to column.
#[derive(Clone, Copy)]
pub struct Matrix {
    pub address: Address,
    pub dtype: DType,
    pub rows: usize,
    pub cols: usize,
    pub ld: usize,
    /// Bytes that the address is a multiple of.
    pub alignment: u32,
}

/// d = scales * op(a) op(b) + bias along the columns of d.
pub struct Product {
    pub a: Matrix,
    pub transpose_a: bool,
    pub b: Matrix,
    pub transpose_b: bool,
    pub d: Matrix,
    pub bias: Option<Address>,
    /// Scales of a and b in memory, and whether there is one for each row of a and column of b.
    pub scales: Option<(Address, Address, bool)>,
    /// Whether tensor cores may multiply f32.
    pub tf32: bool,
}

/// A product with its algorithm chosen.
pub struct Matmul {
    library: &'static Loaded,
    desc: Handle,
    layouts: [Handle; 3],
    product: Product,
    choice: Choice,
    workspace: Raw,
    built: Built,
    queue: Arc<Queue>,
    _buffers: Buffers,
}

fn data_type(dtype: DType) -> c_int {
    match dtype {
        DType::F32 => 0,
        DType::F64 => 1,
        DType::F16 => 2,
        DType::Bf16 => 14,
        DType::F8e4m3 => 28,
        DType::F8e5m2 => 29,
        DType::I32 => 10,
        DType::I64 => 24,
    }
}

impl Matmul {
    /// Where the library was found; `Err` says how to get it.
    pub fn library_path() -> Result<String, String> {
        library().map(|l| l.path.clone())
    }

    /// Asks the library for algorithms, times them, and keeps the fastest. `buffers` are kept alive.
    pub fn new(cuda: &Cuda, product: Product, buffers: &Buffers) -> Result<Matmul, Fault> {
        let library = library().map_err(|e| Fault::new(Status::Unavailable, e))?;
        let check = |code: c_int, what: &str| library.check(code, what);
        let none = Choice { algo: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut made = Matmul {
            library,
            desc: std::ptr::null_mut(),
            layouts: [std::ptr::null_mut(); 3],
            product,
            choice: none,
            workspace: Raw::new(cuda.queue(), WORKSPACE)?,
            built: Built::default(),
            queue: Arc::clone(cuda.queue()),
            _buffers: buffers.clone(),
        };
        let (t, p) = (&library.table, &made.product);
        let f64s = p.a.dtype == DType::F64;
        let (compute, scale) = match (f64s, p.tf32) {
            (true, _) => (70, data_type(DType::F64)),
            (_, true) => (77, data_type(DType::F32)), // of TF32
            _ => (68, data_type(DType::F32)),
        };
        // SAFETY: handles are written, attributes are read from values that outlive the calls, with their sizes.
        unsafe {
            check(t.cublasLtMatmulDescCreate(&mut made.desc, compute, scale), "cublasLtMatmulDescCreate")?;
            for (layout, m) in made.layouts.iter_mut().zip([&p.a, &p.b, &p.d]) {
                let (rows, cols, ld) = (m.rows as u64, m.cols as u64, m.ld as i64);
                let code = t.cublasLtMatrixLayoutCreate(layout, data_type(m.dtype), rows, cols, ld);
                check(code, "cublasLtMatrixLayoutCreate")?;
            }
            let set = |attribute: c_int, value: *const c_void, size: usize| {
                let code = t.cublasLtMatmulDescSetAttribute(made.desc, attribute, value, size);
                check(code, "cublasLtMatmulDescSetAttribute")
            };
            let number = |attribute: c_int, value: c_int| set(attribute, (&raw const value).cast(), 4);
            let pointer = |attribute: c_int, value: Address| set(attribute, (&raw const value).cast(), 8);
            number(TRANS_A, c_int::from(p.transpose_a))?;
            number(TRANS_B, c_int::from(p.transpose_b))?;
            if let Some(bias) = p.bias {
                number(EPILOGUE, EPILOGUE_BIAS)?;
                pointer(BIAS_POINTER, bias)?;
            }
            if let Some((a, b, vectors)) = p.scales {
                const OUTER_VECTOR: c_int = 3;
                if vectors {
                    number(A_SCALE_MODE, OUTER_VECTOR)?;
                    number(B_SCALE_MODE, OUTER_VECTOR)?;
                }
                pointer(A_SCALE_POINTER, a)?;
                pointer(B_SCALE_POINTER, b)?;
            }
        }
        let choices = made.choices()?;
        made.tune(cuda, &choices)?;
        Ok(made)
    }

    fn choices(&self) -> Result<Vec<Choice>, Fault> {
        let (t, [a, b, d], p) = (&self.library.table, self.layouts, &self.product);
        let mut preference = std::ptr::null_mut();
        let mut found = [Choice { algo: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] }; TRIED];
        let mut count = 0;
        // SAFETY: handles are alive, at most TRIED results are written.
        let code = unsafe {
            self.library.check(t.cublasLtMatmulPreferenceCreate(&mut preference), "cublasLtMatmulPreferenceCreate")?;
            let bytes = WORKSPACE;
            t.cublasLtMatmulPreferenceSetAttribute(preference, MAX_WORKSPACE, (&raw const bytes).cast(), 8);
            // Partial sums of a split product are added in the accumulator's type, as the contract says: in the
            // workspace (2). In place (1) they would be rounded to the output's type in between, as in its type (4).
            let schemes: u32 = 2;
            t.cublasLtMatmulPreferenceSetAttribute(preference, REDUCTION_SCHEMES, (&raw const schemes).cast(), 4);
            for (attribute, m) in MIN_ALIGNMENT.iter().zip([&p.a, &p.b, &p.d, &p.d]) {
                t.cublasLtMatmulPreferenceSetAttribute(preference, *attribute, (&raw const m.alignment).cast(), 4);
            }
            let wanted = TRIED as c_int;
            let code = t.cublasLtMatmulAlgoGetHeuristic(
                self.library.handle,
                self.desc,
                a,
                b,
                d,
                d,
                preference,
                wanted,
                found.as_mut_ptr(),
                &mut count,
            );
            t.cublasLtMatmulPreferenceDestroy(preference);
            code
        };
        let usable: Vec<Choice> = found[..count.max(0) as usize].iter().copied().filter(|c| c.state == 0).collect();
        if code != 0 || usable.is_empty() {
            return Err(Fault::new(
                Status::Unsupported,
                format!("cuBLASLt has no algorithm for this product (code {code})"),
            ));
        }
        Ok(usable)
    }

    /// Times the choices in turns, with cold caches as in a run, and keeps the one with the lowest median. A few launches of
    /// one after the other, data in L2, chose another one every time, up to 10 % slower in the run.
    fn tune(&mut self, cuda: &Cuda, choices: &[Choice]) -> Result<(), Fault> {
        let begin = Instant::now();
        let mut times = vec![Vec::new(); choices.len()];
        for round in 0..ROUNDS {
            if round > 3 && begin.elapsed() > LONG_ENOUGH {
                break;
            }
            for (choice, times) in choices.iter().zip(&mut times) {
                self.choice = *choice;
                let (start, stop) = (self.queue.event()?, self.queue.event()?);
                cuda.engine().flush()?;
                self.queue.record(&start)?;
                self.launch()?;
                self.queue.record(&stop)?;
                self.queue.wait()?;
                if round > 0 {
                    times.push(start.ns_to(&stop)?);
                }
            }
        }
        let medians = times.iter().map(|t| median(t)).enumerate();
        let (at, _) = medians.min_by(|(_, a), (_, b)| a.total_cmp(b)).expect("there is at least one choice");
        self.choice = choices[at];
        self.built.tune_ns = Some(begin.elapsed().as_nanos() as f64);
        self.built.notes = vec![
            format!("algorithm {} of {} that the heuristic offers, the fastest", at + 1, choices.len()),
            format!("workspace {} bytes of {WORKSPACE} allowed", self.choice.workspace),
            self.library.path.clone(),
        ];
        // SAFETY: takes nothing; the number is smaller than an int.
        let version = unsafe { self.library.table.cublasLtGetVersion() };
        self.built.libraries = format!("cuBLASLt {version}");
        Ok(())
    }
}

impl Loaded {
    fn check(&self, code: c_int, what: &str) -> Result<(), Fault> {
        match code {
            0 => Ok(()),
            MISSING => Err(Fault::new(Status::Unavailable, format!("{} has no {what}: it is too old", self.path))),
            // Not supported, or a value that this combination may not have.
            7 | 15 => {
                Err(Fault::new(Status::Unsupported, format!("{what}: not supported by this cuBLASLt (code {code})")))
            }
            code => Err(Fault::new(Status::Crashed, format!("{what} failed with code {code}"))),
        }
    }
}

impl Launch for Matmul {
    fn launch(&mut self) -> Result<(), Fault> {
        let (one, zero) = (1.0f32, 0.0f32);
        let (one64, zero64) = (1.0f64, 0.0f64);
        let f64s = self.product.a.dtype == DType::F64;
        let alpha: *const c_void = if f64s { (&raw const one64).cast() } else { (&raw const one).cast() };
        let beta: *const c_void = if f64s { (&raw const zero64).cast() } else { (&raw const zero).cast() };
        let (p, [a, b, d]) = (&self.product, self.layouts);
        // SAFETY: all handles and memory live as long as this value.
        let code = unsafe {
            self.library.table.cublasLtMatmul(
                self.library.handle,
                self.desc,
                alpha,
                p.a.address,
                a,
                p.b.address,
                b,
                beta,
                p.d.address,
                d,
                p.d.address,
                d,
                &self.choice.algo,
                self.workspace.address,
                WORKSPACE,
                self.queue.stream(),
            )
        };
        self.library.check(code, "cublasLtMatmul")
    }

    fn built(&self) -> Built {
        self.built.clone()
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; null is ignored.
        unsafe {
            for layout in self.layouts.into_iter().filter(|l| !l.is_null()) {
                self.library.table.cublasLtMatrixLayoutDestroy(layout);
            }
            if !self.desc.is_null() {
                self.library.table.cublasLtMatmulDescDestroy(self.desc);
            }
        }
    }
}
