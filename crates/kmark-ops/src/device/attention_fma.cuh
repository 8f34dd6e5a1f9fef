// Attention in plain multiply-adds of type R: a block of four warps, each of which owns ROWS rows of one side (queries,
// or keys) and meets the rows of the other side in tiles of 64. What is f64 here is the oracle's arithmetic as well.
#pragma once
#include "attention.cuh"

DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double fused(double a, double b, double c) { return fma(a, b, c); }
DEVICE float exponential(float x) { return expf(x); }
DEVICE double exponential(double x) { return exp(x); }

constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int OTHERS = 64; // rows of the other side in a tile: lane l has rows l and l + 32
constexpr int PART = 32;   // columns of both sides in shared memory at a time, for products along rows
constexpr int SLICE = 16;  // rows of the other side in shared memory at a time, for sums over them

// The block's shared memory. `room` holds parts of both sides or a slice, `weights` what pairs weigh, per warp.
template <class R, int ROWS, int COLS> struct Shared {
    static constexpr int WIDTH = 16 / sizeof(R);      // elements of a 16-byte load
    static constexpr int PITCH = PART + WIDTH;        // no two rows of eight in the same banks
    static constexpr int PRODUCTS = (WARPS * ROWS + OTHERS) * PITCH, SLICES = SLICE * COLS * 32;
    static constexpr int ROOM = PRODUCTS > SLICES ? PRODUCTS : SLICES;
    R* room;

    __device__ explicit Shared(void* memory) : room((R*)memory) {}
    // Table number `which` of this warp: [OTHERS][ROWS].
    __device__ __forceinline__ R* weights(int which = 0) const {
        return room + ROOM + (which * WARPS + threadIdx.x / 32) * OTHERS * ROWS;
    }
};

// COUNT rows from `first` on into shared memory, WIDTH columns from `col` on; zeros behind the last row and column.
template <int COUNT, int WIDTH, int PITCH, class R, class T>
DEVICE void stage(R* to, Head<const T> from, int first, int end, int col, int cols) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const T* row = from.row(first + warp) + col + lane;
    #pragma unroll 8
    for (int r = 0; r < COUNT; r += WARPS, row += WARPS * from.step) {
        #pragma unroll
        for (int c = 0; c < WIDTH; c += 32) {
            bool in = first + warp + r < end && col + lane + c < cols;
            to[(warp + r) * PITCH + lane + c] = in ? (R)up(row[c]) : R(0);
        }
    }
}

// s[r][c] = row r of this warp times row lane + 32c of the tile that starts at `other`.
template <class R, int ROWS, int COLS, class T>
DEVICE void products(R (&s)[ROWS][2], Shared<R, ROWS, COLS> mem, Head<const T> own_rows, int own, int own_end,
                     Head<const T> other_rows, int other, int other_end, int d) {
    constexpr int WIDTH = Shared<R, ROWS, COLS>::WIDTH, PITCH = Shared<R, ROWS, COLS>::PITCH;
    R* own_part = mem.room;
    R* other_part = own_part + WARPS * ROWS * PITCH;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    #pragma unroll
    for (int r = 0; r < ROWS; r++) s[r][0] = s[r][1] = R(0);
    #pragma unroll 1
    for (int col = 0; col < d; col += PART) {
        __syncthreads(); // the last reader is done
        stage<WARPS * ROWS, PART, PITCH>(own_part, own_rows, own, own_end, col, d);
        stage<OTHERS, PART, PITCH>(other_part, other_rows, other, other_end, col, d);
        __syncthreads();
        #pragma unroll 2
        for (int x = 0; x < PART; x += WIDTH) {
            Vec<R, WIDTH> b0 = load<WIDTH>(other_part + lane * PITCH + x);
            Vec<R, WIDTH> b1 = load<WIDTH>(other_part + (lane + 32) * PITCH + x);
            #pragma unroll
            for (int r = 0; r < ROWS; r++) {
                Vec<R, WIDTH> a = load<WIDTH>(own_part + (warp * ROWS + r) * PITCH + x);
                #pragma unroll
                for (int i = 0; i < WIDTH; i++) {
                    s[r][0] = fused(a.v[i], b0.v[i], s[r][0]);
                    s[r][1] = fused(a.v[i], b1.v[i], s[r][1]);
                }
            }
        }
    }
}

// Writes one weight per pair, for `each_other` to read.
template <class R, int ROWS> DEVICE void put_weights(R* weights, const R (&w)[ROWS][2]) {
    int lane = threadIdx.x % 32;
    #pragma unroll
    for (int c = 0; c < 2; c++) {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) weights[(lane + 32 * c) * ROWS + r] = w[r][c];
    }
    __syncwarp();
}

template <class R, int ROWS> DEVICE void get_weights(R (&w)[ROWS], const R* weights, int other) {
    constexpr int WIDTH = 16 / sizeof(R);
    #pragma unroll
    for (int r = 0; r < ROWS; r += WIDTH) {
        Vec<R, WIDTH> part = load<WIDTH>(weights + other * ROWS + r);
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) w[r + i] = part.v[i];
    }
}

// Calls f(n, x) for every row n of the tile that starts at `other`, x[c] being its column `col` + lane + 32c.
template <class R, int ROWS, int COLS, class T, class F>
DEVICE void each_other(Shared<R, ROWS, COLS> mem, Head<const T> rows, int other, int end, int col, int cols, F f) {
    int lane = threadIdx.x % 32;
    #pragma unroll 1
    for (int n = 0; n < OTHERS && other + n < end; n += SLICE) {
        __syncthreads(); // the last reader is done
        stage<SLICE, COLS * 32, COLS * 32>(mem.room, rows, other + n, end, col, cols);
        __syncthreads();
        #pragma unroll 2
        for (int i = 0; i < SLICE; i++) {
            R x[COLS];
            #pragma unroll
            for (int c = 0; c < COLS; c++) x[c] = mem.room[i * COLS * 32 + lane + 32 * c];
            f(n + i, x);
        }
    }
}

// The softmax of the rows that a warp owns, as far as their keys have been met: weights are exp(logit - high).
template <class R, int ROWS> struct Softmax {
    R high[ROWS], total[ROWS], largest[ROWS]; // `largest` is the largest size of a logit

    __device__ Softmax() {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) high[r] = (R)-infinity(), total[r] = largest[r] = R(0);
    }

    // Logits become weights, 0 where a key is not seen. `again[r]` is the factor of everything summed before.
    __device__ void meet(R (&s)[ROWS][2], R (&again)[ROWS], Sequence seq, int query, int key, R scale) {
        int lane = threadIdx.x % 32;
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            bool seen[2];
            R top = high[r];
            #pragma unroll
            for (int c = 0; c < 2; c++) {
                seen[c] = seq.sees(query + r, key + lane + 32 * c);
                s[r][c] *= scale;
                R size = s[r][c] < R(0) ? -s[r][c] : s[r][c];
                if (seen[c] && s[r][c] > top) top = s[r][c];
                if (seen[c] && size > largest[r]) largest[r] = size;
            }
            top = warp_all<Max>(top);
            again[r] = top == high[r] ? R(1) : exponential(high[r] - top);
            high[r] = top;
            total[r] *= again[r];
            #pragma unroll
            for (int c = 0; c < 2; c++) {
                s[r][c] = seen[c] ? exponential(s[r][c] - top) : R(0);
                total[r] += s[r][c];
            }
        }
    }

    // Lanes have summed apart until here.
    __device__ void finish() {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) total[r] = warp_all<Add>(total[r]), largest[r] = warp_all<Max>(largest[r]);
    }
};

// All keys of the block's queries, of which the first is `first`. `sums` has rescale(r, factor) and add(p, v): p[r] are
// the weights of a key, v[c] the elements of its value; with COLS 0 only the softmax is wanted.
template <class R, int ROWS, int COLS, class T, class Sums>
DEVICE void attend(Softmax<R, ROWS>& softmax, Sums& sums, Shared<R, ROWS, COLS> mem, Sequence seq, Head<const T> q,
                   Head<const T> k, Head<const T> v, int first, R scale, int d, int col) {
    int last = min(first + WARPS * ROWS, seq.queries) - 1, query = first + (int)threadIdx.x / 32 * ROWS;
    R s[ROWS][2], again[ROWS];
    if (last < first) return;
    for (int key = seq.low(first), end = seq.high(last); key < end; key += OTHERS) {
        products(s, mem, q, first, seq.queries, k, key, end, d);
        softmax.meet(s, again, seq, query, key, scale);
        if constexpr (COLS > 0) {
            #pragma unroll
            for (int r = 0; r < ROWS; r++) sums.rescale(r, again[r]);
            __syncwarp(); // the last tile's weights have been read
            put_weights(mem.weights(), s);
            each_other(mem, v, key, end, col, d, [&](int n, const R (&x)[COLS]) {
                R p[ROWS];
                get_weights(p, mem.weights(), n);
                sums.add(p, x);
            });
        }
    }
    softmax.finish();
}

// ---- Forward, the outputs alone ------------------------------------------------------------------------------------

// Rows of a warp, by the accumulator's size: its sums stay in registers.
constexpr int FMA_ROWS = sizeof(acc_t) == 8 ? 4 : 8, FMA_BLOCK = FMA_ROWS * WARPS;

template <class R, int ROWS, int COLS> struct OutputSums {
    R value[ROWS][COLS];

    __device__ OutputSums() {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            #pragma unroll
            for (int c = 0; c < COLS; c++) value[r][c] = R(0);
        }
    }
    __device__ __forceinline__ void rescale(int r, R by) {
        #pragma unroll
        for (int c = 0; c < COLS; c++) value[r][c] *= by;
    }
    __device__ __forceinline__ void add(const R (&w)[ROWS], const R (&x)[COLS]) {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            #pragma unroll
            for (int c = 0; c < COLS; c++) value[r][c] = fused(w[r], x[c], value[r][c]);
        }
    }
    // Row r of the warp's to `to`, whole.
    template <class T> __device__ __forceinline__ void write(T* to, int r, R by, int d) const {
        #pragma unroll
        for (int c = 0; c < COLS; c++) {
            int x = (int)threadIdx.x % 32 + 32 * c;
            if (x < d) to[x] = down<T>(value[r][c] * by);
        }
    }
};

// FMA_BLOCK queries from `first` on of one head of size d, at most 32 * COLS; `lse` may have no rows.
template <int COLS, class T, class L>
DEVICE void forward_fma(void* memory, Sequence seq, Head<const T> q, Head<const T> k, Head<const T> v, Head<T> o,
                        Head<L> lse, int first, int d) {
    Softmax<acc_t, FMA_ROWS> softmax;
    OutputSums<acc_t, FMA_ROWS, COLS> sums;
    attend(softmax, sums, Shared<acc_t, FMA_ROWS, COLS>(memory), seq, q, k, v, first, (acc_t)logit_scale(d), d, 0);
    #pragma unroll
    for (int r = 0; r < FMA_ROWS; r++) {
        int i = first + (int)threadIdx.x / 32 * FMA_ROWS + r;
        if (i >= seq.queries) continue;
        acc_t total = softmax.total[r];
        sums.write(o.row(i), r, total > acc_t(0) ? acc_t(1) / total : acc_t(0), d);
        if (lse.first && threadIdx.x % 32 == 0) *lse.row(i) = softmax.high[r] + log(total);
    }
}
