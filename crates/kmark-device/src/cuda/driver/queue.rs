//! What work is made of: a context's stream, memory, events, graphs, modules and their kernels.

use super::{Address, CLUSTER_DIMENSION, COOPERATIVE, PROGRAMMATIC_SERIALIZATION};
use super::{Driver, Figure, Handle, LaunchAttribute, LaunchConfig};
use crate::Fault;
use crate::cuda::kernel_line::{Fits, Shape, With};
use kmark_core::record::Status;
use std::ffi::{c_int, c_uint, c_void};

/// A stream that does not wait for the default one.
const NON_BLOCKING: c_uint = 1;

/// How a fault of a kernel begins.
pub const LAUNCH_FAILED: &str = "the launch failed";

/// A device's context and one stream on it: all work of a worker, in order.
pub struct Queue {
    pub(super) driver: &'static Driver,
    context: Handle,
    stream: Handle,
    /// A stream that somebody else made is not destroyed.
    borrowed: bool,
}

// SAFETY: the driver's handles may be used by any thread; whoever launches from another one enters the context there.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// The device's primary context, which other libraries of the process share, and a stream of our own.
    pub fn open(driver: &'static Driver, device: i32) -> Result<Queue, Fault> {
        let mut queue = Queue { driver, context: std::ptr::null_mut(), stream: std::ptr::null_mut(), borrowed: true };
        // SAFETY: one handle is written by each call; the context stays retained until the process ends.
        unsafe {
            driver
                .check(driver.table.cuDevicePrimaryCtxRetain(&mut queue.context, device), "cuDevicePrimaryCtxRetain")?;
            queue.enter()?;
            driver.check(driver.table.cuStreamCreate(&mut queue.stream, NON_BLOCKING), "cuStreamCreate")?;
        }
        queue.borrowed = false;
        Ok(queue)
    }

    /// A stream that somebody else owns, in the context that it belongs to. The default stream has none of its own: it is
    /// taken as that of the device's primary context.
    ///
    /// # Safety
    /// `stream` is a stream of this process that outlives the queue.
    pub unsafe fn borrow(driver: &'static Driver, device: i32, stream: *mut c_void) -> Result<Queue, Fault> {
        let mut context = std::ptr::null_mut();
        // SAFETY: one handle is written; the stream is what the caller promises.
        let code = unsafe {
            match stream.is_null() {
                true => driver.table.cuDevicePrimaryCtxRetain(&mut context, device),
                false => driver.table.cuStreamGetCtx(stream, &mut context),
            }
        };
        driver.check(code, "the context of a stream")?;
        let queue = Queue { driver, context, stream, borrowed: true };
        queue.enter()?;
        Ok(queue)
    }

    /// A stream of its own in the same context, which waits for no other.
    pub fn another(&self) -> Result<Queue, Fault> {
        let mut queue =
            Queue { driver: self.driver, context: self.context, stream: std::ptr::null_mut(), borrowed: true };
        // SAFETY: one handle is written.
        self.call(unsafe { self.driver.table.cuStreamCreate(&mut queue.stream, NON_BLOCKING) }, "cuStreamCreate")?;
        queue.borrowed = false;
        Ok(queue)
    }

    /// Waits for everything on every stream.
    pub fn wait_for_card(&self) -> Result<(), Fault> {
        // SAFETY: the context is this thread's.
        self.call(unsafe { self.driver.table.cuCtxSynchronize() }, LAUNCH_FAILED)
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
        self.call(unsafe { self.driver.table.cuStreamSynchronize(self.stream) }, LAUNCH_FAILED)
    }

    /// Whether everything enqueued is done.
    pub fn is_done(&self) -> Result<bool, Fault> {
        const NOT_READY: c_int = 600;
        // SAFETY: the stream is alive.
        match unsafe { self.driver.table.cuStreamQuery(self.stream) } {
            NOT_READY => Ok(false),
            code => self.call(code, LAUNCH_FAILED).map(|()| true),
        }
    }

    /// Enqueues a launch. `params` are pointers to the kernel's arguments.
    pub fn launch(&self, function: &Function, shape: &Shape, params: &mut [*mut c_void]) -> Result<(), Fault> {
        let what = &function.name;
        let mut attributes = attributes(shape);
        if !attributes.is_empty() {
            let config = launch_config(shape, self.stream, &mut attributes);
            // SAFETY: config, attributes and params outlive the call; params match the kernel, as its maker says.
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

    pub fn driver(&self) -> &'static Driver {
        self.driver
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

/// What a launch asks for beyond grid and block.
fn attribute(id: c_uint, words: &[u32]) -> LaunchAttribute {
    let mut attribute = LaunchAttribute { id, pad: [0; 4], value: [0; 16] };
    attribute.value[..words.len()].copy_from_slice(words);
    attribute
}

fn attributes(shape: &Shape) -> Vec<LaunchAttribute> {
    let cluster = (shape.cluster != [1; 3]).then(|| attribute(CLUSTER_DIMENSION, &shape.cluster));
    let with = shape.with.iter().map(|with| match with {
        With::Cooperative => attribute(COOPERATIVE, &[1]),
        With::Overlap => attribute(PROGRAMMATIC_SERIALIZATION, &[1]),
    });
    cluster.into_iter().chain(with).collect()
}

/// Valid while the attributes live.
fn launch_config(shape: &Shape, stream: Handle, attributes: &mut [LaunchAttribute]) -> LaunchConfig {
    LaunchConfig {
        grid: shape.grid,
        block: shape.block,
        shared: shape.shared,
        stream,
        attributes: attributes.as_mut_ptr(),
        count: attributes.len() as c_uint,
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

// SAFETY: as for a queue.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

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

    /// How many blocks or clusters of a launch the GPU holds at once.
    pub fn fits(&self, fits: Fits, shape: &Shape) -> Result<u32, Fault> {
        self.allow_shared(shape.shared)?;
        self.allow_cluster(shape.cluster)?;
        let (table, mut count) = (&self.driver.table, 0);
        match fits {
            Fits::Occupancy => {
                let (threads, shared) = (shape.block.iter().product::<u32>() as c_int, shape.shared as usize);
                // SAFETY: one integer is written; the function is alive.
                let code = unsafe {
                    table.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut count, self.handle, threads, shared)
                };
                self.driver.check(code, "cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
            }
            Fits::Clusters => {
                let mut cluster = [attribute(CLUSTER_DIMENSION, &shape.cluster)];
                let config = launch_config(shape, std::ptr::null_mut(), &mut cluster);
                // SAFETY: one integer is written; the function is alive, and config and its attribute outlive the call.
                let code = unsafe { table.cuOccupancyMaxActiveClusters(&mut count, self.handle, &config) };
                self.driver.check(code, "cuOccupancyMaxActiveClusters")?;
            }
        }
        Ok(count as u32)
    }

    /// Allows clusters of more than eight blocks, which not every GPU can run.
    pub fn allow_cluster(&self, cluster: [u32; 3]) -> Result<(), Fault> {
        const NON_PORTABLE_CLUSTER: c_int = 14;
        if cluster.iter().product::<u32>() <= 8 {
            return Ok(());
        }
        // SAFETY: the function is alive.
        let code = unsafe { self.driver.table.cuFuncSetAttribute(self.handle, NON_PORTABLE_CLUSTER, 1) };
        self.driver.check(code, "clusters of more than eight blocks")
    }
}
