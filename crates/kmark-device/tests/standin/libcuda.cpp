// A stand-in for NVIDIA's driver library: devices that are the CPU, of which a process uses one. What the host can see is as with a GPU: every
// stream is a queue with a thread of its own, calls come back before the work is done, events get their time when the
// queue reaches them, a fault makes the context sick for good. Handles and addresses are checked, allocations end at a
// page that nobody may touch. Modules are what libnvrtc.cpp makes; fibers.h runs their kernels, calls.h has the log and
// the injected faults.
//   KMARK_STANDIN_MEMORY   bytes of the device's memory, 2 GiB if not set
//   KMARK_STANDIN_DEVICES  how many there are, 1 if not set
//   KMARK_STANDIN_LOST     NUMBER:FILE, or all:FILE; once there is such a file, that device does nothing any more
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <set>
#include <thread>

#include "calls.h"
#include "fibers.h"

using std::shared_ptr;
using std::string;
typedef uint32_t u32;
typedef uint64_t u64;
typedef std::unique_lock<std::mutex> Hold;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};
static const struct { int code; const char *name, *text; } ERRORS[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

// ---- State ---------------------------------------------------------------------------------------------------------

typedef std::function<int()> Work;

struct Graph {
    std::vector<Work> nodes;
};
struct GraphExec {
    std::vector<Work> nodes;
};

struct Stream {
    std::mutex lock;
    std::condition_variable changed;
    std::deque<Work> queue;
    u64 given = 0, done = 0; // works put into the queue, works finished
    bool closed = false, broken = false;
    shared_ptr<Graph> capture;

    u64 put(Work work) {
        Hold hold(lock);
        queue.push_back(std::move(work));
        changed.notify_all();
        return ++given;
    }
    void wait() {
        Hold hold(lock);
        u64 until = given;
        changed.wait(hold, [&] { return done >= until; });
    }
    void serve();
};

struct Event {
    std::mutex lock;
    std::condition_variable changed;
    u64 given = 0, done = 0, time = 0;
    bool timed = true;
};

struct Module {
    void* library;
    const emu_Module* table;
};
struct Function {
    shared_ptr<Module> module; // stays loaded while a launch of it is queued
    const emu_Kernel* kernel;
    std::atomic<int> max_shared{48 << 10};
};

// Handles are addresses of objects; one that is not (any more) in the table is refused, not followed.
template <class T> class Handles {
public:
    T* add(shared_ptr<T> object) {
        Hold hold(lock);
        table[object.get()] = object;
        return object.get();
    }
    shared_ptr<T> get(T* handle) {
        Hold hold(lock);
        auto at = table.find(handle);
        return at == table.end() ? nullptr : at->second;
    }
    shared_ptr<T> remove(T* handle) {
        shared_ptr<T> object = get(handle);
        Hold hold(lock);
        table.erase(handle);
        return object;
    }
    std::vector<shared_ptr<T>> all() {
        Hold hold(lock);
        std::vector<shared_ptr<T>> list;
        for (auto& entry : table) list.push_back(entry.second);
        return list;
    }

private:
    std::mutex lock;
    std::map<T*, shared_ptr<T>> table;
};

struct Range {
    size_t bytes, mapped;
    char* map;
    bool host;
};

struct Driver {
    std::atomic<bool> ready{false};
    std::atomic<int> sick{0}, retained{0}, device{0};
    Handles<Stream> streams;
    Handles<Event> events;
    Handles<Module> modules;
    Handles<Function> functions;
    Handles<Graph> graphs;
    Handles<GraphExec> execs;
    Stream* default_stream = nullptr;
    std::mutex lock; // of all below
    std::map<u64, Range> ranges;
    size_t used = 0, limit = 2ull << 30;

    Driver() {
        if (const char* bytes = getenv("KMARK_STANDIN_MEMORY")) limit = strtoull(bytes, nullptr, 0);
    }
};
// Never destroyed: the threads of the streams may outlive main.
static Driver& driver = *new Driver;
static char context; // only its address counts
static thread_local void* current = nullptr;

static void fall_sick(int code) {
    int healthy = 0;
    driver.sick.compare_exchange_strong(healthy, code);
}

void Stream::serve() {
    Hold hold(lock);
    for (;;) {
        changed.wait(hold, [&] { return closed || !queue.empty(); });
        if (queue.empty()) return;
        Work work = std::move(queue.front());
        queue.pop_front();
        hold.unlock();
        if (int code = work()) fall_sick(code);
        work = nullptr; // lets go of what it holds before anyone hears that it is done
        hold.lock();
        done++;
        changed.notify_all();
    }
}

static Stream* new_stream() {
    auto stream = std::make_shared<Stream>();
    std::thread([stream] { stream->serve(); }).detach();
    return driver.streams.add(stream);
}

// 0 and the two special handles are one ordinary stream here.
static shared_ptr<Stream> find_stream(Stream* handle) {
    return driver.streams.get((uintptr_t)handle <= 2 ? driver.default_stream : handle);
}

static void wait_for_all() {
    for (auto& stream : driver.streams.all()) stream->wait();
}

// Puts work into the stream, or into the graph that is being captured there. Nothing runs in a sick context.
static int submit(Stream* handle, Work work, bool wait = false) {
    auto stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    Work checked = [work = std::move(work)] { return driver.sick ? 0 : work(); };
    if (stream->capture) {
        stream->capture->nodes.push_back(std::move(checked));
        return SUCCESS;
    }
    stream->put(std::move(checked));
    if (wait) stream->wait();
    return wait ? driver.sick.load() : SUCCESS;
}

// Every exported function starts with one of these: the first needs nothing, the last a healthy current context.
static int devices() {
    static const char* set = getenv("KMARK_STANDIN_DEVICES");
    return set ? atoi(set) : 1;
}
static bool is_device(int device) { return device >= 0 && device < devices(); }
static bool is_lost(int device) {
    static const char* set = getenv("KMARK_STANDIN_LOST");
    if (!set || (strncmp(set, "all:", 4) && atoi(set) != device)) return false;
    const char* file = strchr(set, ':');
    return file && access(file + 1, F_OK) == 0;
}

#define NOTE(...) \
    if (int injected = Calls::note(__func__, string(__VA_ARGS__))) return injected
#define NEED_INIT(...) \
    NOTE(__VA_ARGS__); \
    if (!driver.ready) return NOT_INITIALIZED
#define NEED_CONTEXT(...) \
    NEED_INIT(__VA_ARGS__); \
    if (!current) return INVALID_CONTEXT; \
    if (is_lost(driver.device)) fall_sick(DEVICE_UNAVAILABLE); \
    if (int code = driver.sick) return code

// ---- Device and context --------------------------------------------------------------------------------------------

API(cuInit, unsigned flags) {
    NOTE();
    driver.ready = true;
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}
API(cuDriverGetVersion, int* version) {
    NOTE();
    *version = 13000;
    return SUCCESS;
}
API(cuGetErrorName, int code, const char** name) {
    NOTE();
    for (auto& e : ERRORS)
        if (e.code == code) return *name = e.name, SUCCESS;
    return INVALID_VALUE;
}
API(cuGetErrorString, int code, const char** text) {
    NOTE();
    for (auto& e : ERRORS)
        if (e.code == code) return *text = e.text, SUCCESS;
    return INVALID_VALUE;
}
API(cuDeviceGetCount, int* count) {
    NEED_INIT();
    *count = devices();
    return SUCCESS;
}
API(cuDeviceGet, int* device, int ordinal) {
    NEED_INIT();
    *device = ordinal;
    return is_device(ordinal) ? SUCCESS : INVALID_DEVICE;
}
API(cuDeviceGetName, char* name, int size, int device) {
    NEED_INIT();
    if (!is_device(device)) return INVALID_DEVICE;
    if (size > 0) strncpy(name, "Stand-in GPU", (size_t)size - 1)[size - 1] = 0;
    return SUCCESS;
}
API(cuDeviceGetUuid, void* uuid, int device) {
    NEED_INIT();
    memcpy(uuid, "StandInGPU-00001", 16);
    static_cast<char*>(uuid)[15] = (char)('1' + device);
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}
API(cuDeviceGetUuid_v2, void* uuid, int device) {
    NEED_INIT();
    memcpy(uuid, "StandInGPU-00001", 16);
    static_cast<char*>(uuid)[15] = (char)('1' + device);
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}
API(cuDeviceTotalMem_v2, size_t* bytes, int device) {
    NEED_INIT();
    *bytes = driver.limit;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}
API(cuDeviceGetAttribute, int* value, int attribute, int device) {
    NEED_INIT();
    static const std::map<int, int> VALUES = {
        {1, 1024},   {2, 1024},   {3, 1024},      {4, 64},         {5, 2147483647}, {6, 65535}, {7, 65535},
        {8, 49152},  {10, 32},    {12, 65536},    {13, 1000000},   {16, 16},        {19, 1},    {36, 1000000},
        {37, 256},   {38, 1 << 20}, {39, 2048},   {41, 1},         {75, 8},         {76, 9},    {81, 233472},
        {97, EMU_SHARED_MAX},
    };
    auto at = VALUES.find(attribute);
    *value = at == VALUES.end() ? 0 : at->second;
    return is_device(device) ? SUCCESS : INVALID_DEVICE;
}
API(cuDevicePrimaryCtxRetain, void** ctx, int device) {
    NEED_INIT();
    if (!is_device(device)) return INVALID_DEVICE;
    if (is_lost(device)) return DEVICE_UNAVAILABLE;
    if (driver.retained > 0 && driver.device != device) return INVALID_VALUE; // one context is all there is
    driver.retained++;
    driver.device = device;
    static std::once_flag once;
    std::call_once(once, [] { driver.default_stream = new_stream(); });
    *ctx = &context;
    return SUCCESS;
}
API(cuDevicePrimaryCtxRelease_v2, int device) {
    NEED_INIT();
    if (!is_device(device)) return INVALID_DEVICE;
    if (driver.retained == 0) return INVALID_CONTEXT;
    driver.retained--;
    return SUCCESS;
}
API(cuCtxSetCurrent, void* ctx) {
    NEED_INIT();
    if (ctx && (ctx != &context || driver.retained == 0)) return INVALID_CONTEXT;
    current = ctx;
    return SUCCESS;
}
API(cuCtxGetCurrent, void** ctx) {
    NEED_INIT();
    *ctx = current;
    return SUCCESS;
}
API(cuCtxGetDevice, int* device) {
    NEED_INIT();
    *device = driver.device;
    return current ? SUCCESS : INVALID_CONTEXT;
}
API(cuCtxSynchronize) {
    NEED_CONTEXT();
    wait_for_all();
    return driver.sick;
}

// ---- Memory --------------------------------------------------------------------------------------------------------

// 256-byte aligned, with the end as near as that allows to a page that faults. Full of garbage, as memory is.
static u64 allocate(size_t bytes, bool host) {
    size_t page = 4096, rounded = (bytes + 255) / 256 * 256, mapped = (rounded + page - 1) / page * page + 2 * page;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char* map = (char*)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (map == MAP_FAILED) return 0;
    mprotect(map, page, PROT_NONE);
    mprotect(map + mapped - page, page, PROT_NONE);
    memset(map + page, GARBAGE, mapped - 2 * page);
    u64 at = (u64)(map + mapped - page - rounded);
    Hold hold(driver.lock);
    driver.ranges[at] = Range{bytes, mapped, map, host};
    return at;
}

// The allocation that holds all these bytes.
static bool find_range(u64 at, size_t bytes, bool& host) {
    Hold hold(driver.lock);
    auto next = driver.ranges.upper_bound(at);
    if (next == driver.ranges.begin()) return false;
    --next;
    host = next->second.host;
    return at - next->first <= next->second.bytes && bytes <= next->second.bytes - (at - next->first);
}
static bool on_device(u64 at, size_t bytes) {
    bool host;
    return bytes == 0 || find_range(at, bytes, host); // host memory of cuMemHostAlloc is mapped
}
static bool pinned(const void* at, size_t bytes) {
    bool host = false;
    return find_range((u64)at, bytes, host) && host;
}

static int release(u64 at, bool host) {
    Range range;
    {
        Hold hold(driver.lock);
        auto found = driver.ranges.find(at);
        if (found == driver.ranges.end() || found->second.host != host) return INVALID_VALUE;
        range = found->second;
    }
    wait_for_all();
    Hold hold(driver.lock);
    driver.ranges.erase(at);
    if (!host) driver.used -= range.bytes;
    munmap(range.map, range.mapped);
    return driver.sick;
}

API(cuMemGetInfo_v2, size_t* free, size_t* total) {
    NEED_CONTEXT();
    Hold hold(driver.lock);
    *free = driver.limit - driver.used;
    *total = driver.limit;
    return SUCCESS;
}
API(cuMemAlloc_v2, u64* at, size_t bytes) {
    NEED_CONTEXT();
    if (bytes == 0) return INVALID_VALUE;
    {
        Hold hold(driver.lock);
        if (bytes > driver.limit - driver.used) return OUT_OF_MEMORY;
        driver.used += bytes;
    }
    *at = allocate(bytes, false);
    if (*at) return SUCCESS;
    Hold hold(driver.lock);
    driver.used -= bytes;
    return OUT_OF_MEMORY;
}
API(cuMemFree_v2, u64 at) {
    NEED_CONTEXT();
    return at == 0 ? SUCCESS : release(at, false);
}
API(cuMemHostAlloc, void** at, size_t bytes, unsigned) {
    NEED_CONTEXT();
    if (bytes == 0) return INVALID_VALUE;
    *at = (void*)allocate(bytes, true);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
API(cuMemHostGetDevicePointer_v2, u64* device, void* host, unsigned) {
    NEED_CONTEXT();
    *device = (u64)host;
    return pinned(host, 1) ? SUCCESS : INVALID_VALUE;
}
API(cuMemFreeHost, void* at) {
    NEED_CONTEXT();
    return release((u64)at, true);
}
API(cuPointerGetAttribute, void* value, int attribute, u64 at) {
    NEED_CONTEXT();
    bool host;
    if (!find_range(at, 1, host) || attribute != 2) return INVALID_VALUE; // 2: the kind of memory
    *(u32*)value = host ? 1 : 2;
    return SUCCESS;
}

static Work copy_work(void* to, const void* from, size_t bytes) {
    return [=] {
        memmove(to, from, bytes);
        return 0;
    };
}
API(cuMemcpyHtoDAsync_v2, u64 to, const void* from, size_t bytes, Stream* stream) {
    NEED_CONTEXT();
    if (!on_device(to, bytes)) return INVALID_VALUE;
    if (pinned(from, bytes)) return submit(stream, copy_work((void*)to, from, bytes));
    // Ordinary memory is read before the call comes back.
    auto staged = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + bytes);
    return submit(stream, [=] {
        memcpy((void*)to, staged->data(), bytes);
        return 0;
    });
}
API(cuMemcpyDtoHAsync_v2, void* to, u64 from, size_t bytes, Stream* stream) {
    NEED_CONTEXT();
    if (!on_device(from, bytes)) return INVALID_VALUE;
    // Into ordinary memory the call waits for the copy.
    return submit(stream, copy_work(to, (const void*)from, bytes), !pinned(to, bytes));
}
API(cuMemcpyDtoDAsync_v2, u64 to, u64 from, size_t bytes, Stream* stream) {
    NEED_CONTEXT();
    if (!on_device(to, bytes) || !on_device(from, bytes)) return INVALID_VALUE;
    return submit(stream, copy_work((void*)to, (const void*)from, bytes));
}
API(cuMemsetD8Async, u64 to, unsigned char value, size_t bytes, Stream* stream) {
    NEED_CONTEXT();
    if (!on_device(to, bytes)) return INVALID_VALUE;
    return submit(stream, [=] {
        memset((void*)to, value, bytes);
        return 0;
    });
}

// ---- Streams, graphs, events ---------------------------------------------------------------------------------------

#define FIND(variable, from, handle) \
    auto variable = driver.from.get(handle); \
    if (!variable) return INVALID_HANDLE
#define FIND_STREAM(variable, handle) \
    auto variable = find_stream(handle); \
    if (!variable) return INVALID_HANDLE
// What waits or asks breaks a capture.
#define NOT_CAPTURING(stream) \
    if (stream->capture) return stream->broken = true, CAPTURE_UNSUPPORTED

API(cuStreamCreate, Stream** stream, unsigned) {
    NEED_CONTEXT();
    *stream = new_stream();
    return SUCCESS;
}
API(cuStreamDestroy_v2, Stream* handle) {
    NEED_CONTEXT();
    if ((uintptr_t)handle <= 2) return INVALID_HANDLE;
    auto stream = driver.streams.remove(handle);
    if (!stream) return INVALID_HANDLE;
    Hold hold(stream->lock);
    stream->closed = true; // its thread ends when the queue is empty
    stream->changed.notify_all();
    return SUCCESS;
}
API(cuStreamSynchronize, Stream* handle) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    NOT_CAPTURING(stream);
    stream->wait();
    return driver.sick;
}
API(cuStreamQuery, Stream* handle) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    NOT_CAPTURING(stream);
    Hold hold(stream->lock);
    return driver.sick ? driver.sick.load() : stream->done == stream->given ? SUCCESS : NOT_READY;
}
API(cuStreamGetCtx, Stream* handle, void** ctx) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    *ctx = &context;
    return SUCCESS;
}
API(cuStreamBeginCapture_v2, Stream* handle, int) {
    NEED_CONTEXT();
    if ((uintptr_t)handle <= 2) return CAPTURE_UNSUPPORTED;
    FIND_STREAM(stream, handle);
    if (stream->capture) return INVALID_VALUE;
    stream->capture = std::make_shared<Graph>();
    stream->broken = false;
    return SUCCESS;
}
API(cuStreamEndCapture, Stream* handle, Graph** graph) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    *graph = nullptr;
    if (!stream->capture) return INVALID_VALUE;
    shared_ptr<Graph> captured = std::move(stream->capture);
    stream->capture = nullptr;
    if (stream->broken) return CAPTURE_INVALIDATED;
    *graph = driver.graphs.add(captured);
    return SUCCESS;
}
API(cuStreamIsCapturing, Stream* handle, int* status) {
    NEED_CONTEXT();
    FIND_STREAM(stream, handle);
    *status = !stream->capture ? 0 : stream->broken ? 2 : 1;
    return SUCCESS;
}
API(cuGraphInstantiateWithFlags, GraphExec** exec, Graph* handle, unsigned long long) {
    NEED_CONTEXT();
    FIND(graph, graphs, handle);
    *exec = driver.execs.add(std::make_shared<GraphExec>(GraphExec{graph->nodes}));
    return SUCCESS;
}
API(cuGraphUpload, GraphExec* handle, Stream* stream_handle) {
    NEED_CONTEXT();
    FIND(exec, execs, handle);
    FIND_STREAM(stream, stream_handle);
    return SUCCESS;
}
API(cuGraphLaunch, GraphExec* handle, Stream* stream) {
    NEED_CONTEXT();
    FIND(exec, execs, handle);
    return submit(stream, [exec] {
        for (auto& node : exec->nodes)
            if (int code = node()) return code;
        return 0;
    });
}
API(cuGraphGetNodes, Graph* handle, void** nodes, size_t* count) {
    NEED_CONTEXT();
    FIND(graph, graphs, handle);
    for (size_t i = 0; nodes && i < std::min(*count, graph->nodes.size()); i++) nodes[i] = &graph->nodes[i];
    *count = graph->nodes.size();
    return SUCCESS;
}
API(cuGraphDestroy, Graph* handle) {
    NEED_CONTEXT();
    return driver.graphs.remove(handle) ? SUCCESS : INVALID_HANDLE;
}
API(cuGraphExecDestroy, GraphExec* handle) {
    NEED_CONTEXT();
    return driver.execs.remove(handle) ? SUCCESS : INVALID_HANDLE;
}

API(cuEventCreate, Event** event, unsigned flags) {
    NEED_CONTEXT();
    auto made = std::make_shared<Event>();
    made->timed = !(flags & 2); // 2: without timing
    *event = driver.events.add(made);
    return SUCCESS;
}
API(cuEventRecord, Event* handle, Stream* stream_handle) {
    NEED_CONTEXT();
    FIND(event, events, handle);
    FIND_STREAM(stream, stream_handle);
    if (stream->capture) return SUCCESS; // only orders the graph, which is in order anyway
    u64 turn;
    {
        Hold hold(event->lock);
        turn = ++event->given;
    }
    stream->put([event, turn] { // also in a sick context, so that nobody waits for ever
        Hold hold(event->lock);
        event->time = monotonic_ns();
        event->done = std::max(event->done, turn);
        event->changed.notify_all();
        return 0;
    });
    return SUCCESS;
}
API(cuEventQuery, Event* handle) {
    NEED_CONTEXT();
    FIND(event, events, handle);
    Hold hold(event->lock);
    return driver.sick ? driver.sick.load() : event->done == event->given ? SUCCESS : NOT_READY;
}
API(cuEventSynchronize, Event* handle) {
    NEED_CONTEXT();
    FIND(event, events, handle);
    Hold hold(event->lock);
    u64 until = event->given;
    event->changed.wait(hold, [&] { return event->done >= until; });
    return driver.sick;
}
static int elapsed(float* ms, Event* from_handle, Event* to_handle) {
    FIND(from, events, from_handle);
    FIND(to, events, to_handle);
    u64 time[2];
    for (int i = 0; i < 2; i++) {
        Event& event = i == 0 ? *from : *to;
        Hold hold(event.lock);
        if (!event.timed || event.given == 0) return INVALID_HANDLE;
        if (event.done < event.given) return NOT_READY;
        time[i] = event.time;
    }
    *ms = (float)((double)(int64_t)(time[1] - time[0]) * 1e-6);
    return SUCCESS;
}
API(cuEventElapsedTime, float* ms, Event* from, Event* to) {
    NEED_CONTEXT();
    return elapsed(ms, from, to);
}
API(cuEventElapsedTime_v2, float* ms, Event* from, Event* to) {
    NEED_CONTEXT();
    return elapsed(ms, from, to);
}
API(cuEventDestroy_v2, Event* handle) {
    NEED_CONTEXT();
    return driver.events.remove(handle) ? SUCCESS : INVALID_HANDLE;
}

// ---- Modules and launches ------------------------------------------------------------------------------------------

API(cuModuleLoadData, Module** module, const void* image) {
    NEED_CONTEXT();
    if (!image || memcmp(image, ELFMAG, SELFMAG) != 0) return INVALID_IMAGE;
    const Elf64_Ehdr& head = *(const Elf64_Ehdr*)image;
    if (head.e_machine == 190) return NO_BINARY_FOR_GPU; // a real cubin
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(Elf64_Shdr)) return INVALID_IMAGE;
    // Nobody says how long the image is; the section headers stand at its end.
    size_t size = head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
    // A file with a name of its own: the loader takes two files of one name for one library.
    const char* folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    string path = string(folder) + "/kmark-module-XXXXXX";
    int file = mkstemp(path.data());
    if (file < 0) return 304;
    bool written = write(file, image, size) == (ssize_t)size;
    close(file);
    void* library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path.c_str());
    if (!library) return INVALID_IMAGE;
    auto table = (const emu_Module* (*)())dlsym(library, "emu_module");
    if (!table) return dlclose(library), INVALID_IMAGE;
    *module = driver.modules.add(shared_ptr<Module>(new Module{library, table()}, [](Module* m) {
        dlclose(m->library);
        delete m;
    }));
    return SUCCESS;
}
API(cuModuleUnload, Module* handle) {
    NEED_CONTEXT();
    auto module = driver.modules.remove(handle);
    if (!module) return INVALID_HANDLE;
    wait_for_all();
    for (auto& function : driver.functions.all())
        if (function->module == module) driver.functions.remove(function.get());
    return driver.sick;
}
API(cuModuleGetFunction, Function** function, Module* handle, const char* name) {
    NEED_CONTEXT();
    FIND(module, modules, handle);
    for (const emu_Kernel* k = module->table->kernels; k->name; k++) {
        if (strcmp(k->name, name) != 0) continue;
        auto made = std::make_shared<Function>();
        made->module = module;
        made->kernel = k;
        *function = driver.functions.add(made);
        return SUCCESS;
    }
    return NOT_FOUND;
}
API(cuFuncGetAttribute, int* value, int attribute, Function* handle) {
    NEED_CONTEXT();
    FIND(function, functions, handle);
    switch (attribute) {
    case 0: *value = function->kernel->max_threads; break;
    case 4: *value = 32; break;                     // registers
    case 5: case 6: *value = 90; break;             // versions of PTX and of the binary
    case 8: *value = function->max_shared; break;
    default: *value = 0;
    }
    return SUCCESS;
}
API(cuFuncSetAttribute, Function* handle, int attribute, int value) {
    NEED_CONTEXT();
    FIND(function, functions, handle);
    if (attribute != 8) return SUCCESS;
    if (value < 0 || value > EMU_SHARED_MAX) return INVALID_VALUE;
    function->max_shared = value;
    return SUCCESS;
}
API(cuFuncGetName, const char** name, Function* handle) {
    NEED_CONTEXT();
    FIND(function, functions, handle);
    *name = function->kernel->name;
    return SUCCESS;
}
API(cuOccupancyMaxActiveBlocksPerMultiprocessor, int* blocks, Function* handle, int threads, size_t shared) {
    NEED_CONTEXT();
    FIND(function, functions, handle);
    if (threads <= 0) return INVALID_VALUE;
    bool fits = threads <= 1024 && shared <= EMU_SHARED_MAX;
    *blocks = fits ? std::min({2048 / threads, (int)(233472 / (shared + 1024)), 32}) : 0;
    return SUCCESS;
}

static string describe(Function* handle, Dim g, Dim b, unsigned shared) {
    auto function = driver.functions.get(handle);
    auto text = [](Dim d) { return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z); };
    return string(function ? function->kernel->name : "?") + " grid=" + text(g) + " block=" + text(b) +
           " shared=" + std::to_string(shared);
}

static int launch(Function* handle, Dim grid, Dim block, unsigned shared, Stream* stream, void** params) {
    FIND(function, functions, handle);
    const emu_Kernel& kernel = *function->kernel;
    u64 threads = (u64)block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
        threads > (u64)kernel.max_threads || threads > 1024 || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535 || shared > (unsigned)function->max_shared || (kernel.params > 0 && !params))
        return INVALID_VALUE;
    // The caller's parameters are gone when the launch runs: copied, each as aligned as any type needs.
    struct Params {
        std::unique_ptr<char, void (*)(void*)> bytes{nullptr, free};
        std::vector<void*> list;
    };
    auto copy = std::make_shared<Params>();
    size_t size = 64;
    for (int i = 0; i < kernel.params; i++) size += (kernel.sizes[i] + 63) / 64 * 64;
    copy->bytes.reset((char*)aligned_alloc(64, size));
    char* at = copy->bytes.get();
    for (int i = 0; i < kernel.params; at += (kernel.sizes[i] + 63) / 64 * 64, i++) {
        memcpy(at, params[i], kernel.sizes[i]);
        copy->list.push_back(at);
    }
    return submit(stream, [=] {
        static thread_local std::unique_ptr<Runner> runner(new Runner); // of the stream whose thread this is
        return runner->launch(*function->module->table, *function->kernel, grid, block, shared, copy->list.data());
    });
}

API(cuLaunchKernel, Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared, Stream* stream, void** params, void**) {
    NEED_CONTEXT(describe(function, {gx, gy, gz}, {bx, by, bz}, shared));
    return launch(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, params);
}

struct LaunchAttribute {
    int id, pad;
    union {
        char bytes[64];
        Dim cluster;
    };
};
struct LaunchConfig {
    Dim grid, block;
    unsigned shared;
    Stream* stream;
    LaunchAttribute* attributes;
    unsigned count;
};
API(cuLaunchKernelEx, const LaunchConfig* c, Function* function, void** params, void**) {
    NEED_CONTEXT(describe(function, c->grid, c->block, c->shared));
    for (unsigned i = 0; i < c->count; i++) { // 4: clusters, whose blocks run one after the other here
        Dim by = c->attributes[i].cluster;
        if (c->attributes[i].id != 4) continue;
        if (by.x == 0 || by.y == 0 || by.z == 0 || c->grid.x % by.x || c->grid.y % by.y || c->grid.z % by.z)
            return INVALID_VALUE;
    }
    return launch(function, c->grid, c->block, c->shared, c->stream, params);
}

// No emulated kernel reads a tensor map: the bytes only tell a test that it was made, and of what.
API(cuTensorMapEncodeTiled, void* map, int type, u32 rank, void* address, const u64* dims, const u64* strides,
    const u32* box, const u32* steps, int, int, int, int) {
    NEED_CONTEXT();
    if ((u64)map % 64 != 0 || (u64)address % 16 != 0 || rank < 1 || rank > 5) return INVALID_VALUE;
    for (u32 i = 0; i < rank; i++) {
        if (dims[i] == 0 || dims[i] > 1ull << 32 || box[i] == 0 || box[i] > 256) return INVALID_VALUE;
        if (steps[i] == 0 || steps[i] > 8) return INVALID_VALUE;
        if (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= 1ull << 40)) return INVALID_VALUE;
    }
    memset(map, 0, 128);
    memcpy(map, "STANDIN TENSOR", 15);
    u64 words[8] = {(u64)address, (u64)type, rank};
    for (u32 i = 0; i < rank; i++) words[3 + i] = dims[i];
    memcpy((char*)map + 16, words, sizeof words);
    return SUCCESS;
}
