// Products of matrices by tiles: what a block needs to know of its two operands, and which tile is whose.
#pragma once
#include "kmark.cuh"

// Elements of the inner dimension, and columns of b, that share a scale where scales are per block.
constexpr int SCALE_BLOCK = 128;

// Vectors of one operand, rows of a or columns of b, from the first of a tile on. In memory they lie along the rows, or
// across them.
template <class T> struct Panel {
    const T* at;
    i64 pitch;
    int count;   // vectors that exist, at most a tile's
    bool whole;  // runs of `run` elements lie at multiples of their size, and no row ends within one
};

template <bool ACROSS, class T>
DEVICE Panel<T> panel(const Tensor<const T>& from, i64 first, i64 end, int tile, int run) {
    int count = (int)(end - first < tile ? end - first : tile);
    bool whole = from.aligned(run * (int)sizeof(T)) && from.cols % run == 0;
    return Panel<T>{ACROSS ? from.ptr + first : from.row(first), from.pitch, count, whole};
}

// Row and column of tile `id`. Blocks that run together take eight rows of tiles side by side, so that what they read of
// a and b stays in the L2 cache.
struct TileAt {
    u32 row, col;
    __device__ TileAt(u32 id, u32 rows, u32 cols) {
        constexpr u32 SIDE = 8;
        u32 first = id / (SIDE * cols) * SIDE, side = rows - first < SIDE ? rows - first : SIDE;
        u32 rest = id - first * cols;
        row = first + rest % side;
        col = rest / side;
    }
};

DEVICE u32 tiles(i64 length, int tile) { return (u32)((length + tile - 1) / tile); }

// Neighbouring elements of a row of the result, of which the row has `left`; at once if `whole`.
template <int N, class T, class A> DEVICE void put_run(T* to, int left, bool whole, const A (&v)[N]) {
    if (whole && left >= N) {
        Vec<T, N> run;
        #pragma unroll
        for (int i = 0; i < N; i++) run.v[i] = down<T>(v[i]);
        store<N>(to, run);
    } else {
        #pragma unroll
        for (int i = 0; i < N; i++)
            if (i < left) to[i] = down<T>(v[i]);
    }
}
