// A stand-in for NVIDIA's driver library: devices that are the CPU, of which a process uses one. What the host can see is as with a GPU: every
// stream is a queue with a thread of its own, calls come back before the work is done, events get their time when the
// queue reaches them, a fault makes the context sick for good. Handles and addresses are checked, allocations end at a
// page that nobody may touch. Modules are what libnvrtc.cpp makes; fibers.h runs their kernels, calls.h has the log and
// the injected faults. Devices, contexts and memory are here, what else there is in pages.h, streams.h and launches.h.
//   KMARK_STANDIN_ARCH     89, or 90: a Hopper, on which kernels run with their PTX
//   KMARK_STANDIN_WHY      a file, to which is appended why launches failed
//   KMARK_STANDIN_MEMORY   bytes of the device's memory, 2 GiB if not set
//   KMARK_STANDIN_DEVICES  how many there are, 1 if not set
//   KMARK_STANDIN_LOST     NUMBER:FILE, or all:FILE; once there is such a file, that device does nothing any more
#include "launches.h"
#include "pages.h"

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
        {8, 49152},  {10, 32},    {12, 65536},    {13, 1000000},   {16, SMS},        {19, 1},    {36, 1000000},
        {37, 256},   {38, 1 << 20}, {39, 2048},   {41, 1},         {75, HOPPER ? 9 : 8}, {76, HOPPER ? 0 : 9}, {81, 233472},
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
