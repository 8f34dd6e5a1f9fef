// Attention of few queries over gathered keys (paged caches, lists of blocks): a warp on tensor cores that takes keys
// straight from global memory into fragments, a block of plain FMA for f32 and f64, and results in splits.
#pragma once
#include "mma.cuh"

// ---- Exponents -----------------------------------------------------------------------------------------------------

// Logits in f32 are kept times log2(e), so that a weight is one exp2.
DEVICE float logit_factor(double scale, float) { return (float)(scale * 1.4426950408889634); }
DEVICE double logit_factor(double scale, double) { return scale; }
DEVICE float raise(float x) { return exp2f(x); }
DEVICE double raise(double x) { return exp(x); }
DEVICE float log_sum(float top, float sum) { return (top + log2f(sum)) * 0.6931471805599453f; }
DEVICE double log_sum(double top, double sum) { return top + log(sum); }
// Minus infinity.
template <class A> DEVICE A lowest() { return A(float_of(0xff800000u)); }
// A running maximum as something that can be subtracted: before the first key it is minus infinity.
template <class A> DEVICE A anchor(A top) { return top == lowest<A>() ? A(0) : top; }

DEVICE i64 rounded_up(i64 n, i64 to) { return (n + to - 1) / to * to; }

// ---- Splits --------------------------------------------------------------------------------------------------------

// Keys of a sequence that one split takes, a multiple of `step` but for the last.
struct Span {
    int begin, end;
};
DEVICE Span span_of(i64 keys, i64 splits, i64 split, i64 step) {
    const i64 each = rounded_up((keys + splits - 1) / splits, step);
    const i64 begin = split * each < keys ? split * each : keys;
    const i64 end = begin + each < keys ? begin + each : keys;
    return Span{(int)begin, (int)end};
}

// Where a row of the output goes: to the tensors if one block has seen all its keys, else, with its maximum and its
// sum, to the workspace, from where `combine` collects. The workspace starts with the number of splits.
template <class O, class L, class A> struct Results {
    Tensor<O> o;
    Tensor<L> lse;
    u8* workspace;
    i64 rows, splits, split;

    __device__ __forceinline__ A* part(i64 row, i64 s) const {
        return reinterpret_cast<A*>(workspace + 256) + (row * splits + s) * o.cols;
    }
    __device__ __forceinline__ A* stats(i64 row, i64 s) const {
        return reinterpret_cast<A*>(workspace + 256) + rows * splits * o.cols + (row * splits + s) * 2;
    }
    // The whole block, once.
    __device__ __forceinline__ void begin() const {
        const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0 && threadIdx.x == 0;
        if (splits > 1 && first) *reinterpret_cast<i64*>(workspace) = splits;
    }
    __device__ __forceinline__ void put(i64 row, i64 col, A value, A top, A sum) const {
        if (splits == 1) o.at(row, col) = down<O>(sum > A(0) ? value / sum : A(0));
        else part(row, split)[col] = value;
        if (col == 0) put_stats(row, top, sum);
    }
    __device__ __forceinline__ void put_stats(i64 row, A top, A sum) const {
        if (splits == 1) put_lse(row, top, sum);
        else stats(row, split)[0] = top, stats(row, split)[1] = sum;
    }
    __device__ __forceinline__ void put_lse(i64 row, A top, A sum) const {
        if (lse.ptr != nullptr) lse.at(row / lse.cols, row % lse.cols) = sum > A(0) ? log_sum(top, sum) : lowest<A>();
    }
};

// A block of COMBINE_THREADS per row of o. A thread has N neighbouring columns; where that leaves threads, groups of
// them share the splits.
constexpr int COMBINE_THREADS = 256;

template <int N, class O, class L, class A> DEVICE void combine_columns(const Results<O, L, A>& from, A* shared) {
    const i64 row = blockIdx.x, cols = from.o.cols;
    const int splits = (int)from.splits, thread = threadIdx.x, lane = thread % 32;
    const A* stats = from.stats(row, 0);
    A top = lowest<A>(), sum = A(0);
    for (int s = lane; s < splits; s += 32) top = Max::of(top, stats[2 * s]);
    top = warp_all<Max>(top);
    const A base = anchor(top);
    for (int s = lane; s < splits; s += 32) sum += raise(stats[2 * s] - base) * stats[2 * s + 1];
    sum = warp_all<Add>(sum);
    const A inverse = sum > A(0) ? A(1) / sum : A(0);
    const int width = (int)(cols / N < COMBINE_THREADS ? cols / N : COMBINE_THREADS), groups = COMBINE_THREADS / width;
    const int group = thread / width;
    for (i64 first = 0; first < cols; first += width * N) {
        const i64 col = first + thread % width * N;
        A value[N];
#pragma unroll
        for (int i = 0; i < N; i++) value[i] = A(0);
        if (group < groups && col < cols) {
#pragma unroll 4
            for (int s = group; s < splits; s += groups) {
                const A weight = raise(stats[2 * s] - base);
                const Vec<A, N> part = load<N>(from.part(row, s) + col);
#pragma unroll
                for (int i = 0; i < N; i++) value[i] += weight * part.v[i];
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N; i++) shared[thread * N + i] = value[i];
        __syncthreads();
        for (int c = thread; c < width * N; c += COMBINE_THREADS) {
            if (first + c >= cols) break;
            A all = A(0);
            for (int n = 0; n < groups; n++) all += shared[n * width * N + c];
            from.o.at(row, first + c) = down<O>(all * inverse);
        }
    }
    if (thread == 0) from.put_lse(row, top, sum);
}

template <class A, class O, class L>
DEVICE void combine_splits(const Tensor<O>& o, const Tensor<L>& lse, u8* workspace) {
    __shared__ A shared[COMBINE_THREADS * 4];
    const Results<O, L, A> from{o, lse, workspace, o.rows, *reinterpret_cast<const i64*>(workspace), 0};
    if (o.cols % 4 == 0) combine_columns<4>(from, shared);
    else combine_columns<1>(from, shared);
}

// ---- Tensor cores --------------------------------------------------------------------------------------------------

// Eight 16-bit elements.
struct alignas(16) Eight {
    u32 v[4];
};

// Elements c .. c + 8 of a row of `cols`, zeros beyond its end. WHOLE: rows are aligned, and a multiple of eight long.
template <bool WHOLE, class T> DEVICE Eight load_eight(const T* row, int c, int cols) {
    Eight e = {{0, 0, 0, 0}};
    if constexpr (WHOLE) {
        if (c < cols) e = *reinterpret_cast<const Eight*>(row + c);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (c + i < cols) e.v[i / 2] |= (u32)row[c + i].bits << (i % 2 * 16);
        }
    }
    return e;
}

template <bool WHOLE, class T> DEVICE void store_eight(T* row, int c, int cols, const Eight& e) {
    if constexpr (WHOLE) {
        if (c < cols) *reinterpret_cast<Eight*>(row + c) = e;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (c + i < cols) row[c + i] = T{(u16)(e.v[i / 2] >> (i % 2 * 16))};
        }
    }
}

// The low halves of two registers in one, and the high halves.
DEVICE u32 lows(u32 first, u32 second) { return (first & 0xffff) | second << 16; }
DEVICE u32 highs(u32 first, u32 second) { return first >> 16 | (second & 0xffff0000u); }

// A warp with TILES * 8 queries, which takes 16 keys a step. Logits are K q^T and outputs V^T p^T: keys, then columns,
// are the 16 rows of an mma, queries its 8 columns, so that few queries waste little. Which element of a row counts as
// which index of an mma is free as long as both operands agree; here lane (g, t) = (lane / 4, lane % 4) has the eight
// neighbours that one 16-byte load brings: of keys g and g + 8 elements 32c + 8t and on, of values 2t, 2t + 1, 2t + 8
// and 2t + 9 columns 64c + 8g and on. Nothing goes through shared memory but the queries, once.
template <class T, int DIM, int COLS, int TILES, bool WHOLE> struct WarpRows {
    static constexpr int CHUNKS = (DIM + 31) / 32, SPANS = (COLS + 63) / 64;
    static constexpr int QUERY_EIGHTS = CHUNKS * TILES * 32;
    // Of queries 8n + 2t + {0, 1}; sums are the lane's own until the end. o: columns 64c + 8g + 2u + {0, 1} of them.
    float top[TILES][2], sum[TILES][2], o[SPANS][4][TILES][4];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            top[n][0] = top[n][1] = lowest<float>(), sum[n][0] = sum[n][1] = 0.0f;
#pragma unroll
            for (int i = 0; i < SPANS * 16; i++) o[i / 16][i / 4 % 4][n][i % 4] = 0.0f;
        }
    }

    // Eight `i` of the queries as steps read them, of QUERY_EIGHTS; row(r) gives query r, null if there is none.
    template <class Row> static __device__ __forceinline__ Eight query_eight(int i, const Row& row) {
        const int lane = i % 32, n = i / 32 % TILES, c = i / 32 / TILES;
        const T* from = row(n * 8 + lane / 4);
        return from ? load_eight<WHOLE>(from, 32 * c + 8 * (lane % 4), DIM) : Eight{{0, 0, 0, 0}};
    }

    // k: rows of keys g and g + 8, whose numbers are id; v: rows of 2t, 2t + 1, 2t + 8, 2t + 9. A query sees keys whose
    // number is below its limit. Columns of the output start at `first`.
    __device__ __forceinline__ void step(const Eight* q, const T* const (&k)[2], const T* const (&v)[4],
                                         const int (&id)[2], const int (&limit)[TILES][2], float factor, int first) {
        constexpr bool EARLY = SPANS <= 2; // values are on their way before the logits are computed
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        float s[TILES][4];
        Eight vs[EARLY ? SPANS : 1][4];
#pragma unroll
        for (int i = 0; i < TILES * 4; i++) s[i / 4][i % 4] = 0.0f;
#pragma unroll
        for (int c0 = 0; c0 < CHUNKS; c0 += 4) {
            Eight low[4], high[4];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (c0 + c >= CHUNKS) continue;
                low[c] = load_eight<WHOLE>(k[0], 32 * (c0 + c) + 8 * t, DIM);
                high[c] = load_eight<WHOLE>(k[1], 32 * (c0 + c) + 8 * t, DIM);
            }
            if constexpr (EARLY) {
                if (c0 == 0) {
#pragma unroll
                    for (int i = 0; i < SPANS * 4; i++) {
                        vs[i / 4][i % 4] = load_eight<WHOLE>(v[i % 4], first + 64 * (i / 4) + 8 * g, DIM);
                    }
                }
            }
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (c0 + c >= CHUNKS) continue;
                const u32 a[4] = {low[c].v[0], high[c].v[0], low[c].v[1], high[c].v[1]};
                const u32 b[4] = {low[c].v[2], high[c].v[2], low[c].v[3], high[c].v[3]};
#pragma unroll
                for (int n = 0; n < TILES; n++) {
                    const Eight query = q[((c0 + c) * TILES + n) * 32 + lane];
                    mma(s[n], a, query.v[0], query.v[1], T{});
                    mma(s[n], b, query.v[2], query.v[3], T{});
                }
            }
        }

        // Weights. Lane (g, t) has keys g and g + 8 of queries 2t and 2t + 1; the mma wants keys 2t, 2t + 1, 2t + 8 and
        // 2t + 9 of query g.
        u32 p[TILES][2];
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float x = id[0] < limit[n][h] ? s[n][h] * factor : lowest<float>();
                const float y = id[1] < limit[n][h] ? s[n][2 + h] * factor : lowest<float>();
                float high = Max::of(x, y);
#pragma unroll
                for (int across = 4; across < 32; across *= 2) {
                    high = Max::of(high, __shfl_xor_sync(0xffffffffu, high, across));
                }
                const float raised = Max::of(top[n][h], high), base = anchor(raised), old = raise(top[n][h] - base);
                top[n][h] = raised;
                s[n][h] = raise(x - base), s[n][2 + h] = raise(y - base);
                sum[n][h] = sum[n][h] * old + (s[n][h] + s[n][2 + h]);
#pragma unroll
                for (int i = 0; i < SPANS * 4; i++) o[i / 4][i % 4][n][h] *= old, o[i / 4][i % 4][n][2 + h] *= old;
            }
            const u32 low = pair(down<T>(s[n][0]), down<T>(s[n][1])), high = pair(down<T>(s[n][2]), down<T>(s[n][3]));
            const int from = 8 * t + g / 2, half = g % 2 * 16;
            const u32 a = __shfl_sync(0xffffffffu, low, from), b = __shfl_sync(0xffffffffu, low, from + 4);
            const u32 c = __shfl_sync(0xffffffffu, high, from), d = __shfl_sync(0xffffffffu, high, from + 4);
            p[n][0] = lows(a >> half, b >> half), p[n][1] = lows(c >> half, d >> half);
        }

#pragma unroll
        for (int c = 0; c < SPANS; c++) {
            Eight x[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if constexpr (EARLY) x[i] = vs[c][i];
                else x[i] = load_eight<WHOLE>(v[i], first + 64 * c + 8 * g, DIM);
            }
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const u32 a[4] = {lows(x[0].v[u], x[1].v[u]), highs(x[0].v[u], x[1].v[u]),
                                  lows(x[2].v[u], x[3].v[u]), highs(x[2].v[u], x[3].v[u])};
#pragma unroll
                for (int n = 0; n < TILES; n++) mma(o[c][u][n], a, p[n][0], p[n][1], T{});
            }
        }
    }

    __device__ __forceinline__ void finish() {
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
#pragma unroll
            for (int across = 4; across < 32; across *= 2) {
                sum[i / 2][i % 2] += __shfl_xor_sync(0xffffffffu, sum[i / 2][i % 2], across);
            }
        }
    }
};

// ---- Plain FMA -----------------------------------------------------------------------------------------------------

constexpr int FMA_THREADS = 256, FMA_ROWS = 8, FMA_KEYS = 32;

template <class T, int DIM> struct FmaShared {
    static constexpr int STRIDE = (DIM + 3) / 4 * 4;
    // Queries; at the end, parts of sums.
    alignas(16) T q[STRIDE > FMA_THREADS ? FMA_ROWS * STRIDE : FMA_ROWS * FMA_THREADS];
    alignas(16) T p[FMA_KEYS][FMA_ROWS];
    T shrink[FMA_ROWS], stats[FMA_ROWS][2];
    i64 key_rows[FMA_KEYS];
    int ids[FMA_KEYS];
};

// A block of FMA_THREADS with up to FMA_ROWS queries of DIM elements, and the columns of their output from `first` on,
// which has OUT of them. `at` says which: rows, begin and end of the positions of its keys, locate(position, id, row),
// q_row(r) and limit(r): a query sees keys whose id is below, none from most() on. put(r, col, value, top, sum) takes
// the results.
template <int DIM, int OUT, bool WHOLE, class T, class At, class Qs, class Ks, class Vs, class Put>
DEVICE void fma_rows(FmaShared<T, DIM>& x, const At& at, const Qs& q, const Ks& k, const Vs& v, T factor, int first,
                     const Put& put) {
    constexpr int N = 16 / (int)sizeof(T), STRIDE = FmaShared<T, DIM>::STRIDE;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    for (int i = thread; i < FMA_ROWS * STRIDE; i += FMA_THREADS) {
        const int r = i / STRIDE, d = i % STRIDE;
        x.q[i] = r < at.rows && d < DIM ? q.at(at.q_row(r), d) : T(0);
    }
    // A thread has one column of the output for every PARTS-th key.
    constexpr int COLS = OUT < FMA_THREADS ? OUT : FMA_THREADS, PARTS = FMA_THREADS / COLS;
    const int part = thread / COLS, column = first + thread % COLS;
    const bool writes = part < PARTS && column < OUT;
    const int limit = warp < at.rows ? at.limit(warp) : 0;
    T o[FMA_ROWS], top = lowest<T>(), sum = T(0);
#pragma unroll
    for (int r = 0; r < FMA_ROWS; r++) o[r] = T(0);

    for (int start = at.begin; start < at.end; start += FMA_KEYS) {
        const int count = at.end - start < FMA_KEYS ? at.end - start : FMA_KEYS;
        __syncthreads(); // the last tile is done with
        if (thread < FMA_KEYS) at.locate(start + (thread < count ? thread : 0), x.ids[thread], x.key_rows[thread]);
        __syncthreads();
        if (!__any_sync(0xffffffffu, x.ids[lane] < at.most())) continue; // the same in all warps

        // Logits: eight lanes to a key, four keys to a warp.
        const int key = warp * 4 + lane / 8;
        const auto* from = k.row(x.key_rows[key]);
        T s[FMA_ROWS];
#pragma unroll
        for (int r = 0; r < FMA_ROWS; r++) s[r] = T(0);
#pragma unroll 4
        for (int d = lane % 8 * N; d < DIM; d += 8 * N) {
            Vec<T, N> e;
            if constexpr (WHOLE) {
                e = load<N>(from + d);
            } else {
#pragma unroll
                for (int i = 0; i < N; i++) e.v[i] = d + i < DIM ? from[d + i] : T(0);
            }
#pragma unroll
            for (int r = 0; r < FMA_ROWS; r++) {
                if (r >= at.rows) break;
                const Vec<T, N> query = load<N>(x.q + r * STRIDE + d);
#pragma unroll
                for (int i = 0; i < N; i++) s[r] += e.v[i] * query.v[i];
            }
        }
#pragma unroll
        for (int r = 0; r < FMA_ROWS; r++) {
#pragma unroll
            for (int across = 1; across < 8; across *= 2) s[r] += __shfl_xor_sync(0xffffffffu, s[r], across);
            if (lane % 8 == r) x.p[key][r] = s[r];
        }
        __syncthreads();

        // Softmax: a warp to a query.
        const T logit = lane < count && x.ids[lane] < limit ? x.p[lane][warp] * factor : lowest<T>();
        const T raised = Max::of(top, warp_all<Max>(logit)), base = anchor(raised), old = raise(top - base);
        const T weight = raise(logit - base);
        top = raised;
        sum = sum * old + weight; // the lane's own until the end
        x.p[lane][warp] = weight;
        if (lane == 0) x.shrink[warp] = old;
        __syncthreads();

        if (writes) {
#pragma unroll
            for (int r = 0; r < FMA_ROWS; r++) o[r] *= x.shrink[r];
#pragma unroll 4
            for (int j = part; j < count; j += PARTS) {
                const T value = v.at(x.key_rows[j], column);
#pragma unroll
                for (int r = 0; r < FMA_ROWS; r++) {
                    if (r >= at.rows) break;
                    o[r] += x.p[j][r] * value;
                }
            }
        }
    }
    sum = warp_all<Add>(sum);
    if (lane == 0) x.stats[warp][0] = top, x.stats[warp][1] = sum;
    __syncthreads(); // nobody reads queries any more
#pragma unroll
    for (int r = 0; r < FMA_ROWS; r++) x.q[r * FMA_THREADS + thread] = o[r];
    __syncthreads();
    for (int i = thread; i < at.rows * COLS; i += FMA_THREADS) {
        const int r = i / COLS, c = i % COLS;
        if (first + c >= OUT) continue;
        T value = T(0);
        for (int n = 0; n < PARTS; n++) value += x.q[r * FMA_THREADS + n * COLS + c];
        put(r, first + c, value, x.stats[r][0], x.stats[r][1]);
    }
}
