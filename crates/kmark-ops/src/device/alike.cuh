// Rows of any length over teams that see only such as start alike: each has whole vectors of memory, the first of them `lead` elements
// behind the row's start, and fewer elements than a vector at either end. A thread has the same columns in all its rows: it can sum
// over them. The elements at the ends go to lanes of one warp, one to each.
#pragma once
#include "rows.cuh"

// How a thread of team T walks over a row's whole vectors. Warps read whole lines: with `late` vectors between the start of a line and
// the first whole one, that is the late-th thread's; threads before it have the last ones.
template <class T, i64 row_length, int row_step> struct Alike {
    using Team = T;
    static constexpr i64 length = row_length, accesses = length / row_step; // or one less
    static constexpr bool resident = true, turned = false;
    static constexpr int step = row_step, count = (int)ceil_div(accesses, T::per);

    int lead, late;
    __device__ __forceinline__ Alike() : lead(0), late(0) {}
    template <class E> __device__ __forceinline__ explicit Alike(const E* row) {
        lead = (int)((step - (u64)row / sizeof(E) % step) % step);
        late = (int)((u64)(row + lead) / 16 % 8);
    }
    // How many whole vectors there are.
    __device__ __forceinline__ int whole() const { return ((int)length - lead) / step; }
    // The column of an end that a lane of a warp has, or -1.
    __device__ __forceinline__ int end(int lane) const {
        int column = lane < lead ? lane : lane + whole() * step;
        return column < length ? column : -1;
    }
    // Calls f(k, column) for every access k of this thread.
    template <class F> __device__ __forceinline__ void each(F f) const {
#pragma unroll
        for (int k = 0; k < count; k++) {
            int access = k * T::per + T::lane() - late;
            bool there = (k + 1) * T::per <= accesses || access + late < accesses;
            if (k == 0 && access < 0) access += (int)accesses;
            int column = access * step + lead;
            if (there && (k > 0 && (k + 1) * T::per < accesses || column + step <= length)) f(k, column);
        }
    }
    DEVICE bool has(int, int) { return true; }

    // What stands beside an access in a row that starts at a multiple of 16 bytes.
    template <class E> DEVICE Pack<E, step> beside(const E* row, int column) {
        if constexpr (sizeof(E) == 2) {
            if (column > 0 && column + step + 2 <= length) return pack(load_constant_across<step>(row + column));
        }
        Vec<E, step> v;
#pragma unroll
        for (int i = 0; i < step; i++) v.v[i] = load_constant<1>(row + column + i).v[0];
        return pack(v);
    }
    template <class E> DEVICE void put(E* row, int, int column, Vec<E, step> v) { store_once<step>(row + column, pack(v)); }
};
