//! The CUDA driver behind a table of our own: every call returns a fault that says what happened. Why not a crate: the
//! one that exists panics on a missing library or symbol and reads result codes into Rust enums, so that a code of a newer
//! driver is undefined behaviour; here codes are plain integers, and what a driver lacks is a state.

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

const CLUSTER_DIMENSION: c_uint = 4;

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
        cuStreamGetCtx: fn(stream: Handle, context: *mut Handle);
        cuMemGetInfo_v2: fn(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2: fn(address: *mut Address, bytes: usize);
        cuMemFree_v2: fn(address: Address);
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

/// A device's context and one stream on it: all work of a worker, in order.
pub struct Queue {
    driver: &'static Driver,
    context: Handle,
    stream: Handle,
    /// A stream that somebody else made is not destroyed.
    borrowed: bool,
}

impl Queue {
    /// The device's primary context, which other libraries of the process share, and a stream of our own.
    pub fn open(driver: &'static Driver, device: i32) -> Result<Queue, Fault> {
        let mut queue = Queue { driver, context: std::ptr::null_mut(), stream: std::ptr::null_mut(), borrowed: true };
        // SAFETY: one handle is written by each call; the context stays retained until the process ends.
        unsafe {
            driver
                .check(driver.table.cuDevicePrimaryCtxRetain(&mut queue.context, device), "cuDevicePrimaryCtxRetain")?;
            queue.enter()?;
            const NON_BLOCKING: c_uint = 1;
            driver.check(driver.table.cuStreamCreate(&mut queue.stream, NON_BLOCKING), "cuStreamCreate")?;
        }
        queue.borrowed = false;
        Ok(queue)
    }

    /// A stream that somebody else owns, in the context that it belongs to.
    ///
    /// # Safety
    /// `stream` is a stream of this process that outlives the queue.
    pub unsafe fn borrow(driver: &'static Driver, stream: *mut c_void) -> Result<Queue, Fault> {
        let mut context = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        driver.check(unsafe { driver.table.cuStreamGetCtx(stream, &mut context) }, "cuStreamGetCtx")?;
        let queue = Queue { driver, context, stream, borrowed: true };
        queue.enter()?;
        Ok(queue)
    }

    /// Makes the context this thread's.
    pub fn enter(&self) -> Result<(), Fault> {
        // SAFETY: the context is alive.
        self.call(unsafe { self.driver.table.cuCtxSetCurrent(self.context) }, "cuCtxSetCurrent")
    }

    fn call(&self, code: c_int, what: &str) -> Result<(), Fault> {
        self.driver.check(code, what)
    }

    /// Free and total bytes.
    pub fn memory(&self) -> Result<(u64, u64), Fault> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two integers are written.
        self.call(unsafe { self.driver.table.cuMemGetInfo_v2(&mut free, &mut total) }, "cuMemGetInfo")?;
        Ok((free as u64, total as u64))
    }

    pub fn alloc(&self, bytes: usize) -> Result<Address, Fault> {
        let mut address = 0;
        // SAFETY: one address is written.
        self.call(unsafe { self.driver.table.cuMemAlloc_v2(&mut address, bytes.max(1)) }, "cuMemAlloc")?;
        Ok(address)
    }

    /// Memory that is not freed costs nothing that the end of the process does not bring back.
    pub fn free(&self, address: Address) {
        // SAFETY: the address came from `alloc` and is given back once; the driver waits for its users.
        let _ = unsafe { self.driver.table.cuMemFree_v2(address) };
    }

    /// Host memory that the device sees, too: pointer and device address. Stays until the process ends.
    pub fn shared_words(&self, words: usize) -> Result<(*mut u32, Address), Fault> {
        let (mut pointer, mut address) = (std::ptr::null_mut(), 0);
        const DEVICE_MAP: c_uint = 2;
        // SAFETY: pointer and address are written.
        unsafe {
            self.call(self.driver.table.cuMemHostAlloc(&mut pointer, words * 4, DEVICE_MAP), "cuMemHostAlloc")?;
            let code = self.driver.table.cuMemHostGetDevicePointer_v2(&mut address, pointer, 0);
            self.call(code, "cuMemHostGetDevicePointer")?;
            std::ptr::write_bytes(pointer.cast::<u32>(), 0, words);
        }
        Ok((pointer.cast(), address))
    }

    /// Copies to the device and waits.
    pub fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: the source is read before the wait below ends; `to` has room for it.
        let code =
            unsafe { self.driver.table.cuMemcpyHtoDAsync_v2(to, bytes.as_ptr().cast(), bytes.len(), self.stream) };
        self.call(code, "cuMemcpyHtoD")?;
        self.wait()
    }

    /// Copies from the device and waits.
    pub fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: the target is written before the wait below ends; `from` holds as many bytes.
        let code = unsafe {
            self.driver.table.cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from, bytes.len(), self.stream)
        };
        self.call(code, "cuMemcpyDtoH")?;
        self.wait()
    }

    pub fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<(), Fault> {
        // SAFETY: both are device memory of that size.
        let code = unsafe { self.driver.table.cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) };
        self.call(code, "cuMemcpyDtoD")
    }

    pub fn set(&self, to: Address, value: u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: device memory of that size.
        let code = unsafe { self.driver.table.cuMemsetD8Async(to, value, bytes, self.stream) };
        self.call(code, "cuMemsetD8")
    }

    /// Waits for everything that was enqueued. Errors of kernels show here.
    pub fn wait(&self) -> Result<(), Fault> {
        // SAFETY: the stream is alive.
        self.call(unsafe { self.driver.table.cuStreamSynchronize(self.stream) }, "the launch failed")
    }

    /// Whether everything enqueued is done.
    pub fn is_done(&self) -> Result<bool, Fault> {
        const NOT_READY: c_int = 600;
        // SAFETY: the stream is alive.
        match unsafe { self.driver.table.cuStreamQuery(self.stream) } {
            NOT_READY => Ok(false),
            code => self.call(code, "the launch failed").map(|()| true),
        }
    }

    /// Enqueues a launch. `params` are pointers to the kernel's arguments.
    pub fn launch(
        &self,
        function: &Function,
        shape: &super::directives::Shape,
        params: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        let what = &function.name;
        if shape.cluster > 1 {
            let mut attribute = LaunchAttribute { id: CLUSTER_DIMENSION, pad: [0; 4], value: [0; 16] };
            attribute.value[..3].copy_from_slice(&[shape.cluster, 1, 1]);
            let config = LaunchConfig {
                grid: shape.grid,
                block: shape.block,
                shared: shape.shared,
                stream: self.stream,
                attributes: &mut attribute,
                count: 1,
            };
            // SAFETY: config and params outlive the call; params match the kernel, as its maker says.
            let code = unsafe {
                let none = std::ptr::null_mut();
                self.driver.table.cuLaunchKernelEx(&config, function.handle, params.as_mut_ptr(), none)
            };
            return self.call(code, what);
        }
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        // SAFETY: params outlive the call and match the kernel, as its maker says.
        let code = unsafe {
            let none = std::ptr::null_mut();
            let params = params.as_mut_ptr();
            self.driver.table.cuLaunchKernel(
                function.handle,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shape.shared,
                self.stream,
                params,
                none,
            )
        };
        self.call(code, what)
    }

    /// Records what `enqueue` enqueues as a graph instead of running it.
    pub fn capture(&self, enqueue: impl FnOnce() -> Result<(), Fault>) -> Result<Graph, Fault> {
        let (table, mut graph, mut exec) = (&self.driver.table, std::ptr::null_mut(), std::ptr::null_mut());
        const THREAD_LOCAL: c_int = 1;
        // SAFETY: the stream is ours; every capture that begins also ends.
        unsafe {
            self.call(table.cuStreamBeginCapture_v2(self.stream, THREAD_LOCAL), "cuStreamBeginCapture")?;
            let enqueued = enqueue();
            let ended = self.call(table.cuStreamEndCapture(self.stream, &mut graph), "cuStreamEndCapture");
            let made = enqueued
                .and(ended)
                .and_then(|()| self.call(table.cuGraphInstantiateWithFlags(&mut exec, graph, 0), "cuGraphInstantiate"));
            if !graph.is_null() {
                table.cuGraphDestroy(graph);
            }
            made?;
            let graph = Graph { driver: self.driver, exec };
            self.call(table.cuGraphUpload(exec, self.stream), "cuGraphUpload")?;
            Ok(graph)
        }
    }

    pub fn replay(&self, graph: &Graph) -> Result<(), Fault> {
        // SAFETY: both are alive.
        self.call(unsafe { self.driver.table.cuGraphLaunch(graph.exec, self.stream) }, "cuGraphLaunch")
    }

    pub fn event(&self) -> Result<Event, Fault> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: one handle is written.
        self.call(unsafe { self.driver.table.cuEventCreate(&mut handle, 0) }, "cuEventCreate")?;
        Ok(Event { driver: self.driver, handle })
    }

    pub fn record(&self, event: &Event) -> Result<(), Fault> {
        // SAFETY: both are alive.
        self.call(unsafe { self.driver.table.cuEventRecord(event.handle, self.stream) }, "cuEventRecord")
    }

    /// A loaded cubin, or PTX that ends with a zero byte.
    pub fn module(&self, image: &[u8]) -> Result<Module, Fault> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the image is read during the call.
        let code = unsafe { self.driver.table.cuModuleLoadData(&mut handle, image.as_ptr().cast()) };
        self.call(code, "cuModuleLoadData")?;
        Ok(Module { driver: self.driver, handle })
    }

    /// The raw stream, for libraries that enqueue on it.
    pub fn stream(&self) -> *mut c_void {
        self.stream
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.borrowed {
            // SAFETY: made by `open`, destroyed once.
            let _ = unsafe { self.driver.table.cuStreamDestroy_v2(self.stream) };
        }
    }
}

pub struct Event {
    driver: &'static Driver,
    handle: Handle,
}

impl Event {
    /// Nanoseconds from `self` to `end`; both have happened.
    pub fn ns_to(&self, end: &Event) -> Result<f64, Fault> {
        let (table, mut ms) = (&self.driver.table, 0.0);
        // SAFETY: one float is written; both events are alive.
        let code = unsafe {
            match table.cuEventElapsedTime_v2 {
                Some(_) => table.cuEventElapsedTime_v2(&mut ms, self.handle, end.handle),
                None => table.cuEventElapsedTime(&mut ms, self.handle, end.handle),
            }
        };
        self.driver.check(code, "cuEventElapsedTime")?;
        Ok(ms as f64 * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { self.driver.table.cuEventDestroy_v2(self.handle) };
    }
}

pub struct Graph {
    driver: &'static Driver,
    exec: Handle,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated once, destroyed once.
        let _ = unsafe { self.driver.table.cuGraphExecDestroy(self.exec) };
    }
}

pub struct Module {
    driver: &'static Driver,
    handle: Handle,
}

impl Module {
    /// A kernel by name; stays valid while the module lives.
    pub fn function(&self, name: &str) -> Result<Function, Fault> {
        let c = std::ffi::CString::new(name)
            .map_err(|_| Fault::new(Status::BuildFailed, "a zero byte in a kernel's name"))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: one handle is written; the name ends with a zero.
        let code = unsafe { self.driver.table.cuModuleGetFunction(&mut handle, self.handle, c.as_ptr()) };
        self.driver.check(code, &format!("kernel {name}")).map_err(|f| match f.status {
            Status::BuildFailed => {
                let why = "is not in the file; write it as extern \"C\" __global__ void";
                Fault::new(Status::BuildFailed, format!("kernel {name} {why}"))
            }
            _ => f,
        })?;
        Ok(Function { driver: self.driver, handle, name: name.to_string() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once; launches of its kernels hold the module.
        let _ = unsafe { self.driver.table.cuModuleUnload(self.handle) };
    }
}

pub struct Function {
    driver: &'static Driver,
    handle: Handle,
    pub name: String,
}

impl Function {
    pub fn figure(&self, figure: Figure) -> Result<u32, Fault> {
        let mut value = 0;
        // SAFETY: one integer is written.
        let code = unsafe { self.driver.table.cuFuncGetAttribute(&mut value, figure as c_int, self.handle) };
        self.driver.check(code, "cuFuncGetAttribute").map(|()| value as u32)
    }

    /// Allows as much dynamic shared memory; more than 48 KB must be asked for.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), Fault> {
        const MAX_DYNAMIC_SHARED: c_int = 8;
        if bytes <= 48 << 10 {
            return Ok(());
        }
        // SAFETY: the function is alive.
        let code = unsafe { self.driver.table.cuFuncSetAttribute(self.handle, MAX_DYNAMIC_SHARED, bytes as c_int) };
        self.driver.check(code, "shared memory").map_err(|_| {
            let message = format!("kernel {} wants {bytes} bytes of shared memory; this GPU has less", self.name);
            Fault::new(Status::Unsupported, message)
        })
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
}

impl Driver {
    pub fn tensor_map(&self, of: &TileOf) -> Result<TensorMap, Fault> {
        let mut map = TensorMap([0; 16]);
        let steps = vec![1u32; of.dims.len()];
        const L2_PROMOTION_256: c_int = 3;
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
                L2_PROMOTION_256,
                0,
            )
        };
        self.check(code, "cuTensorMapEncodeTiled").map(|()| map)
    }
}
