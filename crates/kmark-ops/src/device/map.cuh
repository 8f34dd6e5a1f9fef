// Elementwise kernels over matrices. Sizes and layout are known when the kernel is compiled, so that a block asks for
// its bytes after a handful of instructions: one vector per thread and tensor, no loop.
#pragma once
#include "spans.cuh"

// A load that stays where it is written; `lasting`, where there is much more than the caches hold (spans.cuh). Other
// hints cost: on an H200, loads that leave L1 out or ask for 256 bytes made all of these kernels 5 to 8 % slower.
#ifndef KMARK_EMULATE
DEVICE void load_words(u32 (&w)[4], const void* p) {
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p));
}
DEVICE void load_words(u32 (&w)[2], const void* p) {
    asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p));
}
DEVICE void load_words(u32 (&w)[1], const void* p) { asm volatile("ld.global.u32 %0, [%1];" : "=r"(w[0]) : "l"(p)); }
#else
template <int n> DEVICE void load_words(u32 (&w)[n], const void* p) { memcpy(w, p, 4 * n); }
#endif
template <bool lasting, int V, class T> DEVICE void load_here(Pack<T, V>& to, const T* from) {
    if constexpr (lasting && V * sizeof(T) == 16) load16_lasting(to.w, from);
    else if constexpr (V > 1) load_words(to.w, from);
    else to = *reinterpret_cast<const Pack<T, V>*>(from);
}
template <int V, class T> DEVICE void store_pack(T* to, const Pack<T, V>& from) {
    *reinterpret_cast<Pack<T, V>*>(to) = from;
}

template <bool first, class A, class B> struct Choose { using type = A; };
template <class A, class B> struct Choose<false, A, B> { using type = B; };

// ---- Tiles ---------------------------------------------------------------------------------------------------------

// Rows as a kernel sees them, of a tensor or of some of its columns.
template <class T> struct Rows {
    T* ptr;
    i64 pitch;
};
template <class T> DEVICE Rows<T> rows_of(const Tensor<T>& t, i64 first_column = 0) {
    return Rows<T>{t.ptr + first_column, t.pitch};
}

// m rows of n elements as vectors of `width`, one to a thread. Rows that follow each other without a gap are one long
// row, `joined`. The first vector of a row sticks out by `lead` elements: memory is cut where it is aligned.
template <class T, i64 m, i64 n, bool joined, int width, int lead, int block> struct Tiles {
    static constexpr i64 rows = joined ? 1 : m, cols = joined ? m * n : n;
    static constexpr i64 per_row = (cols + lead + width - 1) / width, vectors = rows * per_row;
    static constexpr bool even = lead == 0 && cols % width == 0; // no vector sticks out
    static constexpr bool full = vectors % block == 0;           // no thread is left over
    static constexpr bool small = vectors + block < 1ll << 31;

    // This thread's vector: its row, and the column it starts at.
    i64 row, col;
    bool has, whole;

    __device__ __forceinline__ Tiles() {
        i64 at = (i64)blockIdx.x * block + threadIdx.x;
        has = full || (small ? (int)at < (int)vectors : at < vectors);
        row = rows == 1 ? 0 : small ? (u32)at / (u32)per_row : at / per_row;
        i64 in_row = rows == 1 ? at : small ? (int)at - (int)row * (int)per_row : at - row * per_row;
        col = in_row * width - lead;
        whole = has && (even || (col >= 0 && col + width <= cols));
    }
    template <class E> __device__ __forceinline__ E* place(const Rows<E>& t) const {
        return t.ptr + (rows == 1 ? 0 : row * t.pitch) + col;
    }
    __device__ __forceinline__ bool holds(int j) const { return col + j >= 0 && col + j < cols; }
};

// f on vectors: IN of them in, OUT of them out.
template <class T, int V, int IN, int OUT, class F>
DEVICE void map_vector(const Pack<T, V> (&in)[IN], Pack<T, V> (&out)[OUT], F f) {
    Vec<T, V> v[IN], w[OUT];
#pragma unroll
    for (int t = 0; t < IN; t++) v[t] = unpack(in[t]);
#pragma unroll
    for (int j = 0; j < V; j++) {
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

// Calls f(in, out) on the elements at each place of all `in` and `out`, which are cut alike.
template <bool lasting, class T, i64 m, i64 n, bool joined, int V, int lead, int block, int IN, int OUT, class F>
DEVICE void map_tiles(const Tiles<T, m, n, joined, V, lead, block>& tiles, const Rows<const T> (&in)[IN],
                      const Rows<T> (&out)[OUT], F f) {
    constexpr bool even = Tiles<T, m, n, joined, V, lead, block>::even;
    Pack<T, V> x[1][IN] = {}, y[OUT];
    const T* from[IN];
#pragma unroll
    for (int t = 0; t < IN; t++) {
        from[t] = tiles.place(in[t]);
        if (tiles.whole) load_here<lasting>(x[0][t], from[t]);
    }
    // Elements of all tensors are asked for before those of the first are put together, which waits for them.
    if (!even && tiles.has && !tiles.whole) {
        Vec<T, V> v[IN] = {};
#pragma unroll
        for (int i = 0; i < IN * V; i++)
            if (tiles.holds(i % V)) v[i / V].v[i % V] = from[i / V][i % V];
#pragma unroll
        for (int t = 0; t < IN; t++) x[0][t] = pack(v[t]);
    }
    loads_first(x);
    map_vector(x[0], y, f);
#pragma unroll
    for (int t = 0; t < OUT; t++) {
        T* to = tiles.place(out[t]);
        if (tiles.whole) {
            store_pack(to, y[t]);
        } else if (!even && tiles.has) {
            Vec<T, V> v = unpack(y[t]);
#pragma unroll
            for (int j = 0; j < V; j++)
                if (tiles.holds(j)) to[j] = v.v[j];
        }
    }
}
