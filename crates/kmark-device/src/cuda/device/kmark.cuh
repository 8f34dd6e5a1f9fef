// What every kernel of Kernelmark starts from: element types without any CUDA header, tensors as rows, reductions,
// clocks. KMARK_EMULATE is set where kernels run on the CPU for tests; only what is written in PTX differs there.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE [[maybe_unused]] static __device__ __forceinline__
#define KERNEL extern "C" __global__ void

DEVICE u32 bits_of(float v) { u32 b; memcpy(&b, &v, 4); return b; }
DEVICE float float_of(u32 b) { float v; memcpy(&v, &b, 4); return v; }
DEVICE u64 bits_of(double v) { u64 b; memcpy(&b, &v, 8); return b; }
DEVICE double double_of(u64 b) { double v; memcpy(&v, &b, 8); return v; }

// 2^e for any e that a double can hold.
DEVICE double pow2(int e) { return e >= -1022 ? double_of((u64)(e + 1023) << 52) : double_of(1ull << (e + 1074)); }

// e with 2^e <= |x| < 2^(e+1), for finite x that is not 0.
DEVICE int exponent(double x) {
    int b = (int)(bits_of(x) >> 52) & 0x7ff;
    if (b == 0) return ((int)(bits_of(x * pow2(64)) >> 52) & 0x7ff) - 1023 - 64;
    return b - 1023;
}

// ---- Element types -------------------------------------------------------------------------------------------------

// 16- and 8-bit floats are their bits; they convert from and to float, each conversion rounded once, to nearest even.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct e4m3 { u8 bits; };
struct e5m2 { u8 bits; };

// Significand bits with the hidden one, smallest normal exponent, largest finite value.
template <class T> struct Format;
template <> struct Format<double> { static constexpr int precision = 53, min_exp = -1022; static constexpr double max = 1.7976931348623157e308; };
template <> struct Format<float> { static constexpr int precision = 24, min_exp = -126; static constexpr double max = 3.4028234663852886e38; };
template <> struct Format<f16> { static constexpr int precision = 11, min_exp = -14; static constexpr double max = 65504.0; };
template <> struct Format<bf16> { static constexpr int precision = 8, min_exp = -126; static constexpr double max = 3.3895313892515355e38; };
template <> struct Format<e4m3> { static constexpr int precision = 4, min_exp = -6; static constexpr double max = 448.0; };
template <> struct Format<e5m2> { static constexpr int precision = 3, min_exp = -14; static constexpr double max = 57344.0; };
template <> struct Format<int> { static constexpr int precision = 24, min_exp = -126; static constexpr double max = 3.4028234663852886e38; };
template <> struct Format<i64> { static constexpr int precision = 53, min_exp = -1022; static constexpr double max = 1.7976931348623157e308; };

template <class A, class B> struct same { static constexpr bool value = false; };
template <class A> struct same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool is = same<A, B>::value;

// Half the spacing just above 1.
template <class T> DEVICE double unit() { return pow2(-Format<T>::precision); }

// Distance between neighbouring values of T around x.
template <class T> DEVICE double spacing(double x) {
    int e = x == 0.0 || !isfinite(x) ? Format<T>::min_exp : exponent(x);
    if (e < Format<T>::min_exp) e = Format<T>::min_exp;
    return pow2(e - Format<T>::precision + 1);
}

// x rounded to the nearest value of T, ties to even; beyond the largest it is infinite (NaN for e4m3).
template <class T> DEVICE double rounded(double x) {
    if (is<T, double> || is<T, i64> || !isfinite(x)) return x;
    int e = x == 0.0 ? Format<T>::min_exp : exponent(x);
    int steps = Format<T>::precision - 1 - (e < Format<T>::min_exp ? Format<T>::min_exp : e);
    double r = rint(x * pow2(steps)) * pow2(-steps); // a spacing is a power of two: nothing is divided
    if (fabs(r) > Format<T>::max) return is<T, e4m3> ? double_of(0x7ff8000000000000ull) : copysign(double_of(0x7ff0000000000000ull), x);
    return r;
}

#ifdef KMARK_EMULATE
DEVICE float to_float(f16 v) {
    u32 e = v.bits >> 10 & 31, m = v.bits & 1023, s = (u32)(v.bits & 0x8000) << 16;
    if (e == 31) return float_of(s | 0x7f800000 | m << 13);
    if (e == 0) return float_of(s | bits_of((float)m * 5.9604644775390625e-8f));
    return float_of(s | (e + 112) << 23 | m << 13);
}
DEVICE f16 to_f16(float v) {
    double r = rounded<f16>(v);
    u16 s = (u16)(bits_of(v) >> 16 & 0x8000);
    if (isnan(r)) return f16{(u16)(s | 0x7e00)};
    if (isinf(r)) return f16{(u16)(s | 0x7c00)};
    double a = fabs(r);
    if (a < 6.103515625e-05) return f16{(u16)(s | (u16)(a * 16777216.0))};
    int e = exponent(a);
    return f16{(u16)(s | (u16)((e + 15) << 10) | (u16)((a / pow2(e) - 1.0) * 1024.0))};
}
#else
DEVICE float to_float(f16 v) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits)); return f; }
DEVICE f16 to_f16(float v) { f16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(v)); return h; }
#endif
DEVICE float to_float(bf16 v) { return float_of((u32)v.bits << 16); }
#if defined(KMARK_EMULATE)
DEVICE bf16 to_bf16(float v) {
    u32 b = bits_of(v);
    if (isnan(v)) return bf16{0x7fff};
    return bf16{(u16)((b + 0x7fff + (b >> 16 & 1)) >> 16)};
}
#else
DEVICE bf16 to_bf16(float v) { bf16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(v)); return h; }
#endif

// 8-bit floats in plain arithmetic; `pair` below is the fast way where the GPU has one.
template <class T> DEVICE float f8_to_float(u8 b) {
    constexpr int fraction = Format<T>::precision - 1, top = 0x7f >> fraction;
    int e = (b & 0x7f) >> fraction, m = b & ((1 << fraction) - 1);
    u32 sign = (u32)(b & 0x80) << 24;
    if (is<T, e5m2> && e == top) return float_of(sign | (m ? 0x7fc00000 : 0x7f800000));
    if (is<T, e4m3> && (b & 0x7f) == 0x7f) return float_of(sign | 0x7fc00000);
    if (e == 0) return float_of(sign | bits_of((float)(m * pow2(Format<T>::min_exp - fraction))));
    return float_of(sign | (u32)(e - 1 + Format<T>::min_exp + 127) << 23 | (u32)m << (23 - fraction));
}
template <class T> DEVICE u8 f8_bits(double v) {
    constexpr int fraction = Format<T>::precision - 1, min_exp = Format<T>::min_exp;
    u8 sign = bits_of(v) >> 63 ? 0x80 : 0;
    double r = fabs(rounded<T>(v));
    if (isnan(r) || (isinf(r) && is<T, e4m3>)) return sign | 0x7f;
    if (isinf(r)) return sign | 0x7c;
    int e = r == 0.0 ? min_exp : exponent(r);
    if (e < min_exp) e = min_exp;
    u32 units = (u32)(r / pow2(e - fraction));
    return sign | (u8)(units >> fraction == 0 ? units : ((u32)(e - min_exp) << fraction) + units);
}
DEVICE float to_float(e4m3 v) { return f8_to_float<e4m3>(v.bits); }
DEVICE float to_float(e5m2 v) { return f8_to_float<e5m2>(v.bits); }
DEVICE float to_float(float v) { return v; }

// Up: any element as its accumulator's type, or as double. Exact.
DEVICE float up(float v) { return v; }
DEVICE double up(double v) { return v; }
DEVICE float up(f16 v) { return to_float(v); }
DEVICE float up(bf16 v) { return to_float(v); }
DEVICE float up(e4m3 v) { return to_float(v); }
DEVICE float up(e5m2 v) { return to_float(v); }
DEVICE double wide(double v) { return v; }
DEVICE double wide(int v) { return v; }
DEVICE double wide(i64 v) { return (double)v; }
template <class T> DEVICE double wide(T v) { return (double)to_float(v); }

// Down: from the accumulator to T, one rounding.
template <class T> struct Down;
template <> struct Down<float> { DEVICE float of(float v) { return v; } DEVICE float of(double v) { return (float)v; } };
template <> struct Down<double> { DEVICE double of(double v) { return v; } };
template <> struct Down<f16> { DEVICE f16 of(float v) { return to_f16(v); } DEVICE f16 of(double v) { return to_f16((float)rounded<f16>(v)); } };
template <> struct Down<bf16> { DEVICE bf16 of(float v) { return to_bf16(v); } DEVICE bf16 of(double v) { return to_bf16((float)rounded<bf16>(v)); } };
// Values beyond the format's largest become NaN or infinite, as in `rounded`: a kernel that wants them clamped clamps.
#if !defined(KMARK_EMULATE) && __CUDA_ARCH__ >= 890
template <> struct Down<e4m3> {
    DEVICE e4m3 of(float v) {
        u16 p;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(p) : "f"(v));
        return e4m3{fabsf(v) < 464.0f ? (u8)p : f8_bits<e4m3>(v)};
    }
    DEVICE e4m3 of(double v) { return e4m3{f8_bits<e4m3>(v)}; }
};
template <> struct Down<e5m2> {
    DEVICE e5m2 of(float v) {
        u16 p;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %1;" : "=h"(p) : "f"(v));
        return e5m2{fabsf(v) < 61440.0f ? (u8)p : f8_bits<e5m2>(v)};
    }
    DEVICE e5m2 of(double v) { return e5m2{f8_bits<e5m2>(v)}; }
};
#else
template <> struct Down<e4m3> { DEVICE e4m3 of(float v) { return e4m3{f8_bits<e4m3>(v)}; } DEVICE e4m3 of(double v) { return e4m3{f8_bits<e4m3>(v)}; } };
template <> struct Down<e5m2> { DEVICE e5m2 of(float v) { return e5m2{f8_bits<e5m2>(v)}; } DEVICE e5m2 of(double v) { return e5m2{f8_bits<e5m2>(v)}; } };
#endif
template <> struct Down<int> { DEVICE int of(double v) { return (int)v; } };
template <> struct Down<i64> { DEVICE i64 of(double v) { return (i64)v; } };
template <class T> DEVICE T down(float v) { return Down<T>::of(v); }
template <class T> DEVICE T down(double v) { return Down<T>::of(v); }

// ---- Tensors -------------------------------------------------------------------------------------------------------

// Rows of the last dimension, `pitch` elements apart; `rows` counts all the other dimensions together. A vector is one
// row. `ptr` is null where the case has no such tensor.
template <class T> struct Tensor {
    T* ptr;
    i64 rows, cols, pitch;
    __device__ __forceinline__ T* row(i64 r) const { return ptr + r * pitch; }
    __device__ __forceinline__ T& at(i64 r, i64 c) const { return ptr[r * pitch + c]; }
    // Whether every row starts at a multiple of `bytes`.
    __device__ __forceinline__ bool aligned(int bytes) const {
        return (u64)ptr % bytes == 0 && (rows <= 1 || pitch * sizeof(T) % bytes == 0);
    }
};

// N elements moved at once: 16 bytes if N * sizeof(T) is 16.
template <class T, int N> struct alignas(sizeof(T) * N) Vec { T v[N]; };
template <int N, class T> DEVICE Vec<T, N> load(const T* p) { return *reinterpret_cast<const Vec<T, N>*>(p); }
template <int N, class T> DEVICE void store(T* p, Vec<T, N> v) { *reinterpret_cast<Vec<T, N>*>(p) = v; }

// ---- Reductions ----------------------------------------------------------------------------------------------------

struct Add { template <class A> DEVICE A of(A a, A b) { return a + b; } };
struct Max { template <class A> DEVICE A of(A a, A b) { return a > b ? a : b; } };

// Over the 32 lanes of a warp; all lanes take part and all get the result.
template <class By, class A> DEVICE A warp_all(A v) {
    for (int step = 16; step > 0; step /= 2) v = By::of(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

// Over all threads of a one-dimensional block of whole warps; all get the result. `zero` is the neutral element.
template <class By, class A> DEVICE A block_all(A v, A zero) {
    __shared__ A parts[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    v = warp_all<By>(v);
    if (warps == 1) return v;
    __syncthreads(); // parts may still be read from the last time
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    return warp_all<By>(lane < warps ? parts[lane] : zero);
}
template <class A> DEVICE A block_sum(A v) { return block_all<Add>(v, A(0)); }
template <class A> DEVICE A block_max(A v) { return block_all<Max>(v, (A)double_of(0xfff0000000000000ull)); }

// ---- Random inputs -------------------------------------------------------------------------------------------------

struct Words { u32 v[4]; };

// Philox4x32-10 (Salmon et al., SC 2011) with the counter `index`.
DEVICE Words philox(u64 key, u64 index) {
    u32 c[4] = {(u32)index, (u32)(index >> 32), 0, 0}, k0 = (u32)key, k1 = (u32)(key >> 32);
    for (int round = 0; round < 10; round++) {
        if (round > 0) k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
        u64 a = (u64)c[0] * 0xd2511f53u, b = (u64)c[2] * 0xcd9e8d57u;
        u32 n0 = (u32)(b >> 32) ^ c[1] ^ k0, n2 = (u32)(a >> 32) ^ c[3] ^ k1;
        c[0] = n0, c[1] = (u32)b, c[2] = n2, c[3] = (u32)a;
    }
    return Words{{c[0], c[1], c[2], c[3]}};
}

// The generator's key of a tensor: FNV-1a of its name, mixed with the seed by splitmix64.
DEVICE u64 fill_key(u64 seed, const char* name) {
    u64 h = 0xcbf29ce484222325ull;
    for (; *name; name++) h = (h ^ (u8)*name) * 0x100000001b3ull;
    u64 z = (h ^ seed) + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// Element `index` of the standard normal of `key`, the same bits as on the CPU: a centred sum of eight uniforms.
DEVICE double normal(u64 key, u64 index) {
    Words w = philox(key, index);
    u32 sum = 0;
    for (int i = 0; i < 4; i++) sum += (w.v[i] & 0xffff) + (w.v[i] >> 16);
    return __dmul_rn((double)sum - 4.0 * 65535.0, 1.0 / 53509.91992145008);
}

// Rows come in cycles of sixteen kinds, which begin where the seed says; kmark-core's fill.rs explains them.
DEVICE u32 row_slot(u64 row, u64 seed) { return (u32)((row + seed) % 16); }

// Scale of a row where rows differ in nothing but their scale.
DEVICE double row_scale(u32 slot) { return slot == 10 ? 0.0 : slot == 11 ? 1.0 / 1024.0 : slot == 13 ? 16.0 : 1.0; }

// Element `col` of row `row` of n columns.
DEVICE double rows_value(u64 key, u64 seed, i64 row, i64 col, i64 n, double mean, double std, double shift) {
    auto plain = [&](i64 c) { return __dadd_rn(mean, __dmul_rn(std, normal(key, (u64)(row * n + c)))); };
    switch (row_slot(row, seed)) {
    case 9: return col == 0 || col == n - 1 ? __dmul_rn(32.0, plain(col)) : plain(col);
    case 10: return 0.0;
    case 11: return __dmul_rn(1.0 / 1024.0, plain(col));
    case 12: return __dadd_rn(shift, plain(col));
    case 13: return __dmul_rn(16.0, plain(col));
    case 14: return col == 0 || col == n - 1 || col == n / 3 || col == n / 2 ? plain(col) : 0.0;
    case 15: return double_of(bits_of(plain(0)) >> 52 << 52); // a power of two
    default: return plain(col);
    }
}

// The same, where a tile of 128 by 128 may be all zero, or hold the same value everywhere.
DEVICE double tile_value(u64 key, u64 seed, i64 row, i64 col, i64 n, double std) {
    i64 tile = row / 128 * ((n + 127) / 128) + col / 128;
    u32 slot = row_slot(tile, seed);
    if (slot == 10) return 0.0;
    if (slot == 15) return __dmul_rn(std, normal(key, (u64)tile));
    return rows_value(key, seed, row, col, n, 0.0, std, 0.0);
}

// The same as rows_value for logits.
DEVICE double logit_value(u64 key, u64 seed, i64 row, i64 col, i64 n, double std, double shift) {
    auto plain = [&](i64 c) { return __dmul_rn(std, normal(key, (u64)(row * n + c))); };
    switch (row_slot(row, seed)) {
    case 9: return col == 0 || col == n - 1 ? __dadd_rn(__dmul_rn(4.0, std), plain(col)) : plain(col);
    case 10: return plain(0);
    case 11: case 14: return __dmul_rn(64.0, plain(col));
    case 12: return __dadd_rn(shift, plain(col));
    case 13: return __dadd_rn(plain(col), -shift);
    default: return plain(col);
    }
}

// ---- Clocks --------------------------------------------------------------------------------------------------------

#ifndef KMARK_EMULATE
DEVICE u64 global_ns() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }
DEVICE u32 sm_id() { u32 s; asm volatile("mov.u32 %0, %%smid;" : "=r"(s)); return s; }
DEVICE u32 load_system(const u32* p) { u32 v; asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
DEVICE void store_system(u32* p, u32 v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
#endif
