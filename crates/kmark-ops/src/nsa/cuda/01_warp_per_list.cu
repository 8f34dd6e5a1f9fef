// Each list of blocks is one warp's: the heads of a group are its queries, 16 keys at a time go straight from global
// memory into tensor cores. f32 and f64 have a block per list instead.
// kmark: constants d
// kmark: require d <= 512 && selected*block <= 1073741824
// kmark: kernel lists_mma_8 grid=size==2&&(hq/hkv<=8||d>128)?b*ceil(s,4)*hkv*ceil(hq/hkv,8):0,ceil(d,256) block=128
// kmark: kernel lists_mma_16 grid=size==2&&hq/hkv>8&&d<=128?b*ceil(s,4)*hkv*ceil(hq/hkv,16):0 block=128
// kmark: kernel lists_fma grid=size==2?0:b*s*hkv*ceil(hq/hkv,8),ceil(d,256) block=256
#include "decode.cuh"

// Rows of q, k and v can be read 16 bytes at a time.
constexpr bool WHOLE = MEMORY != MEMORY_unaligned && D * sizeof(q_t) % 16 == 0;

// Some queries of one list: heads of the group from `number` on. A place is (list entry, offset in its block).
struct List {
    const Args& a;
    i64 batch, token, head, number;
    int rows, begin, end;

    __device__ __forceinline__ List(const Args& args, i64 b, i64 t, i64 h, i64 n, int tile_rows)
        : a(args), batch(b), token(t), head(h), number(n), begin(0), end((int)(SELECTED * BLOCK)) {
        const i64 group = a.hq / a.hkv;
        rows = (int)(group - number < tile_rows ? group - number : tile_rows);
    }
    __device__ __forceinline__ i64 q_row(int r) const {
        return (batch * a.s + token) * a.hq + head * (a.hq / a.hkv) + number + r;
    }
    // Keys from here on are not seen; those of unused entries, which hold s, are none.
    __device__ __forceinline__ int most() const { return (int)(CAUSAL ? token + 1 : a.s); }
    __device__ __forceinline__ int limit(int) const { return most(); }
    __device__ __forceinline__ int entry(int position) const {
        return a.blocks.at((batch * a.s + token) * a.hkv + head, position / BLOCK);
    }
    __device__ __forceinline__ int key_of(int entry, int position) const {
        const i64 key = (i64)entry * BLOCK + position % BLOCK;
        return (int)(key < a.s ? key : a.s);
    }
    // Keys that do not exist are read as the last one.
    __device__ __forceinline__ i64 row_of(int key) const {
        return (batch * a.s + min((i64)key, a.s - 1)) * a.hkv + head;
    }
    __device__ __forceinline__ void locate(int position, int& id, i64& row) const {
        id = key_of(entry(position), position), row = row_of(id);
    }
};

DEVICE double scale_of(const Args& a) { return SCALE_AUTO ? 1.0 / sqrt((double)a.d) : SCALE; }

DEVICE Results<o_t, lse_t, acc_t> results(const Args& a) {
    return Results<o_t, lse_t, acc_t>{a.o, a.lse, a.workspace, a.o.rows, 1, 0};
}

// The warps of a block have neighbouring tokens and the same key head: they share blocks, and the cache.
template <class T, int TILES> DEVICE void lists_mma(const Args& a) {
    if constexpr (sizeof(T) == 2 && (TILES == 1 || D <= 128)) {
        constexpr int WARPS = 4, ROWS = TILES * 8, COLS = D < 256 ? D : 256;
        using Warp = WarpRows<T, D, COLS, TILES, WHOLE>;
        __shared__ Eight queries[WARPS][Warp::QUERY_EIGHTS];
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const int first = blockIdx.y * 256;
        const i64 tiles = (a.hq / a.hkv + ROWS - 1) / ROWS, fours = (a.s + WARPS - 1) / WARPS;
        const i64 x = blockIdx.x, token = x / tiles / a.hkv % fours * WARPS + warp;
        if (token >= a.s) return;
        const List list(a, x / tiles / a.hkv / fours, token, x / tiles % a.hkv, x % tiles * ROWS, ROWS);
        Eight* q = queries[warp];
        for (int i = lane; i < Warp::QUERY_EIGHTS; i += 32) {
            q[i] = Warp::query_eight(i, [&](int r) { return r < list.rows ? a.q.row(list.q_row(r)) : nullptr; });
        }
        const int end = list.most();
        int limit[TILES][2];
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) limit[i / 2][i % 2] = end;
        const float factor = logit_factor(scale_of(a), 0.0f);
        __syncwarp();

        Warp rows;
        rows.begin();
        // The entry of place lane % 16 of the step; all the same where blocks are whole steps. Looked up a step ahead.
        const auto entry_at = [&](int j) { return list.entry(min(j + lane % 16, list.end - 1)); };
        int next = entry_at(0);
        for (int j = 0; j < list.end; j += 16) {
            const int entry = next;
            if (j + 16 < list.end) next = entry_at(j + 16);
            const auto key_at = [&](int i) {
                const int own = BLOCK % 16 == 0 ? entry : __shfl_sync(0xffffffffu, entry, i);
                return j + i < list.end ? list.key_of(own, j + i) : (int)a.s;
            };
            const int id[2] = {key_at(g), key_at(g + 8)};
            if (!__any_sync(0xffffffffu, id[0] < end || id[1] < end)) continue;
            const T* const k[2] = {a.k.row(list.row_of(id[0])), a.k.row(list.row_of(id[1]))};
            const T* const v[4] = {a.v.row(list.row_of(key_at(2 * t))), a.v.row(list.row_of(key_at(2 * t + 1))),
                                   a.v.row(list.row_of(key_at(2 * t + 8))), a.v.row(list.row_of(key_at(2 * t + 9)))};
            rows.step(q, k, v, id, limit, factor, first);
        }
        rows.finish();

        const auto to = results(a);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int r = n * 8 + 2 * t + h;
                if (r >= list.rows) continue;
                const i64 row = list.q_row(r);
                const float sum = rows.sum[n][h], inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
                if (g == 0 && first == 0) to.put_lse(row, rows.top[n][h], sum);
#pragma unroll
                for (int c = 0; c < Warp::SPANS; c++) {
                    const int col = first + 64 * c + 8 * g;
                    Eight e;
#pragma unroll
                    for (int u = 0; u < 4; u++) {
                        e.v[u] = pair(down<T>(rows.o[c][u][n][h] * inverse), down<T>(rows.o[c][u][n][2 + h] * inverse));
                    }
                    store_eight<WHOLE>(a.o.row(row), col, D, e);
                }
            }
        }
    }
}

template <class T> DEVICE void lists_fma(const Args& a) {
    if constexpr (sizeof(T) != 2) {
        __shared__ FmaShared<T, D> shared;
        const i64 tiles = (a.hq / a.hkv + FMA_ROWS - 1) / FMA_ROWS, n = blockIdx.x / tiles;
        const List list(a, n / a.hkv / a.s, n / a.hkv % a.s, n % a.hkv, blockIdx.x % tiles * FMA_ROWS, FMA_ROWS);
        const auto to = results(a);
        fma_rows<D, D, WHOLE>(shared, list, a.q, a.k, a.v, logit_factor(scale_of(a), T(0)), blockIdx.y * FMA_THREADS,
                              [&](int r, int col, T value, T top, T sum) {
                                  to.put(list.q_row(r), col, value, top, sum);
                              });
    }
}

KERNEL __launch_bounds__(128, D <= 128 ? 3 : 2) lists_mma_8(const __grid_constant__ Args a) { lists_mma<q_t, 1>(a); }

KERNEL __launch_bounds__(128, 2) lists_mma_16(const __grid_constant__ Args a) { lists_mma<q_t, 2>(a); }

KERNEL __launch_bounds__(FMA_THREADS, 2) lists_fma(const __grid_constant__ Args a) { lists_fma<q_t>(a); }
