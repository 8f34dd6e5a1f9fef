// Flash decoding: a block per sequence, key head and split of the keys, all queries that share the head in one tile
// (heads of a group, new tokens); a second kernel puts the splits together.
// kmark: constants d
// kmark: require d <= 512
// kmark: workspace 256+q.rows*max(1,min(ceil(l,128),3*sms/(b*hkv*ceil(hq/hkv*q,16))))*(d+2)*(size==8?8:4)
// kmark: kernel split_mma_8 grid=size==2&&(hq/hkv*q<=8||d>128)?b*hkv*ceil(hq/hkv*q,8):0,max(1,min(ceil(l,128),3*sms/(b*hkv*ceil(hq/hkv*q,16)))),ceil(d,256) block=128
// kmark: kernel split_mma_16 grid=size==2&&hq/hkv*q>8&&d<=128?b*hkv*ceil(hq/hkv*q,16):0,max(1,min(ceil(l,128),3*sms/(b*hkv*ceil(hq/hkv*q,16)))) block=128
// kmark: kernel split_fma grid=size==2?0:b*hkv*ceil(hq/hkv*q,8),max(1,min(ceil(l,128),3*sms/(b*hkv*ceil(hq/hkv*q,16)))),ceil(d,256) block=256
// kmark: kernel combine grid=max(1,min(ceil(l,128),3*sms/(b*hkv*ceil(hq/hkv*q,16))))>1?q.rows:0 block=256
#include "decode.cuh"

// Rows of q, k and v can be read 16 bytes at a time.
constexpr bool WHOLE = MEMORY != MEMORY_unaligned && D * sizeof(q_t) % 16 == 0;

// The queries of a block, one of `tiles` of those of a sequence and key head: number n of them is head n / Q of the
// group, new token n % Q. And the keys of its split.
struct Block {
    const Args& a;
    i64 s, head, number;
    int rows, keys, begin, end;

    __device__ __forceinline__ Block(const Args& args, int tile_rows) : a(args) {
        const i64 all = a.hq / a.hkv * Q, tiles = (all + tile_rows - 1) / tile_rows, n = blockIdx.x / tiles;
        s = n / a.hkv, head = n % a.hkv, number = blockIdx.x % tiles * tile_rows;
        rows = (int)(all - number < tile_rows ? all - number : tile_rows);
        keys = a.lengths.at(0, s);
        const Span span = span_of(keys, gridDim.y, blockIdx.y, 64);
        begin = span.begin, end = span.end;
    }
    __device__ __forceinline__ i64 q_row(int r) const {
        return (s * Q + (number + r) % Q) * a.hq + head * (a.hq / a.hkv) + (number + r) / Q;
    }
    // Positions are aligned at the end: the last token sees the last key.
    __device__ __forceinline__ int limit(int r) const { return keys - (int)(Q - 1 - (number + r) % Q); }
    __device__ __forceinline__ int most() const { return keys; }
    __device__ __forceinline__ int page_of(int position) const { return a.page_table.at(s, position / PAGE); }
    __device__ __forceinline__ i64 row_of(int page, int position) const {
        return ((i64)page * PAGE + position % PAGE) * a.hkv + head;
    }
    __device__ __forceinline__ void locate(int position, int& id, i64& row) const {
        id = position, row = row_of(page_of(position), position);
    }
};

DEVICE double scale_of(const Args& a) { return SCALE_AUTO ? 1.0 / sqrt((double)a.d) : SCALE; }

DEVICE Results<o_t, lse_t, acc_t> results(const Args& a) {
    return Results<o_t, lse_t, acc_t>{a.o, a.lse, a.workspace, a.o.rows, gridDim.y, blockIdx.y};
}

// Four warps take 16 keys in turn, each with its own softmax; they meet at the end.
template <class T, int TILES> DEVICE void split_mma(const Args& a) {
    if constexpr (sizeof(T) == 2 && (TILES == 1 || D <= 128)) {
        constexpr int WARPS = 4, ROWS = TILES * 8, COLS = D < 256 ? D : 256;
        using Warp = WarpRows<T, D, COLS, TILES, WHOLE>;
        constexpr int WIDTH = Warp::SPANS * 64;
        __shared__ Eight q[Warp::QUERY_EIGHTS];
        __shared__ alignas(16) float parts[WARPS][ROWS][WIDTH];
        __shared__ float stats[WARPS][ROWS][2], total[ROWS][2];
        const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
        const int first = blockIdx.z * 256;
        const Block block(a, ROWS);
        const auto to = results(a);
        to.begin();
        for (int i = thread; i < Warp::QUERY_EIGHTS; i += WARPS * 32) {
            q[i] = Warp::query_eight(i, [&](int r) { return r < block.rows ? a.q.row(block.q_row(r)) : nullptr; });
        }
        int limit[TILES][2];
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) {
            const int r = i / 2 * 8 + 2 * t + i % 2;
            limit[i / 2][i % 2] = r < block.rows ? block.limit(r) : 0;
        }
        const float factor = logit_factor(scale_of(a), 0.0f);
        __syncthreads();

        Warp rows;
        rows.begin();
        const int last = block.end - 1;
        // The page of key lane % 16 of the step; all the same where pages are whole steps. Looked up a step ahead.
        const auto page_at = [&](int j) { return block.page_of(min(j + lane % 16, last)); };
        int j = block.begin + warp * 16, next = j < block.end ? page_at(j) : 0;
        for (; j < block.end; j += WARPS * 16) {
            const int page = next;
            if (j + WARPS * 16 < block.end) next = page_at(j + WARPS * 16);
            // Rows behind the last key are not read.
            const auto row_at = [&](int i) {
                const int own = PAGE % 16 == 0 ? page : __shfl_sync(0xffffffffu, page, i);
                return block.row_of(own, min(j + i, last));
            };
            const T* const k[2] = {a.k_cache.row(row_at(g)), a.k_cache.row(row_at(g + 8))};
            const T* const v[4] = {a.v_cache.row(row_at(2 * t)), a.v_cache.row(row_at(2 * t + 1)),
                                   a.v_cache.row(row_at(2 * t + 8)), a.v_cache.row(row_at(2 * t + 9))};
            const int id[2] = {j + g <= last ? j + g : 0x7fffffff, j + g + 8 <= last ? j + g + 8 : 0x7fffffff};
            rows.step(q, k, v, id, limit, factor, first);
        }
        rows.finish();

#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int r = n * 8 + 2 * t + h;
                if (g == 0) stats[warp][r][0] = rows.top[n][h], stats[warp][r][1] = rows.sum[n][h];
#pragma unroll
                for (int c = 0; c < Warp::SPANS; c++) {
#pragma unroll
                    for (int u = 0; u < 4; u += 2) {
                        const Vec<float, 4> four = {{rows.o[c][u][n][h], rows.o[c][u][n][2 + h], rows.o[c][u + 1][n][h],
                                                     rows.o[c][u + 1][n][2 + h]}};
                        store(&parts[warp][r][64 * c + 8 * g + 2 * u], four);
                    }
                }
            }
        }
        __syncthreads();
        if (thread < ROWS) {
            float top = lowest<float>(), sum = 0.0f;
            for (int w = 0; w < WARPS; w++) top = Max::of(top, stats[w][thread][0]);
            for (int w = 0; w < WARPS; w++) {
                const float weight = raise(stats[w][thread][0] - anchor(top));
                sum += weight * stats[w][thread][1];
                stats[w][thread][0] = weight;
            }
            total[thread][0] = top, total[thread][1] = sum;
        }
        __syncthreads();
        for (int i = thread; i < block.rows * COLS; i += WARPS * 32) {
            const int r = i / COLS, c = i % COLS;
            if (first + c >= D) continue;
            float value = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) value += stats[w][r][0] * parts[w][r][c];
            to.put(block.q_row(r), first + c, value, total[r][0], total[r][1]);
        }
    }
}

template <class T> DEVICE void split_fma(const Args& a) {
    if constexpr (sizeof(T) != 2) {
        __shared__ FmaShared<T, D> shared;
        const Block block(a, FMA_ROWS);
        const auto to = results(a);
        to.begin();
        fma_rows<D, D, WHOLE>(shared, block, a.q, a.k_cache, a.v_cache, logit_factor(scale_of(a), T(0)),
                              blockIdx.z * FMA_THREADS, [&](int r, int col, T value, T top, T sum) {
                                  to.put(block.q_row(r), col, value, top, sum);
                              });
    }
}

KERNEL __launch_bounds__(128, D <= 128 ? 3 : 2) split_mma_8(const __grid_constant__ Args a) { split_mma<q_t, 1>(a); }

KERNEL __launch_bounds__(128, 2) split_mma_16(const __grid_constant__ Args a) { split_mma<q_t, 2>(a); }

KERNEL __launch_bounds__(FMA_THREADS, 2) split_fma(const __grid_constant__ Args a) { split_fma<q_t>(a); }

KERNEL __launch_bounds__(COMBINE_THREADS, 2) combine(const __grid_constant__ Args a) {
    combine_splits<acc_t>(a.o, a.lse, a.workspace);
}
