// Memory in two halves, as the driver has it: addresses that are reserved, and pages that are put behind them. Pages are
// files without a name, so that they keep what they hold wherever they are seen.
#pragma once
#include "driver.h"
#include <sys/mman.h>
#include <unistd.h>

static constexpr size_t GRAIN = 4096;

struct Pages {
    int file;
    size_t bytes;
};
static std::map<u64, Pages> pages;     // by handle; under driver.lock, as the following
static std::map<u64, size_t> reserved; // addresses
static u64 last_handle = 0;

static bool is_reserved(u64 at, size_t bytes) {
    auto next = reserved.upper_bound(at);
    return next != reserved.begin() && (--next, at + bytes <= next->first + next->second);
}
static bool take_away(u64 at, size_t bytes) {
    return mmap((void*)at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

API(cuMemGetAllocationGranularity, size_t* bytes, const void*, int) {
    NEED_CONTEXT();
    *bytes = GRAIN;
    return SUCCESS;
}
API(cuMemAddressReserve, u64* at, size_t bytes, size_t, u64, u64) {
    NEED_CONTEXT();
    if (bytes == 0 || bytes % GRAIN) return INVALID_VALUE;
    void* map = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return OUT_OF_MEMORY;
    Hold hold(driver.lock);
    reserved[*at = (u64)map] = bytes;
    return SUCCESS;
}
API(cuMemAddressFree, u64 at, size_t bytes) {
    NEED_CONTEXT();
    Hold hold(driver.lock);
    auto found = reserved.find(at);
    if (found == reserved.end() || found->second != bytes) return INVALID_VALUE;
    auto inside = driver.ranges.lower_bound(at);
    if (inside != driver.ranges.end() && inside->first < at + bytes) return INVALID_VALUE; // still has pages
    reserved.erase(found);
    munmap((void*)at, bytes);
    return SUCCESS;
}
API(cuMemCreate, u64* handle, size_t bytes, const void*, u64) {
    NEED_CONTEXT();
    if (bytes == 0 || bytes % GRAIN) return INVALID_VALUE;
    Hold hold(driver.lock);
    if (bytes > driver.limit - driver.used) return OUT_OF_MEMORY;
    int file = memfd_create("pages", 0);
    if (file < 0 || ftruncate(file, (off_t)bytes)) return OUT_OF_MEMORY;
    driver.used += bytes;
    pages[*handle = ++last_handle] = Pages{file, bytes};
    return SUCCESS;
}
API(cuMemRelease, u64 handle) {
    NEED_CONTEXT();
    Hold hold(driver.lock);
    auto found = pages.find(handle);
    if (found == pages.end()) return INVALID_VALUE;
    close(found->second.file);
    driver.used -= found->second.bytes;
    pages.erase(found);
    return SUCCESS;
}
API(cuMemMap, u64 at, size_t bytes, size_t offset, u64 handle, u64) {
    NEED_CONTEXT();
    Hold hold(driver.lock);
    auto found = pages.find(handle);
    if (found == pages.end() || offset != 0 || bytes != found->second.bytes) return INVALID_VALUE;
    if (!is_reserved(at, bytes) || driver.ranges.count(at)) return INVALID_VALUE;
    if (mmap((void*)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.file, 0) == MAP_FAILED) return OUT_OF_MEMORY;
    driver.ranges[at] = Range{bytes, bytes, (char*)at, false};
    return SUCCESS;
}
API(cuMemSetAccess, u64 at, size_t bytes, const void*, size_t count) {
    NEED_CONTEXT();
    Hold hold(driver.lock);
    auto found = driver.ranges.find(at);
    if (found == driver.ranges.end() || found->second.bytes != bytes || count != 1) return INVALID_VALUE;
    return mprotect((void*)at, bytes, PROT_READ | PROT_WRITE) ? INVALID_VALUE : SUCCESS;
}
API(cuMemUnmap, u64 at, size_t bytes) {
    NEED_CONTEXT();
    Hold hold(driver.lock);
    auto found = driver.ranges.find(at);
    if (found == driver.ranges.end() || found->second.bytes != bytes || !take_away(at, bytes)) return INVALID_VALUE;
    driver.ranges.erase(found);
    return SUCCESS;
}
