// Attention on tensor cores, for 16-bit tensors whose head size D is a constant: tiles in shared memory, products of
// them in registers. Rows are padded with zeros to DP columns, and lie PITCH apart so that no two of eight meet in a bank.
#pragma once
#include "attention.cuh"
#include "mma.cuh"

constexpr int DP = ((int)D + 15) / 16 * 16, PITCH = DP + 8;
constexpr int WARPS = 4, THREADS = 32 * WARPS;

// Whether rows can be copied 16 bytes at a time: a word of the case, and a look at the tensor.
constexpr bool VECTORS = D % 8 == 0 && MEMORY != MEMORY_unaligned;
template <class T> DEVICE bool in_vectors(const Tensor<T>& t) { return VECTORS && t.aligned(16); }

#ifndef KMARK_EMULATE
// 2^x to about 22 bits; results below the smallest normal number are 0.
DEVICE float power2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
// Two numbers rounded into one register, the first in the low half.
DEVICE u32 rounded_pair(float first, float second, f16) { u32 p; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(second), "f"(first)); return p; }
DEVICE u32 rounded_pair(float first, float second, bf16) { u32 p; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(second), "f"(first)); return p; }
#else
DEVICE float power2(float x) { return exp2f(x); }
DEVICE u32 rounded_pair(float first, float second, f16) { return pair(to_f16(first), to_f16(second)); }
DEVICE u32 rounded_pair(float first, float second, bf16) { return pair(to_bf16(first), to_bf16(second)); }
#endif

// ROWS rows from `first` on into shared memory, zeros from row `end` on. The copy may still be under way on return.
template <int ROWS, class T> DEVICE void load_tile(T* to, Head<const T> from, int first, int end, bool vectors) {
    constexpr int CHUNKS = DP / 8, STEP = THREADS / CHUNKS;
    if (vectors) {
        // A thread keeps its column. Where columns do not divide the threads, the last few are idle.
        int r = threadIdx.x / CHUNKS, c = threadIdx.x % CHUNKS * 8;
        const T* at = from.row(first + r) + c;
        #pragma unroll
        for (int n = 0; n < ROWS; n += STEP, at += STEP * from.step) {
            if (THREADS % CHUNKS != 0 && r >= STEP) break;
            if (ROWS % STEP != 0 && r + n >= ROWS) break;
            copy_async16(to + (r + n) * PITCH + c, at, first + r + n < end && c < D); // not read if not valid
        }
        return;
    }
    #pragma unroll 1
    for (int n = threadIdx.x; n < ROWS * (DP / 4); n += THREADS) {
        int r = n / (DP / 4), c = n % (DP / 4) * 4;
        const T* row = from.row(first + r) + c;
        Vec<T, 4> v;
        #pragma unroll
        for (int e = 0; e < 4; e++) v.v[e] = first + r < end && c + e < D ? row[e] : T{0};
        store<4>(to + r * PITCH + c, v);
    }
}

// One lane's part of a 16-row tile of sums: columns in groups of 8, of each {(row, col), (row, col+1), (row+8, col), (row+8,
// col+1)} with row = lane/4, col = 2(lane%4).
template <int TILES, int COLS> struct Sums {
    float v[TILES][COLS / 8][4];

    __device__ __forceinline__ void clear() {
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
            #pragma unroll
            for (int n = 0; n < COLS / 8; n++) v[t][n][0] = v[t][n][1] = v[t][n][2] = v[t][n][3] = 0.0f;
        }
    }
};

// sums[r][c] = own row r times other row c; TILES * 16 own rows against COLS others, all of D columns.
template <int TILES, int COLS, class T> DEVICE void rows_times_rows(Sums<TILES, COLS>& sums, const T* own, const T* other) {
    int lane = threadIdx.x % 32;
    own += lane % 16 * PITCH + lane / 16 * 8;
    other += (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 8;
    sums.clear();
    #pragma unroll
    for (int k = 0; k < DP; k += 16) {
        u32 a[TILES][4], b[4];
        #pragma unroll
        for (int t = 0; t < TILES; t++) ldmatrix4(a[t], own + t * 16 * PITCH + k);
        #pragma unroll
        for (int n = 0; n < COLS; n += 16) {
            ldmatrix4(b, other + n * PITCH + k);
            #pragma unroll
            for (int t = 0; t < TILES; t++) {
                mma(sums.v[t][n / 8], a[t], b[0], b[1], T{});
                mma(sums.v[t][n / 8 + 1], a[t], b[2], b[3], T{});
            }
        }
    }
}

// sums[r][x] += weights[r][c] * other[c][x], the weights rounded to T.
template <int TILES, int COLS, class T>
DEVICE void weights_times_rows(Sums<TILES, DP>& sums, const Sums<TILES, COLS>& weights, const T* other) {
    int lane = threadIdx.x % 32;
    other += lane % 16 * PITCH + lane / 16 * 8;
    #pragma unroll
    for (int c = 0; c < COLS; c += 16) {
        u32 a[TILES][4], b[4];
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
            const float(&low)[4] = weights.v[t][c / 8], (&high)[4] = weights.v[t][c / 8 + 1];
            a[t][0] = rounded_pair(low[0], low[1], T{}), a[t][1] = rounded_pair(low[2], low[3], T{});
            a[t][2] = rounded_pair(high[0], high[1], T{}), a[t][3] = rounded_pair(high[2], high[3], T{});
        }
        #pragma unroll
        for (int x = 0; x < DP; x += 16) {
            ldmatrix4_trans(b, other + c * PITCH + x);
            #pragma unroll
            for (int t = 0; t < TILES; t++) {
                mma(sums.v[t][x / 8], a[t], b[0], b[1], T{});
                mma(sums.v[t][x / 8 + 1], a[t], b[2], b[3], T{});
            }
        }
    }
}

// The warp's rows, times by(tile, half), to rows `first` .. of `to` below `end`; by way of the warp's own `room` of
// TILES * 16 rows, so that whole rows are written.
template <int TILES, class T, class By>
DEVICE void write_rows(Head<T> to, int first, int end, const Sums<TILES, DP>& sums, T* room, bool vectors, By by) {
    int lane = threadIdx.x % 32;
    __syncwarp();
    #pragma unroll
    for (int t = 0; t < TILES; t++) {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            float f = by(t, h);
            #pragma unroll
            for (int n = 0; n < DP / 8; n++) {
                u32 two = rounded_pair(sums.v[t][n][2 * h] * f, sums.v[t][n][2 * h + 1] * f, T{});
                *(u32*)(room + (t * 16 + h * 8 + lane / 4) * PITCH + n * 8 + lane % 4 * 2) = two;
            }
        }
    }
    __syncwarp();
    constexpr int CHUNKS = DP / 8;
    for (int n = lane; n < TILES * 16 * CHUNKS; n += 32) {
        int r = n / CHUNKS, c = n % CHUNKS * 8;
        if (first + r >= end || c >= D) continue;
        Vec<T, 8> v = load<8>(room + r * PITCH + c);
        T* row = to.row(first + r) + c;
        if (vectors) {
            store<8>(row, v);
        } else {
            #pragma unroll
            for (int e = 0; e < 8; e++) if (c + e < D) row[e] = v.v[e];
        }
    }
}
