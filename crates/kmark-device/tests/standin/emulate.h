// The CUDA that kernels see when g++ compiles them for the stand-in: libnvrtc.cpp includes this file before the
// program's text, libcuda.cpp includes it (with STANDIN_DRIVER) for the contract between a compiled module and the
// driver. A module is a shared object with one exported function, emu_module(); it calls the driver back through a
// table, because libcuda may be loaded where its symbols are invisible. Hundreds of kernels are compiled in a test run,
// so nothing is included here: even <math.h> costs more than most kernels.
#pragma once

// ---- The contract --------------------------------------------------------------------------------------------------

struct emu_Dim { unsigned x, y, z; };
struct emu_Thread { unsigned x, y, z, lane; };

// What the threads of a warp can do together.
enum emu_Op {
    EMU_SYNC, EMU_SHUFFLE, EMU_BALLOT, EMU_LDMATRIX, EMU_LDMATRIX_TRANS, EMU_STMATRIX, EMU_STMATRIX_TRANS, EMU_HELD,
    EMU_MMA_F16, EMU_MMA_BF16, EMU_MMA_TF32
};

// An operand of an asm statement: where it lies, or its bits.
struct emu_Operand {
    void* at;
    unsigned long long bits;
    unsigned size; // of what lies there
};

struct emu_Runtime {
    void (*sync_block)();
    // The words that the lanes gave, until the next call; of EMU_BALLOT the votes (low half) and who voted (high half).
    const unsigned long long* (*exchange)(emu_Op op, unsigned mask, unsigned long long word);
    void (*ldmatrix)(emu_Op op, unsigned* r, const void* row);
    void (*mma)(emu_Op op, float* d, const unsigned* a, unsigned b0, unsigned b1);
    void (*copy_async)(void* to, const void* from, bool valid);
    void (*copy_commit)();
    void (*copy_wait)(int left);
    unsigned long long (*now)();
    void (*rest)(unsigned ns); // lets the host and other streams go on
    void (*fail)(int code);    // ends the launch; does not return
    void (*ptx)(unsigned site, const emu_Operand* operands); // an asm statement
};

// Where the module finds itself; the driver writes it at every switch.
struct emu_View {
    const emu_Thread* thread;
    emu_Dim block, block_dim, grid_dim;
    const emu_Runtime* runtime;
};

struct emu_Kernel {
    const char* name;
    void (*run)(void** params);
    const unsigned* sizes; // bytes of each parameter
    int params, max_threads;
};

struct emu_Module {
    emu_View* view;
    const emu_Kernel* kernels; // the last has no name
    char *bss, *bss_end; // static shared memory; the dynamic one lies between
    unsigned char* dynamic_shared;
    const char* const* texts; // of the asm statements; the last is null
};

// Bytes after the largest dynamic shared memory where nobody may write.
enum { EMU_SHARED_MAX = 232448, EMU_SHARED_FENCE = 1024 };

#ifndef STANDIN_DRIVER

extern "C" {
__attribute__((visibility("hidden"), section(".data.emu"))) emu_View emu_view;
// `extern __shared__ T name[]` becomes another name of this array: an alias for the assembler, which templates keep.
alignas(1024) __attribute__((visibility("hidden"))) unsigned char emu_dynamic_shared[EMU_SHARED_MAX + EMU_SHARED_FENCE];
// The linker's names of the beginning and the end of the variables without a value.
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));
}

template <unsigned... I> struct emu_List {};
template <auto F> struct emu_Entry;
template <class... A, void (*F)(A...)> struct emu_Entry<F> {
    static constexpr unsigned sizes[] = {sizeof(A)..., 0};
    static constexpr int params = sizeof...(A);
    template <unsigned... I> static void call(void** p, emu_List<I...>) { F(*(A*)p[I]...); }
    static void run(void** p) { call(p, emu_List<__integer_pack(sizeof...(A))...>()); }
};

// ---- Words of the language -----------------------------------------------------------------------------------------

// __global__, __shared__ and __launch_bounds__ stay as they are here: libnvrtc.cpp replaces them in the text.
#define __device__
#define __host__
#define __constant__ static
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (*emu_view.thread)
#define blockIdx (emu_view.block)
#define blockDim (emu_view.block_dim)
#define gridDim (emu_view.grid_dim)
#define warpSize 32
#define EMU static inline __attribute__((always_inline))

typedef decltype(sizeof 0) size_t;
typedef emu_Dim uint3;
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define EMU_VECTORS(T, N) \
    struct alignas(2 * sizeof(T)) N##2 { T x, y; }; \
    struct alignas(16) N##4 { T x, y, z, w; }; \
    EMU N##2 make_##N##2(T x, T y) { return {x, y}; } \
    EMU N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(int, int)
EMU_VECTORS(unsigned, uint)
EMU_VECTORS(float, float)
EMU_VECTORS(double, double)

extern "C" {
void* memcpy(void*, const void*, size_t) noexcept;
void* memset(void*, int, size_t) noexcept;
int printf(const char*, ...);
}

// ---- Mathematics ---------------------------------------------------------------------------------------------------

// As in CUDA, the plain name takes float, double and integers.
#define EMU_MATH1(F) \
    extern "C" double F(double) noexcept; \
    extern "C" float F##f(float) noexcept; \
    EMU float F(float x) { return F##f(x); } \
    EMU double F(int x) { return F((double)x); } \
    EMU double F(unsigned x) { return F((double)x); } \
    EMU double F(long long x) { return F((double)x); } \
    EMU double F(unsigned long long x) { return F((double)x); }
#define EMU_MATH2(F) \
    extern "C" double F(double, double) noexcept; \
    extern "C" float F##f(float, float) noexcept; \
    EMU float F(float x, float y) { return F##f(x, y); } \
    EMU double F(double x, float y) { return F(x, (double)y); } \
    EMU double F(float x, double y) { return F((double)x, y); } \
    EMU double F(double x, int y) { return F(x, (double)y); }
EMU_MATH1(exp) EMU_MATH1(exp2) EMU_MATH1(expm1) EMU_MATH1(log) EMU_MATH1(log2) EMU_MATH1(log10) EMU_MATH1(log1p)
EMU_MATH1(sqrt) EMU_MATH1(cbrt) EMU_MATH1(sin) EMU_MATH1(cos) EMU_MATH1(tan) EMU_MATH1(tanh) EMU_MATH1(erf)
EMU_MATH1(erfc) EMU_MATH1(fabs) EMU_MATH1(rint) EMU_MATH1(nearbyint) EMU_MATH1(floor) EMU_MATH1(ceil) EMU_MATH1(round)
EMU_MATH1(trunc)
EMU_MATH2(pow) EMU_MATH2(fmax) EMU_MATH2(fmin) EMU_MATH2(fmod) EMU_MATH2(copysign) EMU_MATH2(hypot)
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
EMU float fma(float x, float y, float z) { return fmaf(x, y, z); }
EMU float ldexp(float x, int e) { return ldexpf(x, e); }
EMU double rsqrt(double x) { return 1.0 / sqrt(x); }
EMU float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
EMU float rsqrt(float x) { return rsqrtf(x); }

EMU bool isfinite(double x) { return __builtin_isfinite(x); }
EMU bool isfinite(float x) { return __builtin_isfinite(x); }
EMU bool isnan(double x) { return __builtin_isnan(x); }
EMU bool isnan(float x) { return __builtin_isnan(x); }
EMU bool isinf(double x) { return __builtin_isinf(x); }
EMU bool isinf(float x) { return __builtin_isinf(x); }
EMU bool signbit(double x) { return __builtin_signbit(x); }
EMU bool signbit(float x) { return __builtin_signbit(x); }

#define EMU_MIN_MAX(R, A, B) \
    EMU R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; } \
    EMU R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
EMU_MIN_MAX(int, int, int)
EMU_MIN_MAX(unsigned, unsigned, unsigned)
EMU_MIN_MAX(unsigned, int, unsigned)
EMU_MIN_MAX(unsigned, unsigned, int)
EMU_MIN_MAX(long, long, long)
EMU_MIN_MAX(unsigned long, unsigned long, unsigned long)
EMU_MIN_MAX(long long, long long, long long)
EMU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
EMU_MIN_MAX(unsigned long long, long long, unsigned long long)
EMU_MIN_MAX(unsigned long long, unsigned long long, long long)
// A NaN loses against a number, as in fmin and fmax.
EMU float min(float a, float b) { return fminf(a, b); }
EMU float max(float a, float b) { return fmaxf(a, b); }
EMU double min(double a, double b) { return fmin(a, b); }
EMU double max(double a, double b) { return fmax(a, b); }
EMU double min(float a, double b) { return fmin(a, b); }
EMU double max(float a, double b) { return fmax(a, b); }
EMU double min(double a, float b) { return fmin(a, b); }
EMU double max(double a, float b) { return fmax(a, b); }
extern "C" int abs(int) noexcept;
EMU long long abs(long long x) { return x < 0 ? -x : x; }
EMU float abs(float x) { return fabsf(x); }
EMU double abs(double x) { return fabs(x); }

EMU double __dmul_rn(double a, double b) { return a * b; }
EMU double __dadd_rn(double a, double b) { return a + b; }
EMU double __dsub_rn(double a, double b) { return a - b; }
EMU double __ddiv_rn(double a, double b) { return a / b; }
EMU double __dsqrt_rn(double a) { return sqrt(a); }
EMU double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
EMU float __fmul_rn(float a, float b) { return a * b; }
EMU float __fadd_rn(float a, float b) { return a + b; }
EMU float __fsub_rn(float a, float b) { return a - b; }
EMU float __fdiv_rn(float a, float b) { return a / b; }
EMU float __fsqrt_rn(float a) { return sqrtf(a); }
EMU float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
EMU float __frcp_rn(float a) { return 1.0f / a; }
EMU float __fdividef(float a, float b) { return a / b; }
EMU float __expf(float a) { return expf(a); }
EMU float __logf(float a) { return logf(a); }
EMU float __log2f(float a) { return log2f(a); }
EMU float __sinf(float a) { return sinf(a); }
EMU float __cosf(float a) { return cosf(a); }
EMU int __popc(unsigned x) { return __builtin_popcount(x); }
EMU int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMU int __clz(int x) { return x ? __builtin_clz(x) : 32; }
EMU int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
EMU int __ffs(int x) { return __builtin_ffs(x); }
template <class To, class From> EMU To emu_bits(From v) { To to; memcpy(&to, &v, sizeof to); return to; }
EMU unsigned __float_as_uint(float v) { return emu_bits<unsigned>(v); }
EMU int __float_as_int(float v) { return emu_bits<int>(v); }
EMU float __uint_as_float(unsigned v) { return emu_bits<float>(v); }
EMU float __int_as_float(int v) { return emu_bits<float>(v); }
EMU long long __double_as_longlong(double v) { return emu_bits<long long>(v); }
EMU double __longlong_as_double(long long v) { return emu_bits<double>(v); }
EMU unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
template <class T> EMU T __ldg(const T* p) { return *p; }

// ---- Threads together ----------------------------------------------------------------------------------------------

EMU void __syncthreads() { emu_view.runtime->sync_block(); }
EMU void __syncwarp(unsigned mask = 0xffffffffu) { emu_view.runtime->exchange(EMU_SYNC, mask, 0); }
EMU void __threadfence() { __sync_synchronize(); }
EMU void __threadfence_block() { __sync_synchronize(); }
EMU void __threadfence_system() { __sync_synchronize(); }

template <class T> EMU T emu_shuffle(unsigned mask, T v, int from) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    unsigned long long word = 0;
    memcpy(&word, &v, sizeof v);
    word = emu_view.runtime->exchange(EMU_SHUFFLE, mask, word)[from];
    memcpy(&v, &word, sizeof v);
    return v;
}
// Beyond the lanes of its segment, a lane keeps its own value.
template <class T> EMU T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    int lane = threadIdx.lane, first = lane & ~(width - 1);
    return emu_shuffle(mask, v, first | (from & (width - 1)));
}
template <class T> EMU T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32) {
    int lane = threadIdx.lane, last = lane | (width - 1), from = lane ^ bits;
    return emu_shuffle(mask, v, from > last ? lane : from);
}
template <class T> EMU T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    int lane = threadIdx.lane, first = lane & ~(width - 1), from = lane - (int)by;
    return emu_shuffle(mask, v, from < first ? lane : from);
}
template <class T> EMU T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    int lane = threadIdx.lane, last = lane | (width - 1), from = lane + (int)by;
    return emu_shuffle(mask, v, from > last ? lane : from);
}
EMU unsigned long long emu_vote(unsigned mask, bool yes) {
    return emu_view.runtime->exchange(EMU_BALLOT, mask, yes)[threadIdx.lane];
}
#define EMU_REDUCE(NAME, T, NEW) \
    EMU T NAME(unsigned mask, T v) { \
        for (int bits = 1; bits < 32; bits *= 2) { T other = __shfl_xor_sync(mask, v, bits); v = NEW; } \
        return v; \
    }
EMU_REDUCE(__reduce_add_sync, unsigned, v + other)
EMU_REDUCE(__reduce_add_sync, int, v + other)
EMU_REDUCE(__reduce_max_sync, unsigned, v > other ? v : other)
EMU_REDUCE(__reduce_max_sync, int, v > other ? v : other)
EMU_REDUCE(__reduce_min_sync, unsigned, v < other ? v : other)
EMU_REDUCE(__reduce_min_sync, int, v < other ? v : other)
EMU unsigned __ballot_sync(unsigned mask, int yes) { return (unsigned)emu_vote(mask, yes != 0); }
EMU int __any_sync(unsigned mask, int yes) { return (unsigned)emu_vote(mask, yes != 0) != 0; }
EMU int __all_sync(unsigned mask, int yes) {
    unsigned long long votes = emu_vote(mask, yes != 0);
    return (unsigned)votes == (unsigned)(votes >> 32);
}

// One thread runs at a time and is only left where it waits, so atomics are plain operations. The value's type is the
// memory's type: the second parameter is not deduced.
template <class T> struct emu_Same { typedef T type; };
#define EMU_ATOMIC(NAME, NEW) \
    template <class T> EMU T NAME(T* p, typename emu_Same<T>::type v) { T old = *p; *p = NEW; return old; }
EMU_ATOMIC(atomicAdd, old + v)
EMU_ATOMIC(atomicSub, old - v)
EMU_ATOMIC(atomicMin, v < old ? v : old)
EMU_ATOMIC(atomicMax, v > old ? v : old)
EMU_ATOMIC(atomicAnd, old & v)
EMU_ATOMIC(atomicOr, old | v)
EMU_ATOMIC(atomicXor, old ^ v)
EMU_ATOMIC(atomicExch, v)
template <class T> EMU T atomicCAS(T* p, typename emu_Same<T>::type expect, typename emu_Same<T>::type v) {
    T old = *p;
    if (old == expect) *p = v;
    return old;
}

// ---- PTX -----------------------------------------------------------------------------------------------------------

EMU long long clock64() { return (long long)emu_view.runtime->now(); }
EMU void __nanosleep(unsigned ns) { emu_view.runtime->rest(ns); }
EMU void __trap() { emu_view.runtime->fail(719); }

#ifndef KMARK_EMULATE

// libnvrtc.cpp makes calls of asm statements. Operands in registers of 16, 32 and 64 bits:
EMU unsigned long long emu_h(unsigned short v) { return v; }
template <class T> EMU unsigned long long emu_r(T v) { return (unsigned)v; }
template <class T> EMU unsigned long long emu_l(T v) { return (unsigned long long)v; }
EMU unsigned long long emu_f(float v) { return emu_bits<unsigned>(v); }
EMU unsigned long long emu_d(double v) { return emu_bits<unsigned long long>(v); }
template <class T> EMU unsigned long long emu_n(T v) { return (unsigned long long)v; }

// Addresses in shared memory count from a multiple of 1024, as swizzled tiles lie.
EMU size_t __cvta_generic_to_shared(const void* p) {
    return (size_t)((const char*)p - (const char*)((size_t)__bss_start & ~(size_t)1023));
}

#else
// What kmark.cuh and mma.cuh write in PTX.

EMU unsigned long long global_ns() { return emu_view.runtime->now(); }
EMU unsigned sm_id() {
    return (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) % 16;
}
// A kernel that polls memory waits for the host or another stream: they get a turn.
EMU unsigned load_system(const unsigned* p) {
    emu_view.runtime->rest(0);
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
EMU void store_system(unsigned* p, unsigned v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

struct f16;
struct bf16;
template <class T> struct emu_MmaOf;
template <> struct emu_MmaOf<f16> { static constexpr emu_Op op = EMU_MMA_F16; };
template <> struct emu_MmaOf<bf16> { static constexpr emu_Op op = EMU_MMA_BF16; };
template <> struct emu_MmaOf<float> { static constexpr emu_Op op = EMU_MMA_TF32; };

EMU void ldmatrix4(unsigned (&r)[4], const void* row) { emu_view.runtime->ldmatrix(EMU_LDMATRIX, r, row); }
EMU void ldmatrix4_trans(unsigned (&r)[4], const void* row) { emu_view.runtime->ldmatrix(EMU_LDMATRIX_TRANS, r, row); }
template <class T> EMU void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, T) {
    emu_view.runtime->mma(emu_MmaOf<T>::op, d, a, b0, b1);
}
EMU void copy_async16(void* to, const void* from, bool valid = true) {
    emu_view.runtime->copy_async(to, from, valid);
}
EMU void copy_commit() { emu_view.runtime->copy_commit(); }
template <int left> EMU void copy_wait() { emu_view.runtime->copy_wait(left); }

#endif
#endif
