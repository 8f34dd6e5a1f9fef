// A few queries of one key head against cached keys by mma.sync: a warp takes 16 keys at a time from shared memory and keeps the
// running softmax of its rows; the warps of a block meet at the end. The file says WARPS, ROWS (queries, 8 or 16) = 8 * TILES, SPANS
// (64 columns of a head), GROUP (queries of a key head) and PAIRS (of a sequence: a key head and ROWS of its queries).
#pragma once
#include "decode.cuh"
#include "fast_exp.cuh"

constexpr int EIGHTS = D / 8;           // 16-byte pieces of a row
constexpr int PITCH = SPANS * 128;      // bytes of a row in shared memory
constexpr int WIDTH = SPANS * 64;       // columns of a row of results there
constexpr int CHUNKS = (D + 31) / 32;   // of 32 elements of a key, two products deep each

// Where piece `eight` of a row lies: turned so that the eight lanes that read at a time meet eight different banks. Of keys
// they read four neighbours of two rows, of values two neighbours of every other row of eight.
DEVICE int key_at(int row, int eight) { return row * PITCH + (eight ^ (row & 1) << 2) * 16; }
DEVICE int value_at(int row, int eight) { return 16 * PITCH + row * PITCH + (eight ^ (row >> 1 & 3) << 1) * 16; }

// The queries of a pair: number n of a key head's is head n / Q of the group, new token n % Q.
struct Queries {
    int s, head, number, rows, keys;
    __device__ __forceinline__ Queries(int sequence, int pair, int cached) : s(sequence), keys(cached) {
        constexpr int EACH = PAIRS / HKV;
        head = pair / EACH, number = pair % EACH * (int)ROWS, rows = min((int)GROUP - number, (int)ROWS);
    }
    __device__ __forceinline__ i64 row(int r) const {
        return ((i64)s * Q + (number + r) % (int)Q) * HQ + head * (int)(HQ / HKV) + (number + r) / (int)Q;
    }
    // Positions are aligned at the end: the last token sees the last key.
    __device__ __forceinline__ int limit(int r) const { return r < rows ? keys - (int)(Q - 1) + (number + r) % (int)Q : 0; }
};

// A warp with ROWS queries: keys, then columns, are the 16 rows of a product, queries its 8 columns, as in `WarpRows`.
template <class T> struct Rows {
    // Of queries 8n + 2t + {0, 1}; sums are the lane's own until the end. o: columns 64c + 8g + 2u + {0, 1} of them.
    float top[TILES][2], sum[TILES][2], o[SPANS][4][TILES][4];
    Eight q[CHUNKS][TILES]; // elements 32c + 8t and on of query 8n + g
    int limit[TILES][2];

    __device__ __forceinline__ void begin(const Args& a, const Queries& queries) {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const bool there = n * 8 + g < queries.rows;
            const T* from = a.q.row(queries.row(there ? n * 8 + g : 0));
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                q[c][n] = there ? load_eight<true>(from, 32 * c + 8 * t, D) : Eight{{0, 0, 0, 0}};
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                top[n][h] = lowest<float>(), sum[n][h] = 0.0f, limit[n][h] = queries.limit(n * 8 + 2 * t + h);
            }
#pragma unroll
            for (int i = 0; i < SPANS * 16; i++) o[i / 16][i / 4 % 4][n][i % 4] = 0.0f;
        }
    }

    __device__ __forceinline__ void rescale(int n, int h, float by) {
#pragma unroll
        for (int i = 0; i < SPANS * 4; i++) o[i / 4][i % 4][n][h] *= by, o[i / 4][i % 4][n][2 + h] *= by;
    }

    // Keys `key` to `key` + 16, which lie in `tile`.
    __device__ __forceinline__ void step(const u8* tile, int key, float factor) {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const Eight none = {{0, 0, 0, 0}};
        float s[TILES][2][4]; // two chains of sums, so that products wait less for each other
#pragma unroll
        for (int i = 0; i < TILES * 8; i++) s[i / 8][i / 4 % 2][i % 4] = 0.0f;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const bool there = D % 32 == 0 || 4 * c + t < EIGHTS;
            const Eight low = there ? *reinterpret_cast<const Eight*>(tile + key_at(g, 4 * c + t)) : none;
            const Eight high = there ? *reinterpret_cast<const Eight*>(tile + key_at(g + 8, 4 * c + t)) : none;
            const u32 x[4] = {low.v[0], high.v[0], low.v[1], high.v[1]}, y[4] = {low.v[2], high.v[2], low.v[3], high.v[3]};
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                mma(s[n][0], x, q[c][n].v[0], q[c][n].v[1], T{});
                mma(s[n][1], y, q[c][n].v[2], q[c][n].v[3], T{});
            }
        }

        // Weights. Lane (g, t) has keys g and g + 8 of queries 2t and 2t + 1; the product wants keys 2t, 2t + 1, 2t + 8 and
        // 2t + 9 of query g.
        u32 p[TILES][2];
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            float keep[2], e[4];
            bool grew = false;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float x = key + g < limit[n][h] ? (s[n][0][h] + s[n][1][h]) * factor : lowest<float>();
                const float y = key + g + 8 < limit[n][h] ? (s[n][0][2 + h] + s[n][1][2 + h]) * factor : lowest<float>();
                float high = fmaxf(x, y);
#pragma unroll
                for (int across = 4; across < 32; across *= 2) {
                    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, across));
                }
                const float raised = fmaxf(top[n][h], high), base = anchor(raised);
                keep[h] = exp2_fast(top[n][h] - base), grew |= raised > top[n][h], top[n][h] = raised;
                e[h] = exp2_fast(x - base), e[2 + h] = exp2_fast(y - base);
            }
            if (__any_sync(0xffffffffu, grew)) {
#pragma unroll
                for (int h = 0; h < 2; h++) sum[n][h] *= keep[h], rescale(n, h, keep[h]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) sum[n][h] += e[h] + e[2 + h];
            const u32 low = pair(down<T>(e[0]), down<T>(e[1])), high = pair(down<T>(e[2]), down<T>(e[3]));
            const int from = 8 * t + g / 2, half = g % 2 * 16;
            const u32 i = __shfl_sync(0xffffffffu, low, from), j = __shfl_sync(0xffffffffu, low, from + 4);
            const u32 k = __shfl_sync(0xffffffffu, high, from), l = __shfl_sync(0xffffffffu, high, from + 4);
            p[n][0] = lows(i >> half, j >> half), p[n][1] = lows(k >> half, l >> half);
        }

#pragma unroll
        for (int c = 0; c < SPANS; c++) {
            Eight x[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool there = D % 64 == 0 || 8 * c + g < EIGHTS;
                const int row = 2 * t + i % 2 + i / 2 * 8;
                x[i] = there ? *reinterpret_cast<const Eight*>(tile + value_at(row, 8 * c + g)) : none;
            }
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const u32 v[4] = {lows(x[0].v[u], x[1].v[u]), highs(x[0].v[u], x[1].v[u]), lows(x[2].v[u], x[3].v[u]),
                                  highs(x[2].v[u], x[3].v[u])};
#pragma unroll
                for (int n = 0; n < TILES; n++) mma(o[c][u][n], v, p[n][0], p[n][1], T{});
            }
        }
    }

    // Puts the lane's columns of all its rows where slot[row][column] is, or adds what lies there.
    __device__ __forceinline__ void put(float* slot, bool add) {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < TILES * 2 * SPANS * 2; i++) {
            const int n = i / 2 % TILES, h = i % 2, c = i / (2 * TILES) / 2, u = i / (2 * TILES) % 2 * 2;
            float* to = slot + (n * 8 + 2 * t + h) * WIDTH + 64 * c + 8 * g + 2 * u;
            Vec<float, 4> four = {{o[c][u][n][h], o[c][u][n][2 + h], o[c][u + 1][n][h], o[c][u + 1][n][2 + h]}};
            if (add) {
                const Vec<float, 4> other = load<4>(to);
#pragma unroll
                for (int e = 0; e < 4; e++) four.v[e] += other.v[e];
            }
            store<4>(to, four);
        }
    }
};

DEVICE void put_four(const Args& a, i64 row, int col, const Vec<float, 4>& v) {
    store<4>(a.o.row(row) + col, Vec<o_t, 4>{{down<o_t>(v.v[0]), down<o_t>(v.v[1]), down<o_t>(v.v[2]), down<o_t>(v.v[3])}});
}

DEVICE void put_lse(const Args& a, i64 row, float top, float sum) {
    if (a.lse.ptr != nullptr) a.lse.at(row / HQ, row % HQ) = sum > 0.0f ? log_sum(top, sum) : lowest<float>();
}

// Four columns of a row, when the warps of a block have met: half as many slots as warps are added up.
DEVICE Vec<float, 4> four_of(const float* slots, int r, int col) {
    Vec<float, 4> all = load<4>(slots + r * WIDTH + col);
#pragma unroll
    for (int n = 1; n < WARPS / 2; n++) {
        const Vec<float, 4> more = load<4>(slots + (n * ROWS + r) * WIDTH + col);
#pragma unroll
        for (int e = 0; e < 4; e++) all.v[e] += more.v[e];
    }
    return all;
}

// The warps of a block meet: the maximum and the sum of each row, and its results in slots.
DEVICE void meet(Rows<q_t>& rows, float (&total)[ROWS][2], float* slots) {
    __shared__ float tops[WARPS][ROWS], sums[WARPS][ROWS];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
    constexpr int HALF = WARPS / 2;
#pragma unroll
    for (int i = 0; i < TILES * 2; i++) {
        float sum = rows.sum[i / 2][i % 2];
#pragma unroll
        for (int across = 4; across < 32; across *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, across);
        const int r = i / 2 * 8 + 2 * t + i % 2;
        if (g == 0) tops[warp][r] = rows.top[i / 2][i % 2], sums[warp][r] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILES * 2; i++) {
        const int r = i / 2 * 8 + 2 * t + i % 2;
        float top = tops[0][r];
#pragma unroll
        for (int w = 1; w < WARPS; w++) top = fmaxf(top, tops[w][r]);
        rows.rescale(i / 2, i % 2, exp2_fast(tops[warp][r] - anchor(top)));
        if (warp == 0 && g == 0) {
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += exp2_fast(tops[w][r] - anchor(top)) * sums[w][r];
            total[r][0] = top, total[r][1] = sum;
        }
    }
    if (warp >= HALF) rows.put(slots + (warp - HALF) * ROWS * WIDTH, false);
    __syncthreads();
    if (warp < HALF) rows.put(slots + warp * ROWS * WIDTH, true);
    __syncthreads();
}
