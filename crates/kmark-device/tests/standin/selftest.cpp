// Proves the stand-in with the kernels of selftest.cu, through the same calls that Kernelmark makes.
//   ./build.sh FOLDER
//   g++ -std=c++17 -O1 -o FOLDER/selftest selftest.cpp -ldl -pthread
//   KMARK_STANDIN=FOLDER FOLDER/selftest . FOLDER   (the folder of this file, the folder of the libraries)
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using std::string;
using std::vector;
typedef uint32_t u32;
typedef uint64_t u64;

static void *cuda, *nvrtc;
static string here;

template <class... A> int call(const char* name, A... args) {
    void* symbol = dlsym(strncmp(name, "nvrtc", 5) == 0 ? nvrtc : cuda, name);
    if (!symbol) printf("no symbol %s\n", name), exit(1);
    return ((int (*)(A...))symbol)(args...);
}
#define OK(...) CHECK(call(__VA_ARGS__) == 0)
#define CHECK(x) \
    do { \
        if (!(x)) printf("%s:%d: FAILED: %s\n", __FILE__, __LINE__, #x), fflush(stdout), _exit(1); \
    } while (0)

static string read_file(const string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

static double seconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static vector<char> compile(const string& source, const char* arch, string* log = nullptr) {
    string device = here + "/../../src/cuda/device/", ops = here + "/../../../kmark-ops/src/device/";
    vector<string> all = {"#pragma once\n#define FACTOR (ONE + 0.0f)\n", read_file(device + "kmark.cuh")};
    vector<const char*> names = {"extra/more.cuh",   "kmark.cuh",       "mma.cuh",
                                 "cluster.cuh",      "hopper/bulk.cuh", "hopper/barrier.cuh",
                                 "hopper/elect.cuh", "hopper/tma.cuh",  "hopper/wgmma.cuh"},
                        texts;
    for (size_t i = all.size(); i < names.size(); i++) all.push_back(read_file(ops + names[i]));
    for (const string& text : all) texts.push_back(text.c_str());
    const char* options[] = {arch, "-DONE=1.0f", "--std=c++17"};
    void* program;
    OK("nvrtcCreateProgram", &program, source.c_str(), "selftest.cu", (int)names.size(), (const char**)texts.data(),
       (const char**)names.data());
    int result = call("nvrtcCompileProgram", program, 3, (const char**)options);
    size_t size = 0;
    OK("nvrtcGetProgramLogSize", program, &size);
    string text(size, 0);
    OK("nvrtcGetProgramLog", program, text.data());
    if (log) *log = text;
    else if (result != 0) puts(text.c_str());
    CHECK(log || result == 0);
    OK("nvrtcGetCUBINSize", program, &size);
    vector<char> image(size);
    if (size > 0) OK("nvrtcGetCUBIN", program, image.data());
    OK("nvrtcDestroyProgram", &program);
    return image;
}

// The context, a stream and the module; buffers are the same memory on both sides.
static vector<char> image;
static void *stream, *module;

static void start() {
    void* context;
    int device;
    OK("cuInit", 0u);
    OK("cuDeviceGet", &device, 0);
    OK("cuDevicePrimaryCtxRetain", &context, device);
    OK("cuCtxSetCurrent", context);
    OK("cuStreamCreate", &stream, 1u);
    OK("cuModuleLoadData", &module, (const void*)image.data());
}
template <class T> T* buffer(size_t count) {
    u64 at;
    OK("cuMemAlloc_v2", &at, count * sizeof(T));
    CHECK(at % 256 == 0);
    return (T*)at;
}
struct Dim { unsigned x, y = 1, z = 1; };
static Dim cluster = {1};
static int overlaps = 0;
template <class... A> int launch(const char* name, Dim grid, Dim block, unsigned shared, const A&... args) {
    void* function;
    if (int code = call("cuModuleGetFunction", &function, module, name)) return code;
    void* params[] = {(void*)&args...};
    if (cluster.x > 1 || overlaps) {
        struct Attribute {
            int id, pad;
            Dim by;
            unsigned rest[13];
        } attributes[] = {{4, 0, cluster, {}}, {6, 0, {(unsigned)overlaps, 0, 0}, {}}};
        struct {
            Dim grid, block;
            unsigned shared;
            void *stream, *attributes;
            unsigned count;
        } config = {grid, block, shared, stream, attributes, 2};
        return call("cuLaunchKernelEx", (const void*)&config, function, (void**)params, (void**)nullptr);
    }
    int result = call("cuLaunchKernel", function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream,
                      (void**)params, (void**)nullptr);
    memset((void*)params, 0xee, sizeof params);
    return result;
}
static int wait() { return call("cuStreamSynchronize", stream); }

struct Args {
    const float* x;
    float* y;
    long long n;
};

// Other pages behind the same addresses hold other bytes, and keep them.
static void exchanged_pages() {
    u64 at, first, second, none;
    const void* ignored = nullptr;
    size_t bytes = 8192;
    OK("cuMemAddressReserve", &at, bytes, (size_t)0, (u64)0, (u64)0);
    OK("cuMemCreate", &first, bytes, ignored, (u64)0);
    OK("cuMemCreate", &second, bytes, ignored, (u64)0);
    CHECK(call("cuMemCreate", &none, (size_t)3 << 30, ignored, (u64)0) == 2);
    CHECK(call("cuMemsetD8Async", at, (unsigned char)7, bytes, stream) == 1); // no pages yet
    for (int i = 0; i < 4; i++) {
        OK("cuMemMap", at, bytes, (size_t)0, i % 2 ? second : first, (u64)0);
        OK("cuMemSetAccess", at, bytes, ignored, (size_t)1);
        unsigned char seen = 0;
        OK("cuMemcpyDtoHAsync_v2", (void*)&seen, at + 5000, (size_t)1, stream);
        CHECK(seen == (i < 2 ? 0 : i - 1));
        OK("cuMemsetD8Async", at, (unsigned char)(i + 1), bytes, stream);
        OK("cuCtxSynchronize");
        CHECK(call("cuMemAddressFree", at, bytes) == 1);
        OK("cuMemUnmap", at, bytes);
    }
    OK("cuMemRelease", first);
    CHECK(call("cuMemMap", at, bytes, (size_t)0, first, (u64)0) == 1);
    OK("cuMemRelease", second);
    OK("cuMemAddressFree", at, bytes);
}

static void kernels() {
    start();
    const int n = 1000;
    float *x = buffer<float>(n * 4), *y = buffer<float>(n * 4);
    vector<float> host(n * 4);
    for (int i = 0; i < n * 4; i++) host[i] = (float)(i % 17);
    OK("cuMemcpyHtoDAsync_v2", (u64)x, (const void*)host.data(), host.size() * 4, stream);
    std::fill(host.begin(), host.end(), -1.0f); // was already read
    CHECK(launch("scale", {4}, {256}, 0, Args{x, y, n}) == 0 && wait() == 0);
    for (int i = 0; i < n; i++) CHECK(y[i] == 2.0f * (float)(i % 17) + 1.0f);
    CHECK(launch("row_sums", {4}, {256}, 0, Args{x, y, n}) == 0 && wait() == 0);
    for (int r = 0; r < 4; r++) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += x[r * n + i];
        CHECK(y[r] == sum);
    }
    CHECK(launch("row_sums", {4}, {512}, 0, Args{x, y, n}) == 1); // more than its launch bounds
    puts("block sums");

    u32* out = buffer<u32>(7 * 40);
    int64_t* wide = buffer<int64_t>(40);
    CHECK(launch("shuffles", {1}, {40}, 0, out, 8, wide) == 0 && wait() == 0);
    for (u32 t = 0; t < 40; t++) {
        CHECK(out[t] == (t % 32 == 0 ? t : t - 1));
        CHECK(out[40 + t] == (t ^ 4));
        CHECK(out[80 + t] == (t < 32 ? 0xaaaaaaaa : 0xaa));
        CHECK(out[120 + t] == (t < 32 ? 1 : 2));
        CHECK(out[160 + t] == t / 32 * 32 + 3);
        if (t < 38 && t % 32 < 30) CHECK(wide[t] == (int64_t)(t + 2) << 40);
        if (t == 30 || t == 31) CHECK(wide[t] == (int64_t)t << 40);
        if (t >= 38) CHECK((u64)wide[t] == 0xcdcdcdcdcdcdcdcdu); // from lanes that do not exist
        if (t % 32 < 4) CHECK(out[200 + t] == t / 32 * 32 + 3);
        if (t != 35) CHECK(out[240 + t] == (t < 32 ? 0xffffffff : 0xf7));
    }
    puts("warps");

    for (const char* name : {"product_f16", "product_bf16"}) {
        bool bf = strstr(name, "bf") != nullptr;
        uint16_t *a = buffer<uint16_t>(256), *b = buffer<uint16_t>(128);
        float va[256], vb[128];
        for (int i = 0; i < 256 + 128; i++) { // small integers and quarters: exact in both formats
            float v = (float)(i * 7 % 23 - 11) * 0.25f;
            u32 bits;
            memcpy(&bits, &v, 4);
            u32 half = v == 0 ? 0 : (bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023);
            (i < 256 ? a[i] : b[i - 256]) = (uint16_t)(bf ? bits >> 16 : half);
            (i < 256 ? va[i] : vb[i - 256]) = v;
        }
        CHECK(launch(name, {1}, {32}, 0, a, b, y) == 0 && wait() == 0);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                float sum = 0;
                for (int k = 0; k < 16; k++) sum += va[i * 16 + k] * vb[k * 8 + j];
                CHECK(y[i * 8 + j] == sum);
            }
    }
    puts("mma, ldmatrix, copies");

    float *square = buffer<float>(128 * 128), *turned = buffer<float>(128 * 128);
    for (int i = 0; i < 128 * 128; i++) square[i] = (float)i;
    CHECK(launch("transpose", {4, 4}, {32, 8}, 33 * 32 * 4, Args{square, turned, 128}) == 0 && wait() == 0);
    for (int i = 0; i < 128 * 128; i++) CHECK(turned[i % 128 * 128 + i / 128] == (float)i);
    CHECK(launch("stale", {3}, {1}, 128, out, 0) == 0 && wait() == 0);
    CHECK(out[0] == 0xcdcdcdcd && out[1] == 0xcdcdcdcd && out[2] == 0xcdcdcdcd);
    CHECK(launch("count_all", {3}, {3}, 0, out) == 0 && wait() == 0 && out[0] == 9);
    out[8] = 7;
    CHECK(launch("unwaited", {1}, {1}, 0, out, out + 8) == 0 && wait() == 0);
    CHECK(out[0] == 0xcdcdcdcd && out[1] == 7);
    CHECK(launch("transpose", {4, 4}, {32, 8}, 64 << 10, Args{square, turned, 128}) == 1); // limit not raised
    void* function;
    OK("cuModuleGetFunction", &function, module, "transpose");
    OK("cuFuncSetAttribute", function, 8, 64 << 10);
    Args args = {square, turned, 128};
    void* params[] = {&args};
    OK("cuLaunchKernel", function, 4u, 4u, 1u, 32u, 8u, 1u, 64u << 10, stream, (void**)params, (void**)nullptr);
    CHECK(wait() == 0);
    puts("shared memory");

    struct {
        Dim grid, block;
        unsigned shared;
        void *stream, *attributes;
        unsigned count;
    } config = {{4, 4}, {32, 8}, 33 * 32 * 4, stream, nullptr, 0};
    OK("cuMemsetD8Async", (u64)turned, (unsigned char)0, (size_t)128 * 128 * 4, stream);
    OK("cuLaunchKernelEx", (const void*)&config, function, (void**)params, (void**)nullptr);
    OK("cuMemcpyDtoHAsync_v2", (void*)host.data(), (u64)turned, (size_t)4000, stream); // waits: not pinned
    for (int i = 0; i < 1000; i++) CHECK(host[i] == (float)(i % 128 * 128 + i / 128));
    alignas(64) char map[128];
    u64 dims[] = {128, 128}, strides[] = {512};
    u32 box[] = {32, 32}, steps[] = {1, 1};
    auto encode = [&](void* at) {
        return call("cuTensorMapEncodeTiled", (void*)map, 7, 2u, at, (const u64*)dims, (const u64*)strides,
                    (const u32*)box, (const u32*)steps, 0, 0, 0, 0);
    };
    CHECK(encode(square) == 0 && strcmp(map, "STANDIN TENSOR") == 0 && encode(square + 1) == 1);
    size_t free_bytes, total_bytes;
    OK("cuMemGetInfo_v2", &free_bytes, &total_bytes);
    CHECK(total_bytes == (size_t)2 << 30 && free_bytes < total_bytes);
    puts("launches, copies and maps");

    CHECK(launch("scale", {0}, {256}, 0, args) == 1 && launch("scale", {1}, {2048}, 0, args) == 1);
    CHECK(call("cuModuleGetFunction", &function, module, "in_a_comment") == 500);
    CHECK(call("cuModuleGetFunction", &function, module, "in_a_string") == 500);
    void* none;
    CHECK(call("cuModuleLoadData", &none, (const void*)"not an ELF") == 200);
    CHECK(call("cuMemcpyDtoDAsync_v2", (u64)x, (u64)y, (size_t)1 << 20, stream) == 1);
    OK("cuMemFree_v2", (u64)x);
    CHECK(call("cuMemFree_v2", (u64)x) == 1);
    u64 at;
    CHECK(call("cuMemAlloc_v2", &at, (size_t)3 << 30) == 2);
    exchanged_pages();
}

static void asynchronous() {
    start();
    void* memory;
    OK("cuMemHostAlloc", &memory, (size_t)4096, 2u);
    u32 *flag = (u32*)memory, *counter = buffer<u32>(1);
    u64* times = buffer<u64>(2);
    *flag = 0;
    void *first, *second, *third;
    OK("cuEventCreate", &first, 0u);
    OK("cuEventCreate", &second, 0u);
    OK("cuEventCreate", &third, 0u);
    CHECK(launch("blocker", {1}, {1}, 0, flag, times) == 0);
    OK("cuEventRecord", first, stream);
    OK("cuMemsetD8Async", (u64)counter, (unsigned char)0, (size_t)4, stream);
    for (int i = 0; i < 100; i++) CHECK(launch("count", {2}, {32}, 0, counter) == 0);
    OK("cuEventRecord", second, stream);
    while (__atomic_load_n(times, __ATOMIC_ACQUIRE) == 0xcdcdcdcdcdcdcdcdu) usleep(100); // until it has begun
    usleep(20000);
    float ms;
    CHECK(call("cuStreamQuery", stream) == 600 && call("cuEventQuery", first) == 600);
    CHECK(call("cuEventElapsedTime", &ms, first, second) == 600);
    // Another stream goes on meanwhile.
    void *other = nullptr, *mine = stream;
    OK("cuStreamCreate", &other, 1u);
    stream = other;
    u32* elsewhere = buffer<u32>(1);
    *elsewhere = 0;
    CHECK(launch("count", {1}, {33}, 0, elsewhere) == 0 && wait() == 0 && *elsewhere == 33);
    OK("cuStreamDestroy_v2", other);
    stream = mine;
    *counter = 77;
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    OK("cuEventSynchronize", second);
    CHECK(*counter == 6400);
    CHECK(times[1] - times[0] > 15000000);
    OK("cuEventRecord", third, stream);
    OK("cuStreamSynchronize", stream);
    OK("cuEventElapsedTime_v2", &ms, first, second);
    CHECK(ms > 0 && ms < 60000);
    OK("cuEventElapsedTime", &ms, third, second);
    CHECK(ms < 0);
    puts("streams and events");

    void *graph, *exec;
    int status;
    *counter = 0;
    OK("cuStreamBeginCapture_v2", stream, 0);
    OK("cuMemsetD8Async", (u64)counter, (unsigned char)0, (size_t)4, stream);
    CHECK(launch("count", {1}, {10}, 0, counter) == 0);
    CHECK(launch("count", {1}, {5}, 0, counter) == 0);
    OK("cuStreamIsCapturing", stream, &status);
    CHECK(status == 1);
    OK("cuStreamEndCapture", stream, &graph);
    CHECK(wait() == 0 && *counter == 0);
    size_t nodes = 0;
    OK("cuGraphGetNodes", graph, (void**)nullptr, &nodes);
    CHECK(nodes == 3);
    OK("cuGraphInstantiateWithFlags", &exec, graph, (unsigned long long)0);
    OK("cuGraphDestroy", graph);
    for (int i = 0; i < 3; i++) {
        *counter = 100;
        OK("cuGraphLaunch", exec, stream);
        CHECK(wait() == 0 && *counter == 15);
    }
    OK("cuGraphExecDestroy", exec);
    OK("cuStreamBeginCapture_v2", stream, 0);
    CHECK(call("cuStreamQuery", stream) == 900 && call("cuStreamEndCapture", stream, &graph) == 901);
    puts("graphs");
}

// Clusters, barriers in shared memory, boxes of tensors and products of warpgroups.
static void hopper() {
    start();
    u32* out = buffer<u32>(16);
    cluster = {4};
    CHECK(launch("ring", {8}, {64}, 0, out) == 0 && wait() == 0);
    for (u32 i = 0; i < 8; i++) CHECK(out[2 * i] == 0xcdcdcdcd && out[2 * i + 1] == i / 4 * 4 + (i + 3) % 4);
    CHECK(launch("ring", {6}, {64}, 0, out) == 1);
    cluster = {1};
    out[0] = out[1] = 0;
    CHECK(launch("last_first", {10}, {2}, 0, out) == 0 && wait() == 0 && out[1] == 20);
    CHECK(launch("fenced", {2}, {64}, 0, buffer<u32>(128)) == 0 && wait() == 0);
    puts("clusters and blocks that wait for each other");
    for (int graph = 0; graph < 2; graph++) {
        for (int i = 0; i < 5; i++) out[i] = 0;
        void *captured, *exec;
        if (graph) OK("cuStreamBeginCapture_v2", stream, 0);
        CHECK(launch("lets_begin", {3}, {32}, 0, out) == 0);
        overlaps = 1;
        CHECK(launch("begins_early", {2}, {32}, 0, out) == 0);
        overlaps = 0;
        if (graph) {
            OK("cuStreamEndCapture", stream, &captured);
            OK("cuGraphInstantiateWithFlags", &exec, captured, (unsigned long long)0);
            OK("cuGraphLaunch", exec, stream);
        }
        CHECK(wait() == 0 && out[0] == 21 && out[1] == 1 && out[3] == 21 && out[4] == 21);
    }
    CHECK(launch("lets_begin", {3}, {32}, 0, out) == 0 && wait() == 0 && out[0] == 42);
    puts("launches that overlap");

    struct alignas(64) Map { char bytes[128]; } from, to;
    u64 dims[] = {70, 20}, strides[] = {160};
    u32 tile[] = {64, 8}, steps[] = {1, 1};
    uint16_t *x = buffer<uint16_t>(80 * 20), *y = buffer<uint16_t>(80 * 20), *seen = buffer<uint16_t>(513);
    for (int i = 0; i < 1600; i++) x[i] = (uint16_t)(i + 1);
    auto encode = [&](Map& map, void* at) {
        OK("cuTensorMapEncodeTiled", (void*)&map, 9, 2u, at, (const u64*)dims, (const u64*)strides, (const u32*)tile,
           (const u32*)steps, 0, 3, 0, 0);
    };
    encode(from, x), encode(to, y);
    CHECK(launch("box", {1}, {32}, 0, from, to, seen, 10, 15) == 0 && wait() == 0 && seen[0] == 0xcdcd);
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 64; c++) {
            int value = r + 15 < 20 && c + 10 < 70 ? (r + 15) * 80 + c + 10 + 1 : 0;
            CHECK(seen[1 + r * 64 + c] == value);
        }
    for (int i = 0; i < 1600; i++) CHECK(y[i] == (i / 80 >= 16 && i % 80 >= 10 && i % 80 < 70 ? i - 80 + 1 : 0xcdcd));
    puts("boxes of tensors");

    uint16_t *a = buffer<uint16_t>(64 * 64), *b = buffer<uint16_t>(16 * 64);
    auto small = [](int i) { return (float)(i * 7 % 23 - 11) * 0.25f; };
    auto bf16 = [&](int i) {
        float v = small(i);
        u32 bits;
        memcpy(&bits, &v, 4);
        return (uint16_t)(bits >> 16);
    };
    for (int i = 0; i < 64 * 64; i++) a[i] = bf16(i);
    for (int i = 0; i < 16 * 64; i++) b[i] = bf16(i * 5 + 3);
    dims[0] = 64, strides[0] = 128, dims[1] = 64, encode(from, a), dims[1] = 16, encode(to, b);
    float *d = buffer<float>(64 * 16), *before = buffer<float>(1);
    CHECK(launch("warpgroup", {1}, {128}, 0, from, to, d, before) == 0 && wait() == 0 && *before == -1.0f);
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 16; j++) {
            float sum = 0;
            for (int k = 0; k < 64; k++) sum += small(i * 64 + k) * small((j * 64 + k) * 5 + 3);
            CHECK(d[i * 16 + j] == sum);
        }
    puts("products of a warpgroup");
}

static void sick(const char* kernel, int code, unsigned shared = 0) {
    start();
    u32* p = buffer<u32>(64);
    if (strcmp(kernel, "stale") == 0) CHECK(launch(kernel, {1}, {1}, shared, p, 1) == 0);
    else CHECK(launch(kernel, {2}, {64}, shared, p) == 0);
    launch("count", {1}, {1}, 0, p); // may already be refused
    CHECK(wait() == code && wait() == code);
    u64 at;
    CHECK(call("cuMemAlloc_v2", &at, (size_t)4) == code && call("cuCtxSynchronize") == code);
    const char* name = nullptr;
    OK("cuGetErrorName", code, &name);
    printf("%s -> %s\n", kernel, name);
}

static void faults() {
    const char* name = "untouched";
    CHECK(call("cuInit", 0u) == 9999 && call("cuGetErrorName", 9999, &name) == 1 && strcmp(name, "untouched") == 0);
    start();
    u64 at;
    OK("cuMemAlloc_v2", &at, (size_t)8);
    OK("cuMemAlloc_v2", &at, (size_t)8);
    CHECK(call("cuMemAlloc_v2", &at, (size_t)8) == 2);
    OK("cuMemAlloc_v2", &at, (size_t)8);
    *(u32*)at = 0;
    CHECK(launch("count", {2, 3}, {4, 5, 6}, 64, at) == 0 && wait() == 0 && *(u32*)at == 720);
    string log = read_file(getenv("KMARK_STANDIN_LOG"));
    for (const char* line : {"cuInit injected=9999\n", "cuMemAlloc_v2 injected=2\ncuMemAlloc_v2\n",
                             "cuLaunchKernel count grid=2,3,1 block=4,5,6 shared=64\ncuStreamSynchronize\n"})
        CHECK(log.find(line) != string::npos);
    puts("log and injected faults");
}

static void speed() {
    start();
    const int blocks = 16384;
    float *x = buffer<float>(blocks * 256), *y = buffer<float>(blocks * 256);
    u32* p = buffer<u32>(256);
    auto timed = [](const char* what, double count, auto run) {
        double from = seconds();
        CHECK(run() == 0 && wait() == 0);
        printf("%-24s %6.1f million per second\n", what, count / (seconds() - from) * 1e-6);
    };
    Args all = {x, y, blocks * 256};
    timed("threads, elementwise", blocks * 256.0, [&] { return launch("scale", {blocks}, {256}, 0, all); });
    timed("waits, __syncthreads", 2000 * 256 * 10.0, [&] { return launch("barriers", {2000}, {256}, 0, p); });
    timed("waits, shuffles", 200 * 256 * 100.0, [&] { return launch("many_shuffles", {200}, {256}, 0, x); });
    timed("mma of a warp", 100 * 8 * 100.0, [&] { return launch("many_products", {100}, {256}, 0, x); });
}

// Each part in a process of its own: a sick context stays sick.
template <class F> static void part(F run) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) run(), fflush(stdout), _exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
}

static void all() {
    string log;
    compile("#include \"kmark.cuh\"\n/* a\ncomment */\nKERNEL wrong(int x) {\n    undeclared = x;\n}\n",
            "--gpu-architecture=sm_90a", &log);
    CHECK(log.find("selftest.cu:5:5: error: ‘undeclared’") != string::npos ||
          log.find("selftest.cu:5:5: error: 'undeclared'") != string::npos);
    part(kernels);
    part([] { setenv("KMARK_STANDIN_ORDER", "reverse", 1), kernels(); });
    part(asynchronous);
    part([] { sick("bad_address", 700); });
    part([] { sick("stack_overflow", 700); });
    part([] { sick("stale", 700, 128); });
    part([] { sick("deadlock", 719); });
    part([] { sick("misaligned", 716); });
    part([] {
        string path = "/tmp/kmark-selftest-log-" + std::to_string(getpid());
        setenv("KMARK_STANDIN_LOG", path.c_str(), 1);
        setenv("KMARK_STANDIN_FAIL", "cuMemAlloc_v2:3=2,cuInit:1=9999", 1);
        faults();
        unlink(path.c_str());
    });
    part(speed);
}

int main(int, char** argv) {
    here = argv[1];
    cuda = dlopen((string(argv[2]) + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    nvrtc = dlopen((string(argv[2]) + "/libnvrtc.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda && nvrtc);
    for (const char* arch : {"--gpu-architecture=sm_89", "--gpu-architecture=sm_90a"}) {
        double from = seconds();
        image = compile(read_file(here + "/selftest.cu"), arch);
        printf("%s: compiled in %.2f s, %zu bytes\n", arch, seconds() - from, image.size());
        all();
    }
    part(hopper);
    part([] { setenv("KMARK_STANDIN_ORDER", "reverse", 1), hopper(); });
    for (const char* kernel : {"twice", "no_barrier", "no_fence"}) part([=] { sick(kernel, 719); });
    part([] { sick("unknown", 715); });
    part([] { sick("short_operand", 700, 1024); });
    puts("all passed");
}
