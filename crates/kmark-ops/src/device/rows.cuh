// Rows of compile-time length over teams of threads: which thread holds which elements, loads and stores of 16 bytes
// where rows are aligned, sums and maxima over the team. A row stays in registers where it fits.
#pragma once
#include "fast_exp.cuh"

DEVICE constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
DEVICE constexpr int up_to_pow2(i64 n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

// ---- Teams ---------------------------------------------------------------------------------------------------------

// `per` neighbouring threads share a row: a power of two up to 32, or whole warps. A block of `threads` has as many
// rows at a time as fit; threads that are left over only wait at barriers.
template <int team, int block> struct Team {
    static constexpr int per = team, threads = block, rows = block / team;

    DEVICE int lane() { return rows > 1 || per < threads ? threadIdx.x % per : threadIdx.x; }
    DEVICE int index() { return rows > 1 || per < threads ? threadIdx.x / per : 0; }
};

// Each of `count` values over the team, by sum or maximum; all its threads get the results. One call after another must
// alternate between slot 0 and slot 1: then one barrier is enough, as nobody overwrites what a slower thread reads.
template <class By, class T, int count, class A> DEVICE void team_all(A (&v)[count], A zero, int slot) {
    constexpr int in_warp = T::per < 32 ? T::per : 32, warps = T::per / 32;
#pragma unroll
    for (int step = in_warp / 2; step > 0; step /= 2)
#pragma unroll
        for (int i = 0; i < count; i++) v[i] = By::of(v[i], __shfl_xor_sync(0xffffffffu, v[i], step));
    if constexpr (warps > 1) {
        constexpr int lanes = up_to_pow2(warps);
        __shared__ A parts[2][count][32];
        int lane = threadIdx.x % 32, from = lane % lanes;
        if (lane == 0)
            for (int i = 0; i < count; i++) parts[slot][i][threadIdx.x / 32] = v[i];
        __syncthreads();
        int at = (T::index() * warps + from) % 32;
#pragma unroll
        for (int i = 0; i < count; i++) v[i] = from < warps ? parts[slot][i][at] : zero;
#pragma unroll
        for (int step = lanes / 2; step > 0; step /= 2)
#pragma unroll
            for (int i = 0; i < count; i++) v[i] = By::of(v[i], __shfl_xor_sync(0xffffffffu, v[i], step));
    }
}
template <class T, class A> DEVICE A team_sum(A v, int slot) {
    A one[1] = {v};
    team_all<Add, T>(one, A(0), slot);
    return one[0];
}
template <class T, class A> DEVICE A team_max(A v, int slot) {
    A one[1] = {v};
    team_all<Max, T>(one, v, slot); // a thread's own value is neutral
    return one[0];
}

// ---- Rows ----------------------------------------------------------------------------------------------------------

// How a thread of team T walks over a row: `count` accesses of `step` neighbouring elements. If `resident`, what it
// loads stays in registers; else every pass loads again.
template <class T, i64 row_length, int row_step, bool in_registers> struct Layout {
    using Team = T;
    static constexpr i64 length = row_length;
    static constexpr int step = row_step, count = (int)ceil_div(ceil_div(length, step), T::per);
    static constexpr bool resident = in_registers;
    // Whether some thread's last access lies beyond the row, and whether an access can lie there in part.
    static constexpr bool spare = ceil_div(length, step) % T::per != 0, tail = length % step != 0;

    // Only the last access can be one in part.
    DEVICE bool whole(int k, int column) { return !tail || k + 1 < count || column + step <= length; }
    DEVICE bool has(int k, int column) { return !tail || k + 1 < count || column < length; }

    // Calls f(k, column) for every access k of this thread; `together` of them may load at the same time.
    template <int together, class F> DEVICE void each_of(F f) {
#pragma unroll together
        for (int k = 0; k < count; k++) {
            int column = (k * T::per + T::lane()) * step;
            if (!spare || k + 1 < count || column < length) f(k, column);
        }
    }
    template <class F> DEVICE void each(F f) { each_of<resident ? count : 4>(f); }

    // Access k; `beyond` stands for elements that the row does not have.
    template <class E> DEVICE Vec<E, step> take(const E* row, int k, int column, E beyond = E{}) {
        if constexpr (tail) {
            if (!whole(k, column)) {
                Vec<E, step> v;
#pragma unroll
                for (int i = 0; i < step; i++) v.v[i] = column + i < length ? row[column + i] : beyond;
                return v;
            }
        }
        return load<step>(row + column);
    }
    template <class E> DEVICE void put(E* row, int k, int column, Vec<E, step> v) {
        if constexpr (tail) {
            if (!whole(k, column)) {
#pragma unroll
                for (int i = 0; i < step; i++)
                    if (column + i < length) row[column + i] = v.v[i];
                return;
            }
        }
        store<step>(row + column, v);
    }
};

// The same value, but the compiler does not know: it converts again what it would otherwise keep in both formats, in
// twice the registers.
template <class V> DEVICE void forget(V& v) {
#ifndef KMARK_EMULATE
    if constexpr (sizeof(V) % 4 == 0) {
        u32 words[sizeof(V) / 4];
        memcpy(words, &v, sizeof(V));
#pragma unroll
        for (int i = 0; i < (int)(sizeof(V) / 4); i++) asm volatile("" : "+r"(words[i]));
        memcpy(&v, words, sizeof(V));
    } else {
        asm volatile("" : "+h"(v.v[0].bits));
    }
#endif
}

// Loads that follow are not made before this, where they would only take registers.
DEVICE void one_at_a_time() {
#ifndef KMARK_EMULATE
    asm volatile("" ::: "memory");
#endif
}

// This thread's part of a row.
template <class L, class E> struct Row {
    static constexpr bool resident = L::resident;
    Vec<E, L::step> held[L::resident ? L::count : 1];
    const E* row;
    E beyond;

    __device__ __forceinline__ Row() : row(nullptr), beyond(E{}) {} // to be filled by its owner
    __device__ __forceinline__ explicit Row(const E* from, E fill = E{}) : row(from), beyond(fill) {
        if constexpr (L::resident) L::each([&](int k, int column) { held[k] = L::take(row, k, column, beyond); });
    }
    __device__ __forceinline__ Vec<E, L::step> at(int k, int column) const {
        if constexpr (L::resident) return held[k];
        else return L::take(row, k, column, beyond);
    }
    // To be called between two passes.
    __device__ __forceinline__ void convert_again() {
        if constexpr (L::resident && sizeof(E) < sizeof(acc_t)) L::each([&](int k, int) { forget(held[k]); });
    }
};

// ---- One kernel for all row lengths --------------------------------------------------------------------------------

// Whether the rows of a case are aligned to 16 bytes, as its layout says; `memory` is the attribute, 0 dense, 1
// strided. Kernels rely on it: a pointer that is not what the case says is an error of the launch, not a wrong answer.
template <class E> DEVICE constexpr bool rows_aligned(int memory, i64 length) {
    return memory == 1 || (memory == 0 && length * sizeof(E) % 16 == 0);
}

// Rows of E, `inputs` of them at a time. Those of up to 2 KB go to warps or parts of warps, 128 threads to a block; a
// longer one to a block of its own, with `share` bytes to a thread while 1024 threads are enough. The launch directives
// of the kernels say the same.
template <class E, i64 length, int inputs, int share, bool aligned> struct RowKernel {
    static constexpr i64 bytes = length * sizeof(E);
    static constexpr bool many = bytes <= 2048;
    static constexpr i64 wanted = many ? up_to_pow2(ceil_div(bytes, 16)) : ceil_div(bytes, share * 32) * 32;
    static constexpr i64 limit = many ? 32 : 1024;
    static constexpr int per = (int)(wanted < limit ? wanted : limit), threads = many ? 128 : per;
    static constexpr int step = aligned ? 16 / sizeof(E) : 1, budget = threads > 512 ? 32 : 64;
    // Registers that hold the rows, if they do.
    static constexpr i64 registers = ceil_div(ceil_div(length, step), per) * inputs * ceil_div(step * sizeof(E), 4);
    using Layout = ::Layout<Team<per, threads>, length, step, registers <= budget>;

    // Calls f(row, live): once in a block that has one row, else until all rows are done. All threads take part in
    // every call, because the lanes of a warp reduce together; those without a row get the last one and must not write.
    // Blocks with many rows have no barriers to alternate slots for: their teams are warps or less.
    template <class F> DEVICE void each_row(i64 m, F f) {
        if constexpr (many) {
            for (i64 first = (i64)blockIdx.x * (threads / per); first < m; first += (i64)gridDim.x * (threads / per)) {
                i64 row = first + Layout::Team::index();
                f(row < m ? row : m - 1, row < m);
            }
        } else {
            f((i64)blockIdx.x, true);
        }
    }
};

// ---- Arithmetic ----------------------------------------------------------------------------------------------------

DEVICE float inverse_root(float v) { return 1.0f / sqrtf(v); }
DEVICE double inverse_root(double v) { return 1.0 / sqrt(v); }

template <class A> DEVICE A minus_infinity() { return (A)double_of(0xfff0000000000000ull); }

// exp(x - top) for elements of type E. Where E has 16 bits, as a power of two with one rounding less on the way; that
// top * log2(e) is rounded does not matter, because all weights of a row and their sum are off by the same factor.
template <class E> struct Exp {
    static constexpr bool of_two = sizeof(E) == 2;
    acc_t top;
    __device__ __forceinline__ explicit Exp(acc_t max) : top(of_two ? scaled(max) : max) {}
    __device__ __forceinline__ acc_t operator()(acc_t x) const { return of_two ? exp_less(x, top) : exp_near(x - top); }
};
