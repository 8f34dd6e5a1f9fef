//! The CUDA driver behind a table of our own: every call returns a fault that says what happened. Why not a crate: the
//! one that exists panics on a missing library or symbol and reads result codes into Rust enums, so that a code of a newer
//! driver is undefined behaviour; here codes are plain integers, and what a driver lacks is a state.

mod pages;
mod queue;

pub use pages::Pages;
pub use queue::{Event, Function, Graph, LAUNCH_FAILED, Module, Queue};

use super::library::{Library, MISSING, functions};
use crate::Fault;
use kmark_core::record::Status;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

pub type Address = u64;
type Handle = *mut c_void;

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *mut LaunchAttribute,
    count: c_uint,
}

/// `CUlaunchAttribute`: an id, and a union of 64 bytes.
#[repr(C, align(8))]
struct LaunchAttribute {
    id: c_uint,
    pad: [u8; 4],
    value: [u32; 16],
}

/// Ids of launch attributes.
const COOPERATIVE: c_uint = 2;
const CLUSTER_DIMENSION: c_uint = 4;
const PROGRAMMATIC_SERIALIZATION: c_uint = 6;

/// `CUtensorMap`: 128 opaque bytes, aligned as the newest driver wants it.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub struct TensorMap(pub [u64; 16]);

functions! {
    #[allow(non_snake_case)]
    struct Table {
        cuInit: fn(flags: c_uint);
        cuDriverGetVersion: fn(version: *mut c_int);
        cuGetErrorName: fn(code: c_int, name: *mut *const c_char);
        cuGetErrorString: fn(code: c_int, text: *mut *const c_char);
        cuDeviceGetCount: fn(count: *mut c_int);
        cuDeviceGetName: fn(name: *mut c_char, len: c_int, device: c_int);
        cuDeviceGetUuid_v2: fn(uuid: *mut [u8; 16], device: c_int);
        cuDeviceTotalMem_v2: fn(bytes: *mut usize, device: c_int);
        cuDeviceGetAttribute: fn(value: *mut c_int, attribute: c_int, device: c_int);
        cuDevicePrimaryCtxRetain: fn(context: *mut Handle, device: c_int);
        cuCtxSetCurrent: fn(context: Handle);
        cuCtxSynchronize: fn();
        cuCtxGetDevice: fn(device: *mut c_int);
        cuStreamGetCtx: fn(stream: Handle, context: *mut Handle);
        cuMemGetInfo_v2: fn(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2: fn(address: *mut Address, bytes: usize);
        cuMemFree_v2: fn(address: Address);
        cuMemGetAllocationGranularity: fn(bytes: *mut usize, of: *const pages::Properties, option: c_int);
        cuMemAddressReserve: fn(address: *mut Address, bytes: usize, alignment: usize, wanted: Address, flags: u64);
        cuMemAddressFree: fn(address: Address, bytes: usize);
        cuMemCreate: fn(handle: *mut u64, bytes: usize, of: *const pages::Properties, flags: u64);
        cuMemRelease: fn(handle: u64);
        cuMemMap: fn(address: Address, bytes: usize, offset: usize, handle: u64, flags: u64);
        cuMemUnmap: fn(address: Address, bytes: usize);
        cuMemSetAccess: fn(address: Address, bytes: usize, access: *const pages::Access, count: usize);
        cuMemHostAlloc: fn(pointer: *mut Handle, bytes: usize, flags: c_uint);
        cuMemHostGetDevicePointer_v2: fn(address: *mut Address, pointer: Handle, flags: c_uint);
        cuMemcpyHtoDAsync_v2: fn(to: Address, from: *const c_void, bytes: usize, stream: Handle);
        cuMemcpyDtoHAsync_v2: fn(to: *mut c_void, from: Address, bytes: usize, stream: Handle);
        cuMemcpyDtoDAsync_v2: fn(to: Address, from: Address, bytes: usize, stream: Handle);
        cuMemsetD8Async: fn(to: Address, value: u8, bytes: usize, stream: Handle);
        cuStreamCreate: fn(stream: *mut Handle, flags: c_uint);
        cuStreamDestroy_v2: fn(stream: Handle);
        cuStreamSynchronize: fn(stream: Handle);
        cuStreamQuery: fn(stream: Handle);
        cuStreamBeginCapture_v2: fn(stream: Handle, mode: c_int);
        cuStreamEndCapture: fn(stream: Handle, graph: *mut Handle);
        cuGraphInstantiateWithFlags: fn(exec: *mut Handle, graph: Handle, flags: u64);
        cuGraphUpload: fn(exec: Handle, stream: Handle);
        cuGraphLaunch: fn(exec: Handle, stream: Handle);
        cuGraphDestroy: fn(graph: Handle);
        cuGraphExecDestroy: fn(exec: Handle);
        cuEventCreate: fn(event: *mut Handle, flags: c_uint);
        cuEventRecord: fn(event: Handle, stream: Handle);
        cuEventElapsedTime: fn(ms: *mut f32, start: Handle, end: Handle);
        cuEventElapsedTime_v2: fn(ms: *mut f32, start: Handle, end: Handle);
        cuEventDestroy_v2: fn(event: Handle);
        cuModuleLoadData: fn(module: *mut Handle, image: *const c_void);
        cuModuleUnload: fn(module: Handle);
        cuModuleGetFunction: fn(function: *mut Handle, module: Handle, name: *const c_char);
        cuFuncGetAttribute: fn(value: *mut c_int, attribute: c_int, function: Handle);
        cuFuncSetAttribute: fn(function: Handle, attribute: c_int, value: c_int);
        cuOccupancyMaxActiveBlocksPerMultiprocessor: fn(blocks: *mut c_int, function: Handle, threads: c_int, shared: usize);
        cuOccupancyMaxActiveClusters: fn(clusters: *mut c_int, function: Handle, config: *const LaunchConfig);
        cuLaunchKernel: fn(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
        cuLaunchKernelEx: fn(config: *const LaunchConfig, function: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
        cuTensorMapEncodeTiled: fn(map: *mut TensorMap, dtype: c_int, rank: c_uint, address: *mut c_void, dims: *const u64, strides: *const u64, tile: *const u32, steps: *const u32, interleave: c_int, swizzle: c_int, promotion: c_int, fill: c_int);
    }
}

pub struct Driver {
    table: Table,
    pub path: String,
    /// Such as 13.0 for 13000.
    pub version: (i32, i32),
    _library: Library,
}

// SAFETY: the driver may be called from any thread.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

/// Device attributes by NVIDIA's numbers.
#[derive(Clone, Copy)]
pub enum Attribute {
    ClockKhz = 13,
    Multiprocessors = 16,
    MemoryClockKhz = 36,
    BusBits = 37,
    L2Bytes = 38,
    Major = 75,
    Minor = 76,
    SharedBytes = 97,
}

/// Figures of a compiled kernel, likewise.
#[derive(Clone, Copy)]
pub enum Figure {
    MaxThreads = 0,
    Shared = 1,
    Local = 3,
    Registers = 4,
}

impl Driver {
    /// The driver, loaded once; `Err` says why there is none.
    pub fn get() -> Result<&'static Driver, String> {
        static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
        DRIVER.get_or_init(Driver::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Driver, String> {
        let library = Library::open(&["libcuda.so.1", "libcuda.so"])
            .map_err(|e| format!("no CUDA driver: {e}. It comes with NVIDIA's driver package"))?;
        let table = Table::of(&library);
        let mut driver = Driver { table, path: library.path.clone(), version: (0, 0), _library: library };
        let mut version = 0;
        // SAFETY: one integer is written.
        driver
            .check(unsafe { driver.table.cuDriverGetVersion(&mut version) }, "cuDriverGetVersion")
            .map_err(|f| f.message)?;
        driver.version = (version / 1000, version % 1000 / 10);
        // SAFETY: takes no memory.
        driver.check(unsafe { driver.table.cuInit(0) }, "cuInit").map_err(|f| f.message)?;
        Ok(driver)
    }

    /// A code as a fault.
    fn check(&self, code: c_int, what: &str) -> Result<(), Fault> {
        if code == 0 {
            return Ok(());
        }
        if code == MISSING {
            let (major, minor) = self.version;
            let message =
                format!("the CUDA driver ({}, for CUDA {major}.{minor}) has no {what}: it is too old", self.path);
            return Err(Fault::new(Status::Unavailable, message));
        }
        let status = match code {
            2 => Status::OutOfMemory,
            // Not initialised, no device, insufficient or mismatched driver, not permitted, not supported.
            3 | 34 | 35 | 100 | 101 | 800 | 801 | 803 | 804 => Status::Unavailable,
            200 | 209 | 218 | 221..=223 | 500 => Status::BuildFailed,
            _ => Status::Crashed,
        };
        Err(Fault::new(status, format!("{what}: {}", self.words(code))))
    }

    fn words(&self, code: c_int) -> String {
        let text = |get: &dyn Fn(*mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            let known = get(&mut text) == 0 && !text.is_null();
            // SAFETY: the driver's strings are static and end with a zero.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        // SAFETY: one pointer is written.
        let name = text(&|p| unsafe { self.table.cuGetErrorName(code, p) });
        // SAFETY: as above.
        let meaning = text(&|p| unsafe { self.table.cuGetErrorString(code, p) });
        match (name, meaning) {
            (Some(name), Some(meaning)) => format!("{meaning} ({name})"),
            _ => format!("error {code}, which this driver does not explain"),
        }
    }

    pub fn device_count(&self) -> Result<usize, Fault> {
        let mut count = 0;
        // SAFETY: one integer is written.
        self.check(unsafe { self.table.cuDeviceGetCount(&mut count) }, "cuDeviceGetCount")?;
        Ok(count as usize)
    }

    pub fn l2_bytes(&self, device: i32) -> Result<u64, Fault> {
        self.attribute(device, Attribute::L2Bytes).map(|bytes| bytes as u64)
    }

    /// The architecture as compilers name it.
    pub fn arch(&self, device: i32) -> Result<String, Fault> {
        let (major, minor) = (self.attribute(device, Attribute::Major)?, self.attribute(device, Attribute::Minor)?);
        // From Hopper on, the `a` architectures have instructions that their number alone does not.
        Ok(format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" }))
    }

    pub fn attribute(&self, device: i32, attribute: Attribute) -> Result<i32, Fault> {
        let mut value = 0;
        // SAFETY: one integer is written.
        let code = unsafe { self.table.cuDeviceGetAttribute(&mut value, attribute as c_int, device) };
        self.check(code, "cuDeviceGetAttribute").map(|()| value)
    }

    pub fn device_name(&self, device: i32) -> Result<String, Fault> {
        let mut name = [0u8; 256];
        // SAFETY: at most as many bytes are written as there are.
        let code = unsafe { self.table.cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        self.check(code, "cuDeviceGetName")?;
        Ok(CStr::from_bytes_until_nul(&name).map(|c| c.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// As NVIDIA's tools write it: `GPU-…`.
    pub fn device_uuid(&self, device: i32) -> Result<String, Fault> {
        let mut b = [0u8; 16];
        // SAFETY: 16 bytes are written.
        self.check(unsafe { self.table.cuDeviceGetUuid_v2(&mut b, device) }, "cuDeviceGetUuid")?;
        let hex = |range: std::ops::Range<usize>| b[range].iter().map(|v| format!("{v:02x}")).collect::<String>();
        Ok(format!("GPU-{}-{}-{}-{}-{}", hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)))
    }

    pub fn total_memory(&self, device: i32) -> Result<u64, Fault> {
        let mut bytes = 0;
        // SAFETY: one integer is written.
        self.check(unsafe { self.table.cuDeviceTotalMem_v2(&mut bytes, device) }, "cuDeviceTotalMem")?;
        Ok(bytes as u64)
    }
}

/// A tile of a matrix of rows for the tensor memory accelerator. `dtype`, `swizzle` by NVIDIA's numbers.
pub struct TileOf<'a> {
    pub dtype: i32,
    pub address: Address,
    /// Sizes, innermost first.
    pub dims: &'a [u64],
    /// Bytes from one index to the next, of all dimensions but the innermost.
    pub strides: &'a [u64],
    pub tile: &'a [u32],
    pub swizzle: i32,
    /// How much the L2 cache fetches at least, by NVIDIA's numbers.
    pub promotion: i32,
}

impl Driver {
    pub fn tensor_map(&self, of: &TileOf) -> Result<TensorMap, Fault> {
        let mut map = TensorMap([0; 16]);
        let steps = vec![1u32; of.dims.len()];
        // SAFETY: lists have `rank` entries (strides one less), 128 bytes are written.
        let code = unsafe {
            self.table.cuTensorMapEncodeTiled(
                &mut map,
                of.dtype,
                of.dims.len() as c_uint,
                of.address as *mut c_void,
                of.dims.as_ptr(),
                of.strides.as_ptr(),
                of.tile.as_ptr(),
                steps.as_ptr(),
                0,
                of.swizzle,
                of.promotion,
                0,
            )
        };
        self.check(code, "cuTensorMapEncodeTiled").map(|()| map)
    }
}
