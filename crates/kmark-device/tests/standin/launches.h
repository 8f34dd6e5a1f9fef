// Modules and launches of the stand-in driver.
#pragma once
#include "streams.h"

// From a file with a name of its own: the loader takes two files of one name for one library.
static const emu_Module* load_again(Module& module) {
    const char* folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    string path = string(folder) + "/kmark-module-XXXXXX";
    int file = mkstemp(path.data());
    if (file < 0) return nullptr;
    bool written = write(file, module.image.data(), module.image.size()) == (ssize_t)module.image.size();
    close(file);
    void* library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path.c_str());
    if (!library) return nullptr;
    module.libraries.push_back(library);
    auto table = (const emu_Module* (*)())dlsym(library, "emu_module");
    return table ? table() : nullptr;
}

API(cuModuleLoadData, Module** module, const void* image) {
    NEED_CONTEXT();
    if (!image || memcmp(image, ELFMAG, SELFMAG) != 0) return INVALID_IMAGE;
    const Elf64_Ehdr& head = *(const Elf64_Ehdr*)image;
    if (head.e_machine == 190) return NO_BINARY_FOR_GPU; // a real cubin
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(Elf64_Shdr)) return INVALID_IMAGE;
    // Nobody says how long the image is; the section headers stand at its end.
    size_t size = head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
    auto made = std::make_shared<Module>();
    made->image.assign((const char*)image, size);
    Module* raw = made.get();
    made->code.another = [raw] { return load_again(*raw); };
    const emu_Module* table = made->code.another();
    if (!table) return INVALID_IMAGE;
    made->code.copies.push_back(table);
    *module = driver.modules.add(made);
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
    for (const emu_Kernel* k = module->table()->kernels; k->name; k++) {
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
static int blocks_per_sm(int threads, size_t shared) {
    bool fits = threads <= 1024 && shared <= EMU_SHARED_MAX;
    return fits ? std::min({2048 / threads, (int)(233472 / (shared + 1024)), 32}) : 0;
}
API(cuOccupancyMaxActiveBlocksPerMultiprocessor, int* blocks, Function* handle, int threads, size_t shared) {
    NEED_CONTEXT();
    FIND(function, functions, handle);
    if (threads <= 0) return INVALID_VALUE;
    *blocks = blocks_per_sm(threads, shared);
    return SUCCESS;
}

static string describe(Function* handle, Dim g, Dim b, unsigned shared) {
    auto function = driver.functions.get(handle);
    auto text = [](Dim d) { return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z); };
    return string(function ? function->kernel->name : "?") + " grid=" + text(g) + " block=" + text(b) +
           " shared=" + std::to_string(shared);
}

static bool lets_the_next_begin(const Module& module) {
    for (const char* const* text = module.table()->texts; *text; text++)
        if (strstr(*text, "griddepcontrol.launch_dependents")) return true;
    return false;
}

static int launch(Function* handle, Shape shape, bool overlaps, Stream* stream, void** params) {
    FIND(function, functions, handle);
    const emu_Kernel& kernel = *function->kernel;
    const Dim &grid = shape.grid, &block = shape.block;
    u64 threads = (u64)block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
        threads > (u64)kernel.max_threads || threads > 1024 || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535 || shape.shared > (unsigned)function->max_shared || (kernel.params > 0 && !params))
        return INVALID_VALUE;
    shape.resident = (unsigned)(SMS * blocks_per_sm((int)threads, shape.shared));
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
    auto run = [=](Runner& runner) {
        size_t kernel = (size_t)(function->kernel - function->module->table()->kernels);
        return runner.launch(function->module->code, kernel, shape, copy->list.data());
    };
    bool early = lets_the_next_begin(*function->module);
    return submit(stream, Work([=] {
        static thread_local Runner &runner = *new Runner, &other = *new Runner; // of the stream whose thread this is
        if (early && !waiting_launch) {
            waiting_launch = [=] { return run(other); };
            return 0;
        }
        runner.before = std::move(waiting_launch);
        waiting_launch = nullptr;
        int code = run(runner);
        return code ? code : runner.end_before();
    }, overlaps));
}

API(cuLaunchKernel, Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared, Stream* stream, void** params, void**) {
    NEED_CONTEXT(describe(function, {gx, gy, gz}, {bx, by, bz}, shared));
    return launch(function, {{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared, 0}, false, stream, params);
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
// One block, if the launch says nothing of clusters.
static Dim cluster_of(const LaunchConfig& c) {
    Dim by = {1, 1, 1};
    for (unsigned i = 0; i < c.count; i++)
        if (c.attributes[i].id == 4) by = c.attributes[i].cluster;
    return by;
}
static bool fits(const LaunchConfig& c, Dim by) {
    return by.x > 0 && by.y > 0 && by.z > 0 && by.x * by.y * by.z <= 16 && c.grid.x % by.x == 0 &&
        c.grid.y % by.y == 0 && c.grid.z % by.z == 0;
}
API(cuLaunchKernelEx, const LaunchConfig* c, Function* function, void** params, void**) {
    NEED_CONTEXT(describe(function, c->grid, c->block, c->shared));
    Dim cluster = cluster_of(*c);
    if (!fits(*c, cluster)) return INVALID_VALUE;
    bool overlaps = false; // 6: programmatic stream serialization
    for (unsigned i = 0; i < c->count; i++) overlaps |= c->attributes[i].id == 6 && c->attributes[i].bytes[0];
    return launch(function, {c->grid, c->block, cluster, c->shared, 0}, overlaps, c->stream, params);
}
API(cuOccupancyMaxActiveClusters, int* count, Function* handle, const LaunchConfig* c) {
    NEED_CONTEXT();
    FIND(function, functions, handle);
    Dim cluster = cluster_of(*c);
    unsigned all = cluster.x * cluster.y * cluster.z, threads = c->block.x * c->block.y * c->block.z;
    if (all == 0 || all > 16 || threads == 0) return INVALID_VALUE;
    *count = (int)(SMS / all) * blocks_per_sm((int)threads, c->shared);
    return SUCCESS;
}

API(cuTensorMapEncodeTiled, void* map, int type, u32 rank, void* address, const u64* dims, const u64* strides,
    const u32* box, const u32* steps, int interleave, int swizzle, int, int) {
    NEED_CONTEXT();
    if ((u64)map % 64 != 0 || (u64)address % 16 != 0 || rank < 1 || rank > 5) return INVALID_VALUE;
    for (u32 i = 0; i < rank; i++) {
        if (dims[i] == 0 || dims[i] > 1ull << 32 || box[i] == 0 || box[i] > 256) return INVALID_VALUE;
        if (steps[i] == 0 || steps[i] > 8) return INVALID_VALUE;
        if (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= 1ull << 40)) return INVALID_VALUE;
    }
    if (interleave != 0 || swizzle < 0 || swizzle > 3 || type < 0 || type > 9) return INVALID_VALUE;
    TensorMap& m = *new (map) TensorMap();
    memcpy(m.name, "STANDIN TENSOR", 15);
    m.address = (u64)address, m.type = (u64)type, m.rank = rank;
    for (u32 i = 0; i < rank; i++) {
        m.dims[i] = dims[i], m.box[i] = (u8)(box[i] - 1), m.steps[i] = (u8)steps[i];
        if (i > 0) m.strides[i - 1] = strides[i - 1];
    }
    m.swizzle = (u8)swizzle;
    return SUCCESS;
}
