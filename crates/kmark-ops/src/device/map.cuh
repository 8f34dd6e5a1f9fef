// Elementwise kernels over matrices: a tile of 16-byte vectors per block, several per thread, no loop.
#pragma once
#include "spans.cuh"

// Rows as a kernel sees them, of a tensor or of some of its columns.
template <class T> struct Rows {
    T* ptr;
    i64 pitch;
};
template <class T> DEVICE Rows<T> rows_of(const Tensor<T>& t, i64 first_column = 0) {
    return Rows<T>{t.ptr + first_column, t.pitch};
}

constexpr int MAP_THREADS = 256; // to a block

// f on vectors: IN of them in, OUT of them out.
template <class T, int IN, int OUT, class F>
DEVICE void map_vector(const Pack<T, lanes<T>> (&in)[IN], Pack<T, lanes<T>> (&out)[OUT], F f) {
    Vec<T, lanes<T>> v[IN], w[OUT];
#pragma unroll
    for (int t = 0; t < IN; t++) v[t] = unpack(in[t]);
#pragma unroll
    for (int j = 0; j < lanes<T>; j++) {
        acc_t x[IN], y[OUT];
#pragma unroll
        for (int t = 0; t < IN; t++) x[t] = up(v[t].v[j]);
        f(x, y);
#pragma unroll
        for (int t = 0; t < OUT; t++) w[t].v[j] = down<T>(y[t]);
    }
#pragma unroll
    for (int t = 0; t < OUT; t++) out[t] = pack(w[t]);
}

// A thread's U vectors, `step` elements apart: from `in_at` to `out_at` in elements, a place for each tensor.
template <int U, class T, int IN, int OUT, class F>
DEVICE void map_line(const T* const (&in_at)[IN], T* const (&out_at)[OUT], int step, F f) {
    constexpr int V = lanes<T>;
    Pack<T, V> in[U][IN], out[OUT];
#pragma unroll
    for (int k = 0; k < U; k++) {
#pragma unroll
        for (int t = 0; t < IN; t++) in[k][t] = load_once<V>(in_at[t] + k * step);
    }
#pragma unroll
    for (int k = 0; k < U; k++) {
        map_vector(in[k], out, f);
#pragma unroll
        for (int t = 0; t < OUT; t++) store_once<V>(out_at[t] + k * step, out[t]);
    }
}

// Calls f(in, out) on the elements at each place of all `in` and `out`. Each block does U * MAP_THREADS vectors, of
// rows * ceil(cols, V), and one more where rows are adjacent but not aligned.
template <int U, class T, int IN, int OUT, class F>
DEVICE void map_rows(i64 rows, i64 cols, const Rows<const T> (&in)[IN], const Rows<T> (&out)[OUT], F f) {
    constexpr int V = lanes<T>;
    u32 phase = (u32)(u64)in[0].ptr % 16;
    bool flat = true, vectors = true, straight = true;
    auto look = [&](const T* ptr, i64 pitch) {
        flat &= pitch == cols;
        vectors &= (u32)(u64)ptr % 16 == phase;
        straight &= pitch % V == 0;
    };
#pragma unroll
    for (int t = 0; t < IN; t++) look(in[t].ptr, in[t].pitch);
#pragma unroll
    for (int t = 0; t < OUT; t++) look(out[t].ptr, out[t].pitch);
    flat |= rows == 1;
    vectors &= flat || straight;
    if (flat) cols *= rows, rows = 1;
    // Elements by which the first vector of a row sticks out, if memory is cut where it is aligned.
    int lead = vectors ? (int)(phase / sizeof(T)) : 0;
    i64 per_row = (cols + lead + V - 1) / V, first = (i64)blockIdx.x * (U * MAP_THREADS);

    // Most blocks: one run of memory, nothing sticks out.
    i64 start = first * V - lead;
    if (flat && vectors && start >= 0 && start + U * MAP_THREADS * V <= cols) {
        const T* in_at[IN];
        T* out_at[OUT];
#pragma unroll
        for (int t = 0; t < IN; t++) in_at[t] = in[t].ptr + start + threadIdx.x * V;
#pragma unroll
        for (int t = 0; t < OUT; t++) out_at[t] = out[t].ptr + start + threadIdx.x * V;
        return map_line<U>(in_at, out_at, MAP_THREADS * V, f);
    }

    i64 first_row = 0;
    if (!flat) first_row = first / per_row, first -= first_row * per_row;
    i64 row[U], col[U];
    bool whole[U];
    Pack<T, V> packs[U][IN];
#pragma unroll
    for (int k = 0; k < U; k++) {
        i64 at = first + threadIdx.x + k * MAP_THREADS;
        row[k] = first_row;
        if (!flat) {
            u32 down = (u32)at / (u32)per_row; // a row has fewer than 2^32 vectors
            row[k] += down;
            at -= (i64)down * per_row;
        }
        col[k] = at * V - lead;
        whole[k] = vectors && row[k] < rows && col[k] >= 0 && col[k] + V <= cols;
        if (whole[k]) {
#pragma unroll
            for (int t = 0; t < IN; t++) packs[k][t] = load_once<V>(in[t].ptr + row[k] * in[t].pitch + col[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < U; k++) {
        if (whole[k]) {
            Pack<T, V> results[OUT];
            map_vector(packs[k], results, f);
#pragma unroll
            for (int t = 0; t < OUT; t++) store_once<V>(out[t].ptr + row[k] * out[t].pitch + col[k], results[t]);
        } else if (row[k] < rows) {
            // It sticks out, or the tensors are aligned differently: one element after the other.
#pragma unroll 4
            for (i64 c = max(col[k], 0ll); c < min(col[k] + V, cols); c++) {
                acc_t x[IN], y[OUT];
#pragma unroll
                for (int t = 0; t < IN; t++) x[t] = up(in[t].ptr[row[k] * in[t].pitch + c]);
                f(x, y);
#pragma unroll
                for (int t = 0; t < OUT; t++) out[t].ptr[row[k] * out[t].pitch + c] = down<T>(y[t]);
            }
        }
    }
}
