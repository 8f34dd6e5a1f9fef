// A tile of a product with ordinary multiply-adds: operands in shared memory, SIDE rows by COLS columns of the result per
// thread in registers. The file says, by `let`, SIDE, COLS, DOWN and ACROSS (threads along the tile's rows and columns), DEPTH (k of a
// step) and SLICES: the more a thread has, the less it reads for each product, and the fewer tiles there are. Where tiles are small,
// SLICES sets of threads have the whole tile each, for parts of k that are added up at the end.
#pragma once
#include "product.cuh"

constexpr int OF_SLICE = DOWN * ACROSS, FMA_THREADS = OF_SLICE * SLICES;
// Longer loops do not fit where instructions are kept, and slices have fewer registers.
#if __CUDA_ARCH__ >= 1200
constexpr int UNROLLED = SLICES > 1 ? 1 : 4;
#else
constexpr int UNROLLED = SLICES > 1 ? 2 : 4;
#endif
// Blocks on a multiprocessor at once: for GPUs before Hopper the compiler needs a few registers more.
#if __CUDA_ARCH__ >= 900
constexpr int RESIDENT = BLOCKS;
#else
constexpr int RESIDENT = BLOCKS > 5 ? 5 : BLOCKS;
#endif
constexpr int FMA_ROWS = DOWN * SIDE, FMA_COLS = ACROSS * COLS;
template <class T> constexpr int fma_run = 16 / sizeof(T); // elements moved at once

// One operand of one step, the inner dimension first. Rows are padded so that stores along them and across them hit
// different banks.
template <class T, int TILE> using FmaPanel = T[DEPTH][TILE + fma_run<T>];

// Moves one operand into shared memory, a few runs per thread and step.
template <class T, int TILE, bool TURNED> struct FmaFeed {
    static constexpr int RUN = fma_run<T>, RUNS = (TURNED ? TILE : DEPTH) / RUN, STEP = FMA_THREADS / RUNS;
    static constexpr int COUNT = TILE * DEPTH / RUN / FMA_THREADS;

    const T* next[COUNT]; // this thread's runs; of vectors that do not exist, some that do
    i64 pitch;
    int rows, cols;       // that exist from the first of them on
    bool whole;
    T held[COUNT][RUN];

    static __device__ int row() { return threadIdx.x / RUNS; }
    static __device__ int col() { return threadIdx.x % RUNS * RUN; }

    // The first step has `first` of the inner dimension, all others DEPTH.
    __device__ FmaFeed(const Panel<T>& p, int first)
        : pitch(p.pitch), rows((TURNED ? first : p.count) - row()), cols((TURNED ? p.count : first) - col()), whole(p.whole) {
        #pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int r = row() + i * STEP, c = col();
            next[i] = p.at + (TURNED ? r : min(r, p.count - 1)) * p.pitch + (TURNED && c >= p.count ? 0 : c);
        }
        fetch<false>(first);
        (TURNED ? rows : cols) += DEPTH - first;
    }

    // Loads the next `depth` of the inner dimension; zeros where there is nothing. ALL: there is everything, in whole runs.
    template <bool ALL> __device__ void fetch(int depth) {
        #pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int left = ALL ? RUN : i * STEP < rows ? cols : 0;
            if (ALL || whole) {
                Vec<T, RUN> v{};
                if (left > 0) v = load<RUN>(next[i]);
                #pragma unroll
                for (int e = 0; e < RUN; e++) held[i][e] = v.v[e];
            } else {
                #pragma unroll
                for (int e = 0; e < RUN; e++) held[i][e] = e < left ? next[i][e] : T(0);
            }
            next[i] += TURNED ? depth * pitch : depth;
        }
    }

    __device__ void settle(FmaPanel<T, TILE>& panel) const {
        #pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int r = row() + i * STEP;
            #pragma unroll
            for (int e = 0; e < RUN; e++) (TURNED ? panel[r][col() + e] : panel[col() + e][r]) = held[i][e];
        }
    }
};

DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// Operands of one k, as a thread has them.
template <class T> struct Fragment { T a[SIDE], b[COLS]; };

// ALL: after the first step there is everything, in whole runs, and nobody need ask.
template <bool ALL, bool ACROSS_A, bool ACROSS_B, class T, class Put>
DEVICE void fma_product_by(const Panel<T>& a, const Panel<T>& b, i64 k, Put put) {
    constexpr int RUN = fma_run<T>, EACH = DEPTH / SLICES;
    extern __shared__ __align__(16) u8 shared[];
    auto* of_a = (FmaPanel<T, FMA_ROWS>*)shared;
    auto* of_b = (FmaPanel<T, FMA_COLS>*)(of_a + 2);
    // A warp has 4 by 8 threads; each takes a run of every DOWN or ACROSS runs, so that neighbours read neighbouring runs.
    constexpr int WARPS_ACROSS = ACROSS / 8;
    int slice = threadIdx.x / OF_SLICE, warp = threadIdx.x % OF_SLICE / 32, lane = threadIdx.x % 32;
    int row = (warp / WARPS_ACROSS * 4 + lane / 8) * RUN, col = (warp % WARPS_ACROSS * 8 + lane % 8) * RUN;

    const int depths = (int)tiles(k, DEPTH), first = (int)k - (depths - 1) * DEPTH;
    FmaFeed<T, FMA_ROWS, ACROSS_A> feed_a(a, first);
    FmaFeed<T, FMA_COLS, ACROSS_B> feed_b(b, first);
    T sum[SIDE][COLS] = {};
    auto read = [&](Fragment<T>& to, int stage, int x) {
        #pragma unroll
        for (int p = 0; p < SIDE; p += RUN) {
            Vec<T, RUN> r = load<RUN>(&of_a[stage][slice * EACH + x][row + p * DOWN]);
            #pragma unroll
            for (int e = 0; e < RUN; e++) to.a[p + e] = r.v[e];
        }
        #pragma unroll
        for (int p = 0; p < COLS; p += RUN) {
            Vec<T, RUN> r = load<RUN>(&of_b[stage][slice * EACH + x][col + p * ACROSS]);
            #pragma unroll
            for (int e = 0; e < RUN; e++) to.b[p + e] = r.v[e];
        }
    };
    // Registers lie in two banks, and a multiply-add that reads two of one bank takes a clock more. Down one column and up the next one of
    // the two operands is always the one that the multiply-add before had, which need not be read again. From row to row without turning, an
    // eighth of the multiply-adds read three. What is left is the compiler's choice: of 1024, 140 to 211 in tiles of 128x128 (201 before).
    auto multiply = [&](const Fragment<T>& of) {
        #pragma unroll
        for (int j = 0; j < COLS; j++)
            #pragma unroll
            for (int s = 0; s < SIDE; s++) {
                const int i = j % 2 ? SIDE - 1 - s : s;
                sum[i][j] = multiply_add(of.a[i], of.b[j], sum[i][j]);
            }
    };
    feed_a.settle(of_a[0]), feed_b.settle(of_b[0]);
    __syncthreads();
    // Operands are read while those of the k before are multiplied, where there are registers for both; the next step's first while those of
    // the last are.
    Fragment<T> even, odd;
    if (SLICES == 1) read(even, 0, 0);
    for (int t = 0; t < depths; t++) {
        const int now = t % 2;
        const bool more = t + 1 < depths;
        if (more) feed_a.template fetch<ALL>(DEPTH), feed_b.template fetch<ALL>(DEPTH);
        __syncwarp(); // loads are begun before it: the compiler would put them off until shortly before they are stored
        if constexpr (SLICES == 1) {
            #pragma unroll UNROLLED
            for (int i = 0; i < EACH - 2; i += 2) {
                read(odd, now, i + 1);
                multiply(even);
                read(even, now, i + 2);
                multiply(odd);
            }
            read(odd, now, EACH - 1);
            multiply(even);
        } else {
            #pragma unroll UNROLLED
            for (int i = 0; i < EACH; i++) read(even, now, i), multiply(even);
        }
        if (more) feed_a.settle(of_a[1 - now]), feed_b.settle(of_b[1 - now]);
        __syncthreads();
        if (SLICES > 1) continue;
        if (more) read(even, 1 - now, 0);
        multiply(odd);
    }
    // Slices hand over their sums one after the other, and the first one has the result.
    if constexpr (SLICES > 1) {
        T* sums = (T*)shared + threadIdx.x % OF_SLICE;
        static_assert(SLICES == 1 || SIDE * COLS * OF_SLICE <= 2 * DEPTH * (FMA_ROWS + FMA_COLS), "sums fit where operands were");
        for (int from = 1; from < SLICES; from++) {
            #pragma unroll
            for (int i = 0; i < SIDE * COLS && slice == from; i++) sums[i * OF_SLICE] = sum[i / COLS][i % COLS];
            __syncthreads();
            #pragma unroll
            for (int i = 0; i < SIDE * COLS && slice == 0; i++) sum[i / COLS][i % COLS] += sums[i * OF_SLICE];
            __syncthreads();
        }
        if (slice > 0) return;
    }
    // Sums that go to memory as they are get neighbouring registers, and many multiply-adds three of a bank, which takes a clock more.
    // Of what is multiplied by something that the compiler does not know to be one, any may be anywhere.
    const T one = k > 0 ? T(1) : T(0);
    #pragma unroll
    for (int i = 0; i < SIDE; i++)
        #pragma unroll
        for (int p = 0; p < COLS / RUN; p++) {
            T v[RUN];
            #pragma unroll
            for (int e = 0; e < RUN; e++) v[e] = sum[i][p * RUN + e] * one;
            put(row + i / RUN * DOWN * RUN + i % RUN, col + p * ACROSS * RUN, v);
        }
}

// Calls put(row, col, {neighbours}) for the tile's elements, some of them beyond its edges.
template <bool ACROSS_A, bool ACROSS_B, class T, class Put>
DEVICE void fma_product(const Panel<T>& a, const Panel<T>& b, i64 k, Put put) {
    if (a.whole && b.whole) fma_product_by<true, ACROSS_A, ACROSS_B>(a, b, k, put);
    else fma_product_by<false, ACROSS_A, ACROSS_B>(a, b, k, put);
}
