// A tile of a product with ordinary multiply-adds: operands in shared memory, SIDE rows by SIDE * WIDE columns of the result per
// thread in registers. The file says SIDE and WIDE by `let`: the more a thread has, the less it reads for each product, and the
// fewer tiles there are.
#pragma once
#include "product.cuh"

constexpr int FMA_THREADS = 256, FMA_DEPTH = 16, FMA_ROWS = 16 * SIDE, FMA_COLS = FMA_ROWS * WIDE;
constexpr int FMA_BLOCKS = SIDE == 4 ? 2 : 1; // on a multiprocessor: what registers allow
template <class T> constexpr int fma_run = 16 / sizeof(T); // elements moved at once

// One operand of one step, the inner dimension first. Rows are padded so that stores along them and across them hit
// different banks.
template <class T, int TILE> using FmaPanel = T[FMA_DEPTH][TILE + fma_run<T>];

// Moves one operand into shared memory, a few runs per thread and step.
template <class T, int TILE, bool ACROSS> struct FmaFeed {
    static constexpr int RUN = fma_run<T>, RUNS = (ACROSS ? TILE : FMA_DEPTH) / RUN, STEP = FMA_THREADS / RUNS;
    static constexpr int COUNT = TILE * FMA_DEPTH / RUN / FMA_THREADS;

    const T* next;   // this thread's first run
    i64 pitch;
    int rows, cols;  // that exist from there on
    bool whole;
    T held[COUNT][RUN];

    static __device__ int row() { return threadIdx.x / RUNS; }
    static __device__ int col() { return threadIdx.x % RUNS * RUN; }

    __device__ FmaFeed(const Panel<T>& p, int k)
        : next(p.at + row() * p.pitch + col()), pitch(p.pitch), rows((ACROSS ? k : p.count) - row()),
          cols((ACROSS ? p.count : k) - col()), whole(p.whole) {}

    // Loads the next FMA_DEPTH of the inner dimension; zeros where there is nothing.
    __device__ void fetch() {
        const T* from = next;
        #pragma unroll
        for (int i = 0; i < COUNT; i++, from += STEP * pitch) {
            int left = i * STEP < rows ? cols : 0;
            if (whole) {
                Vec<T, RUN> v{};
                if (left > 0) v = load<RUN>(from);
                #pragma unroll
                for (int e = 0; e < RUN; e++) held[i][e] = v.v[e];
            } else {
                #pragma unroll
                for (int e = 0; e < RUN; e++) held[i][e] = e < left ? from[e] : T(0);
            }
        }
        next += ACROSS ? FMA_DEPTH * pitch : FMA_DEPTH;
        (ACROSS ? rows : cols) -= FMA_DEPTH;
    }

    __device__ void settle(FmaPanel<T, TILE>& panel) const {
        #pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int r = row() + i * STEP;
            #pragma unroll
            for (int e = 0; e < RUN; e++) (ACROSS ? panel[r][col() + e] : panel[col() + e][r]) = held[i][e];
        }
    }
};

DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// Calls put(row, col, {neighbours}) for the tile's elements, some of them beyond its edges.
template <bool ACROSS_A, bool ACROSS_B, class T, class Put>
DEVICE void fma_product(const Panel<T>& a, const Panel<T>& b, i64 k, Put put) {
    constexpr int COLS = SIDE * WIDE, RUN = fma_run<T>;
    extern __shared__ __align__(16) u8 shared[];
    auto* of_a = (FmaPanel<T, FMA_ROWS>*)shared;
    auto* of_b = (FmaPanel<T, FMA_COLS>*)(of_a + 2);
    // A warp has 4 by 8 threads; each takes a run of every 16 runs, so that neighbours read neighbouring runs.
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = (warp / 2 * 4 + lane / 8) * RUN, col = (warp % 2 * 8 + lane % 8) * RUN;

    FmaFeed<T, FMA_ROWS, ACROSS_A> feed_a(a, (int)k);
    FmaFeed<T, FMA_COLS, ACROSS_B> feed_b(b, (int)k);
    T sum[SIDE][COLS] = {};
    feed_a.fetch(), feed_b.fetch();
    feed_a.settle(of_a[0]), feed_b.settle(of_b[0]);
    __syncthreads();
    int depths = (int)tiles(k, FMA_DEPTH);
    for (int t = 0; t < depths; t++) {
        int now = t % 2;
        bool more = t + 1 < depths;
        if (more) feed_a.fetch(), feed_b.fetch();
        #pragma unroll 8
        for (int x = 0; x < FMA_DEPTH; x++) {
            T va[SIDE], vb[COLS];
            #pragma unroll
            for (int p = 0; p < SIDE; p += RUN) {
                Vec<T, RUN> r = load<RUN>(&of_a[now][x][row + p * 16]);
                #pragma unroll
                for (int e = 0; e < RUN; e++) va[p + e] = r.v[e];
            }
            #pragma unroll
            for (int p = 0; p < COLS; p += RUN) {
                Vec<T, RUN> r = load<RUN>(&of_b[now][x][col + p * 16]);
                #pragma unroll
                for (int e = 0; e < RUN; e++) vb[p + e] = r.v[e];
            }
            #pragma unroll
            for (int i = 0; i < SIDE; i++)
                #pragma unroll
                for (int j = 0; j < COLS; j++) sum[i][j] = multiply_add(va[i], vb[j], sum[i][j]);
        }
        if (more) feed_a.settle(of_a[1 - now]), feed_b.settle(of_b[1 - now]);
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < SIDE; i++)
        #pragma unroll
        for (int p = 0; p < COLS / RUN; p++) {
            T v[RUN];
            #pragma unroll
            for (int e = 0; e < RUN; e++) v[e] = sum[i][p * RUN + e];
            put(row + i / RUN * 16 * RUN + i % RUN, col + p * 16 * RUN, v);
        }
}
