// A 128x128 tile of a product on the tensor cores, for operands of 16 and 8 bits, and of f32, whose lower bits they leave out.
// Copies run ahead of the sums through a ring of stages in shared memory, and ldmatrix runs one step ahead of mma; each of
// eight warps has 64x32 of the tile.
//
// Tensor cores cut off what f32 cannot hold, at every step and always towards zero: over a long sum that is more than
// rounding does. So they add no more than 128 products in a row, and ordinary additions, which round, join these parts.
// That is also where scales per block come in.
//
// 8-bit elements become f16. Where both operands lie along the inner dimension they do so behind shared memory: until
// then two elements count as one of 16 bits. Otherwise they do on their way into shared memory.
#pragma once
#include "mma_tf32.cuh"
#include "product.cuh"

constexpr int MMA_TILE = 128, MMA_THREADS = 256, MMA_STAGES = 3;
constexpr int MMA_RUNS = 8;                          // of a vector in a stage; a run is 16 bytes of shared memory
constexpr int MMA_PANEL = MMA_TILE * MMA_RUNS * 16;  // bytes of one operand in a stage
constexpr int MMA_SHARED = MMA_STAGES * 2 * MMA_PANEL;
static_assert(MMA_SHARED == 98304, "what the files that launch it say");

// What mma takes.
template <class T> struct MmaType { using type = T; };
template <> struct MmaType<e4m3> { using type = f16; };
template <> struct MmaType<e5m2> { using type = f16; };

template <class T, bool ACROSS_A, bool ACROSS_B> constexpr bool mma_packed = sizeof(T) == 1 && !ACROSS_A && !ACROSS_B;
// Elements in a run.
template <class T, bool ACROSS_A, bool ACROSS_B> constexpr int mma_run = mma_packed<T, ACROSS_A, ACROSS_B> ? 16 : sizeof(T) == 4 ? 4 : 8;

// Where run `run` of row `row` of a panel lies, of rows of RUNS. Runs trade places by `turn`, the row's place among eight,
// so that the eight rows that ldmatrix reads together lie in different banks.
template <int RUNS> DEVICE u32 run_at(u32 row, u32 run, u32 turn) { return row * RUNS * 16 + (run ^ turn) * 16; }

// Runs in a row of a panel: a vector's, or those of all vectors at one place if ACROSS.
template <class T, bool ACROSS> constexpr int mma_row = ACROSS ? (sizeof(T) == 4 ? MMA_TILE / 4 : MMA_TILE / 8) : MMA_RUNS;

// 16 vectors from `vector` behind `first` on, 16 numbers of 16 bits of each from `k` on, as mma wants them: of a one part, of b two
// neighbours, {0, 1} and {2, 3}. The four 8x8 matrices come in the order that makes this so without a move. An f32 along the vectors
// goes as two numbers; across them, each is read by itself.
template <class T, bool ACROSS, bool OF_B> DEVICE void fragment(u32 (&r)[4], const u8* panel, u32 first, u32 vector, u32 k) {
    u32 turn = threadIdx.x % 8, second = threadIdx.x / 8 % 2, third = threadIdx.x / 16 % 2;
    u32 v = first + vector + (OF_B ? third : second) * 8, x = k + (OF_B ? second : third) * 8;
    if constexpr (ACROSS && sizeof(T) == 4) {
        // What run_at says, with what is known before apart from the rest: there are no registers for sixteen addresses.
        u32 lane = threadIdx.x % 32, low = lane / 16 ^ lane % 4;
        const u8* at = panel + lane % 4 * 512 + first * 4 + lane / 4 % 4 * 4;
        #pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 down = OF_B ? i / 2 : i % 2, later = OF_B ? i % 2 : i / 2; // eight vectors, four numbers of each
            r[i] = *(const u32*)(at + (low ^ 2 * down) * 16 + (k / 2 + 4 * later) * 512 + (vector ^ 16 * later) * 4);
        }
    } else if constexpr (ACROSS) {
        ldmatrix4_trans(r, panel + run_at<mma_row<T, true>>(x + turn, v / 8, turn));
    } else {
        ldmatrix4(r, panel + run_at<mma_row<T, false>>(v + turn, x / 8, turn));
    }
}

// Moves one operand into the stages, a few runs per thread. DIRECT: whole runs as they are, without a register between.
// Otherwise they wait in registers, so that loads are under way during the sums.
template <class T, bool ACROSS, int RUN, bool DIRECT> struct Feed {
    static constexpr int RUNS = mma_row<T, ACROSS>, STEP = MMA_THREADS / RUNS, COUNT = MMA_PANEL / 16 / MMA_THREADS;
    static constexpr int WORDS = RUN * sizeof(T) / 4, DEPTH = MMA_RUNS * RUN;
    static_assert(STEP % 8 == 0, "all runs of a thread trade places alike");

    const T* next;   // this thread's first run
    i64 pitch;
    int rows, cols;  // that exist from there on
    bool whole;
    Vec<u32, WORDS> held[COUNT];

    static __device__ u32 row() { return threadIdx.x / RUNS; }
    static __device__ u32 run() { return threadIdx.x % RUNS; }
    static __device__ u8* place(u8* panel, int i) {
        return panel + run_at<RUNS>(row(), run(), row() % 8) + i * STEP * RUNS * 16;
    }

    __device__ Feed(const Panel<T>& p, int k)
        : next(p.at + row() * p.pitch + run() * RUN), pitch(p.pitch), rows((ACROSS ? k : p.count) - (int)row()),
          cols((ACROSS ? p.count : k) - (int)run() * RUN), whole(p.whole) {}

    // Starts on the next DEPTH of the inner dimension; zeros where there is nothing.
    __device__ void fetch(u8* panel) {
        const T* from = next;
        #pragma unroll
        for (int i = 0; i < COUNT; i++, from += STEP * pitch) {
            int left = i * STEP < rows ? cols : 0;
            if constexpr (DIRECT) copy_async16(place(panel, i), from, left > 0);
            else held[i] = read(from, left);
        }
        next += ACROSS ? DEPTH * pitch : DEPTH;
        (ACROSS ? rows : cols) -= DEPTH;
    }

    // A run of which `left` elements exist, or more.
    __device__ Vec<u32, WORDS> read(const T* from, int left) const {
        Vec<u32, WORDS> bits{};
        if (whole) {
            if (left > 0) bits = load<WORDS>((const u32*)from);
            return bits;
        }
        #pragma unroll
        for (int e = 0; e < RUN; e++) {
            u32 one = 0;
            if (e < left) memcpy(&one, from + e, sizeof(T));
            bits.v[e * WORDS / RUN] |= one << e % (RUN / WORDS) * 8 * (int)sizeof(T);
        }
        return bits;
    }

    // Puts what waits in registers into its stage.
    __device__ void settle(u8* panel) const {
        #pragma unroll
        for (int i = 0; i < COUNT && !DIRECT; i++) store<4>((u32*)place(panel, i), widened(held[i]));
    }
    static __device__ Vec<u32, 4> widened(Vec<u32, 4> run) { return run; }
    static __device__ Vec<u32, 4> widened(Vec<u32, 2> run) {
        u32 lo = run.v[0], hi = run.v[1];
        return Vec<u32, 4>{{f16_pair(lo, T{}), f16_pair(lo >> 16, T{}), f16_pair(hi, T{}), f16_pair(hi >> 16, T{})}};
    }
};

// Both operands.
template <class T, bool ACROSS_A, bool ACROSS_B, bool DIRECT> struct Feeds {
    static constexpr int RUN = mma_run<T, ACROSS_A, ACROSS_B>;
    Feed<T, ACROSS_A, RUN, DIRECT> a;
    Feed<T, ACROSS_B, RUN, DIRECT> b;
    __device__ void fetch(u8* stage) { a.fetch(stage), b.fetch(stage + MMA_PANEL); }
    __device__ void settle(u8* stage) const { a.settle(stage), b.settle(stage + MMA_PANEL); }
};

// d += a * b for fragments of 16 numbers of 16 bits: 16 elements, or 32 packed ones. Of four elements in a packed register
// the first two go where mma wants the first half of a row, the others where it wants the second, in a and in b: so the
// order does not matter.
template <class T, bool PACKED> DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if constexpr (PACKED) {
        u32 first[4] = {f16_pair(a[0], T{}), f16_pair(a[1], T{}), f16_pair(a[0] >> 16, T{}), f16_pair(a[1] >> 16, T{})};
        u32 second[4] = {f16_pair(a[2], T{}), f16_pair(a[3], T{}), f16_pair(a[2] >> 16, T{}), f16_pair(a[3] >> 16, T{})};
        mma(d, first, f16_pair(b0, T{}), f16_pair(b0 >> 16, T{}), f16{});
        mma(d, second, f16_pair(b1, T{}), f16_pair(b1 >> 16, T{}), f16{});
    } else {
        mma(d, a, b0, b1, typename MmaType<T>::type{});
    }
}

// Scales per block of the inner dimension: those of the tile's rows lie `pitch` apart, its columns share theirs.
struct BlockScales {
    const float *a, *b;
    int pitch;
    __device__ float of(int row, int block) const { return a[row * pitch + block] * b[block]; }
};

template <bool ACROSS_A, bool ACROSS_B, bool DIRECT, bool SCALED, class T, class Put>
DEVICE void mma_product_by(const Panel<T>& a, const Panel<T>& b, int k, const BlockScales& scales,
                           float (&row_scale)[2][MMA_TILE], u8* shared, Put put) {
    using All = Feeds<T, ACROSS_A, ACROSS_B, DIRECT>;
    constexpr bool PACKED = mma_packed<T, ACROSS_A, ACROSS_B>;
    constexpr int DEPTH = MMA_RUNS * All::RUN, STEPS = MMA_RUNS / 2, FOLD = SCALE_BLOCK / DEPTH;
    constexpr int ROWS = 4, COLS = 4;  // 16x8 parts of a warp's 64x32
    u32 lane = threadIdx.x % 32, row = threadIdx.x / 128 * 64, col = threadIdx.x / 32 % 4 * 32;
    int depths = (int)tiles(k, DEPTH);
    float part[ROWS][COLS][4] = {}, sum[ROWS][COLS][4] = {};
    u32 of_a[2][ROWS][4], of_b[2][COLS / 2][4];
    auto fragments = [&](int which, const u8* stage, int step) {
        #pragma unroll
        for (int i = 0; i < ROWS; i++) fragment<T, ACROSS_A, false>(of_a[which][i], stage, row, i * 16, step * 16);
        #pragma unroll
        for (int j = 0; j < COLS / 2; j++)
            fragment<T, ACROSS_B, true>(of_b[which][j], stage + MMA_PANEL, col, j * 16, step * 16);
    };
    auto stage = [&](int s) { return shared + s * 2 * MMA_PANEL; };
    auto after = [](int s) { return s + 1 < MMA_STAGES ? s + 1 : 0; };

    All feeds{{a, k}, {b, k}};
    for (int s = 0; s < MMA_STAGES - 1; s++) {
        if (s < depths) feeds.fetch(stage(s)), feeds.settle(stage(s));
        copy_commit();
    }
    copy_wait<MMA_STAGES - 2>();
    __syncthreads();
    fragments(0, stage(0), 0);
    for (int t = 0, now = 0, empty = MMA_STAGES - 1; t < depths; t++, empty = after(empty)) {
        bool more = t + MMA_STAGES - 1 < depths, fold = t % FOLD == FOLD - 1 || t + 1 == depths;
        // A block ends here: its scales, a row for each thread, are there when they are needed.
        int block = t / FOLD, own_row = threadIdx.x;
        float own_scale = SCALED && fold && own_row < a.count ? scales.of(own_row, block) : 0.0f;
        #pragma unroll
        for (int s = 0; s < STEPS; s++) {
            if (s == STEPS - 1) {
                if (SCALED && fold && own_row < MMA_TILE) row_scale[block % 2][own_row] = own_scale;
                // The next stage is there, and nobody reads this one any more. Behind the last comes a stage whose
                // fragments nobody uses.
                copy_wait<MMA_STAGES - 2>();
                __syncthreads();
                now = after(now);
            }
            fragments((s + 1) % 2, stage(now), (s + 1) % STEPS);
            if (s == 0) {
                if (more) feeds.fetch(stage(empty));
                copy_commit();
            }
            #pragma unroll
            for (int i = 0; i < ROWS; i++)
                #pragma unroll
                for (int j = 0; j < COLS; j++) {
                    const u32(&of)[4] = of_b[s % 2][j / 2];
                    multiply<T, PACKED>(part[i][j], of_a[s % 2][i], of[j % 2 * 2], of[j % 2 * 2 + 1]);
                }
        }
        if (more) feeds.settle(stage(empty));
        if (!fold) continue;
        #pragma unroll
        for (int i = 0; i < 2 * ROWS; i++) {
            float scale = SCALED ? row_scale[block % 2][row + i * 8 + lane / 4] : 1.0f;
            #pragma unroll
            for (int e = 0; e < 2 * COLS; e++) {
                float &p = part[i / 2][e / 2][i % 2 * 2 + e % 2], &s = sum[i / 2][e / 2][i % 2 * 2 + e % 2];
                s = SCALED ? fmaf(p, scale, s) : s + p;
                p = 0.0f;
            }
        }
    }
    // Shared memory may be filled anew.
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 2 * ROWS; i++)
        #pragma unroll
        for (int j = 0; j < COLS; j++) {
            float v[2] = {sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]};
            put((int)(row + i * 8 + lane / 4), (int)(col + j * 8 + lane % 4 * 2), v);
        }
}

// Calls put(row, col, {two neighbours}) for the elements of a tile, some of them beyond its edges.
template <bool ACROSS_A, bool ACROSS_B, bool SCALED, class T, class Put>
DEVICE void mma_product(const Panel<T>& a, const Panel<T>& b, i64 k, const BlockScales& scales, u8* shared, Put put) {
    __shared__ float row_scale[2][MMA_TILE];  // of a block and the next
    if constexpr (sizeof(T) >= 2 || mma_packed<T, ACROSS_A, ACROSS_B>) {
        if (a.whole && b.whole)
            return mma_product_by<ACROSS_A, ACROSS_B, true, SCALED>(a, b, (int)k, scales, row_scale, shared, put);
    }
    mma_product_by<ACROSS_A, ACROSS_B, false, SCALED>(a, b, (int)k, scales, row_scale, shared, put);
}
