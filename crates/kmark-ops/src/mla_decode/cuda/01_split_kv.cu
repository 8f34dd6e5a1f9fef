// Flash decoding of MLA: a block per 16 to 64 queries and split of the keys; tiles of 32 cache rows in shared memory
// serve as keys, warps sharing the dimensions of the product, and as values, warps sharing the columns of the output.
// kmark: require rank <= 512 && rank+rope <= 576
// kmark: workspace 256+q.rows*max(1,min(ceil(l,64),sms*(h*q<=16?2:1)/(b*ceil(h*q,64))))*(rank+2)*(size==8?8:4)
// kmark: kernel split_mma_16 grid=size==2&&h*q<=16?b:0,max(1,min(ceil(l,64),sms*(h*q<=16?2:1)/(b*ceil(h*q,64)))) block=256 shared=128*(ceil(rank+rope,16)*16+8)+512+16*608
// kmark: kernel split_mma_32 grid=size==2&&h*q>16&&h*q<=32?b:0,max(1,min(ceil(l,64),sms*(h*q<=16?2:1)/(b*ceil(h*q,64)))) block=256 shared=128*(ceil(rank+rope,16)*16+8)+512+32*608
// kmark: kernel split_mma_64 grid=size==2&&h*q>32?b*ceil(h*q,64):0,max(1,min(ceil(l,64),sms*(h*q<=16?2:1)/(b*ceil(h*q,64)))) block=256 shared=128*(ceil(rank+rope,16)*16+8)+512+64*352
// kmark: kernel split_fma grid=size==2?0:b*ceil(h*q,8),max(1,min(ceil(l,64),sms*(h*q<=16?2:1)/(b*ceil(h*q,64)))),ceil(rank,256) block=256
// kmark: kernel combine grid=max(1,min(ceil(l,64),sms*(h*q<=16?2:1)/(b*ceil(h*q,64))))>1?q.rows:0 block=256
#include "decode.cuh"

constexpr int WIDTH = (int)(RANK + ROPE);
// Rows of q and of the cache can be read 16 bytes at a time; those of o written in pairs.
constexpr bool WHOLE = MEMORY != MEMORY_unaligned && WIDTH * sizeof(q_t) % 16 == 0;
constexpr bool PAIRS = MEMORY != MEMORY_unaligned && RANK % 2 == 0;

// The queries of a block, some of those of a sequence, in the order of their rows (heads of a token, then the next
// token), and the keys of its split.
struct Block {
    const Args& a;
    int s, number, rows, keys, begin, end;

    __device__ __forceinline__ Block(const Args& args, int tile_rows) : a(args) {
        const int all = (int)(a.h * Q), tiles = (all + tile_rows - 1) / tile_rows;
        s = blockIdx.x / tiles, number = blockIdx.x % tiles * tile_rows;
        rows = min(all - number, tile_rows);
        keys = a.lengths.at(0, s);
        const Span span = span_of(keys, gridDim.y, blockIdx.y, 32);
        begin = span.begin, end = span.end;
    }
    __device__ __forceinline__ i64 q_row(int r) const { return s * Q * a.h + number + r; }
    // Positions are aligned at the end: the last token sees the last key.
    __device__ __forceinline__ int limit(int r) const { return keys - (int)(Q - 1 - (number + r) / a.h); }
    __device__ __forceinline__ int most() const { return keys; }
    __device__ __forceinline__ int page_of(int position) const { return a.page_table.at(s, position / PAGE); }
    __device__ __forceinline__ i64 row_on(int page, int position) const { return (i64)page * PAGE + position % PAGE; }
    __device__ __forceinline__ i64 row_of(int position) const { return row_on(page_of(position), position); }
    __device__ __forceinline__ void locate(int position, int& id, i64& row) const { id = position, row = row_of(id); }
};

DEVICE Results<o_t, lse_t, acc_t> results(const Args& a) {
    return Results<o_t, lse_t, acc_t>{a.o, a.lse, a.workspace, a.o.rows, gridDim.y, blockIdx.y};
}

// Elements c and c + 1 of a row of q, zeros beyond its end.
template <class T> DEVICE u32 load_pair(const T* row, int c) {
    if constexpr (WHOLE) return WIDTH % 16 == 0 || c < WIDTH ? *reinterpret_cast<const u32*>(row + c) : 0;
    return (c < WIDTH ? (u32)row[c].bits : 0) | (c + 1 < WIDTH ? (u32)row[c + 1].bits << 16 : 0);
}

// Eight warps. For the logits a warp has 16 queries, a part of the dimensions, and, where there are no more than 16
// queries, half of the keys; for the softmax 8 queries, if there are as many; for the output an eighth of the columns.
// Registers are scarce: what is in shared memory lies so that a lane finds its places at fixed distances from one.
template <class T, int TILES> DEVICE void split_mma(const Args& a) {
    if constexpr (sizeof(T) == 2) {
        constexpr int ROWS = TILES * 16, KEYS = 32;
        constexpr int PARTS = TILES == 4 ? 2 : 4, NUMBERS = TILES == 1 ? 2 : 4; // of dimensions; of 8 keys for a warp
        constexpr int STEPS = (WIDTH + 15) / 16, OWN = (STEPS + PARTS - 1) / PARTS, EIGHTS = STEPS * 2;
        constexpr int STRIDE = STEPS * 16 + 8, P_STRIDE = KEYS + 8; // odd multiples of 16 bytes: no bank conflicts
        constexpr int COLS = (int)(RANK + 127) / 128 * 16;          // of a warp
        using Two = Vec<float, 2>;
        extern __shared__ __align__(16) u8 shared[];
        T* tiles = reinterpret_cast<T*>(shared);                              // [2][KEYS][STRIDE]
        T* weights = tiles + 2 * KEYS * STRIDE;                               // [ROWS][P_STRIDE]
        Two* parts = reinterpret_cast<Two*>(weights + ROWS * P_STRIDE);       // [PARTS][ROWS / 8][4][32]: logits
        i64* places = reinterpret_cast<i64*>(parts + PARTS * ROWS / 8 * 128); // [2][KEYS]: of keys in the cache
        float* shrink = reinterpret_cast<float*>(places + 2 * KEYS);          // [ROWS]; at the end, 1 / sum

        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const Block block(a, ROWS);
        const int count = (block.end - block.begin + KEYS - 1) / KEYS;

        // Key `lane` of a tile; behind the last, that one again.
        const auto position = [&](int tile) { return min(block.begin + tile * KEYS + lane, block.end - 1); };
        // A warp fetches four keys.
        const auto fetch = [&](int tile) {
            T* to = tiles + (tile % 2 * KEYS + warp * 4) * STRIDE + lane * 8;
            const i64* place = places + tile % 2 * KEYS + warp * 4;
            const Vec<i64, 2> from[2] = {load<2>(place), load<2>(place + 2)};
#pragma unroll
            for (int key = 0; key < 4; key++) {
                const T* row = a.cache.ptr + from[key / 2].v[key % 2] + lane * 8;
#pragma unroll
                for (int i = 0; i < EIGHTS; i += 32) {
                    if (i + 32 > EIGHTS && i + lane >= EIGHTS) break;
                    const bool valid = WIDTH % 16 == 0 || (i + lane) * 8 < WIDTH;
                    T* at = to + key * STRIDE + i * 8;
                    if constexpr (WHOLE) copy_async16(at, valid ? row + i * 8 : row, valid);
                    else *reinterpret_cast<Eight*>(at) = load_eight<false>(row, i * 8, WIDTH - lane * 8);
                }
            }
            copy_commit();
        };
        if (warp < 2 && count > 0) places[warp * KEYS + lane] = block.row_of(position(warp)) * a.cache.pitch;

        // The warp's part of its queries stays in registers. Rows that are not there are the last one again.
        const int own = warp % PARTS * OWN, own_tile = TILES == 1 ? 0 : warp / PARTS;
        const int own_number = TILES == 1 ? warp / PARTS * 2 : 0;
        u32 q[OWN][4];
        {
            const int r = own_tile * 16 + g;
            const T* low = a.q.row(block.q_row(min(r, block.rows - 1)));
            const T* high = a.q.row(block.q_row(min(r + 8, block.rows - 1)));
#pragma unroll
            for (int i = 0; i < OWN * 4; i++) {
                q[i / 4][i % 4] = load_pair(i % 2 ? high : low, (own + i / 4) * 16 + 2 * t + i / 2 % 2 * 8);
            }
        }
        float o[TILES][COLS / 8][4];
#pragma unroll
        for (int i = 0; i < TILES * COLS / 2; i++) o[i / (COLS / 2)][i / 4 % (COLS / 8)][i % 4] = 0.0f;
        float top = lowest<float>(), sum = 0.0f; // of query 8 * warp + g
        int limit = 0;                           // how many keys it sees, from the tile on
        if (warp < ROWS / 8) limit = min(block.limit(warp * 8 + g), block.end) - block.begin;
        __syncthreads();
        if (count > 0) fetch(0);

        for (int tile = 0; tile < count; tile++) {
            const T* keys = tiles + tile % 2 * KEYS * STRIDE;
            copy_wait<0>();
            __syncthreads(); // the tile is there, and nobody is still at the last one
            if (tile + 1 < count) fetch(tile + 1);
            int page = 0; // of the tile after next
            if (warp == 0) page = block.page_of(position(tile + 2));

            // Logits over the warp's dimensions.
            float s[NUMBERS][4];
#pragma unroll
            for (int i = 0; i < NUMBERS * 4; i++) s[i / 4][i % 4] = 0.0f;
            const T* from = keys + (own_number * 8 + lane / 16 * 8 + lane % 8) * STRIDE + own * 16 + lane / 8 % 2 * 8;
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                if (STEPS % PARTS != 0 && own + i >= STEPS) break;
#pragma unroll
                for (int n = 0; n < NUMBERS; n += 2) {
                    u32 b[4];
                    ldmatrix4(b, from + n * 8 * STRIDE + i * 16);
                    mma(s[n], q[i], b[0], b[1], T{});
                    mma(s[n + 1], q[i], b[2], b[3], T{});
                }
            }
            Two* to = parts + ((warp % PARTS * TILES + own_tile) * 8 + own_number) * 32 + lane;
#pragma unroll
            for (int n = 0; n < NUMBERS; n++) {
                to[n * 32] = Two{{s[n][0], s[n][1]}};
                to[n * 32 + 128] = Two{{s[n][2], s[n][3]}};
            }
            if (warp == 0) {
                places[tile % 2 * KEYS + lane] = block.row_on(page, position(tile + 2)) * a.cache.pitch;
            }
            __syncthreads();

            // Softmax: lane (g, t) has keys 8n + 2t and the next of query g.
            if (ROWS / 8 == 8 || warp < ROWS / 8) {
                Two x[4];
                float high = lowest<float>();
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const Two* part = parts + (warp * 4 + n) * 32 + lane;
                    x[n] = *part;
#pragma unroll
                    for (int i = 1; i < PARTS; i++) {
                        const Two more = part[i * ROWS / 8 * 128];
                        x[n].v[0] += more.v[0], x[n].v[1] += more.v[1];
                    }
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        x[n].v[i] = n * 8 + 2 * t + i < limit ? x[n].v[i] * logit_factor(SCALE, 0.0f) : lowest<float>();
                        high = fmaxf(high, x[n].v[i]);
                    }
                }
                high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
                high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
                // A maximum that grows a little is left alone: weights up to 2^8 do no harm, and the output can stay.
                const float raised = high > top + 8.0f ? high : top, base = anchor(raised), shrunk = raise(top - base);
                top = raised, sum *= shrunk, limit -= KEYS;
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const float p = raise(x[n].v[0] - base), next = raise(x[n].v[1] - base);
                    sum += p + next; // the lane's own until the end
                    *reinterpret_cast<u32*>(weights + (warp * 8 + g) * P_STRIDE + n * 8 + 2 * t) =
                        pair(down<T>(p), down<T>(next));
                }
                if (t == 0) shrink[warp * 8 + g] = shrunk;
            }
            __syncthreads();

            // Output: all queries, the warp's columns.
            if (RANK <= 7 * COLS && warp * COLS >= RANK) continue;
            float old[TILES * 2];
            bool changed = false;
#pragma unroll
            for (int i = 0; i < TILES * 2; i++) old[i] = shrink[i * 8 + g], changed |= old[i] != 1.0f;
            if (__any_sync(0xffffffffu, changed)) {
#pragma unroll
                for (int i = 0; i < TILES * COLS / 2; i++) {
                    o[i / (COLS / 2)][i / 4 % (COLS / 8)][i % 4] *= old[i / (COLS / 2) * 2 + i / 2 % 2];
                }
            }
#pragma unroll 1
            for (int k = 0; k < KEYS; k += 16) {
                u32 p[TILES][4];
#pragma unroll
                for (int m = 0; m < TILES; m++) {
                    ldmatrix4(p[m], weights + (m * 16 + lane % 16) * P_STRIDE + k + lane / 16 * 8);
                }
#pragma unroll
                for (int c = 0; c < COLS; c += 16) {
                    if (RANK % 128 != 0 && warp * COLS + c >= RANK) break;
                    u32 b[4];
                    ldmatrix4_trans(b, keys + (k + lane % 16) * STRIDE + warp * COLS + c + lane / 16 * 8);
#pragma unroll
                    for (int m = 0; m < TILES; m++) {
                        mma(o[m][c / 8], p[m], b[0], b[1], T{});
                        mma(o[m][c / 8 + 1], p[m], b[2], b[3], T{});
                    }
                }
            }
        }

        const auto to = results(a);
        to.begin();
        const Block again(a, ROWS);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        __syncthreads();
        if (t == 0 && warp < ROWS / 8) {
            const int r = warp * 8 + g;
            shrink[r] = sum > 0.0f ? 1.0f / sum : 0.0f;
            if (r < again.rows) to.put_stats(again.q_row(r), top, sum);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
            const int r = i * 8 + g;
            if (r >= again.rows) continue;
            const i64 row = again.q_row(r);
            const float inverse = shrink[r];
            T* out = a.o.row(row) + warp * COLS + 2 * t;
            acc_t* part = to.part(row, to.split) + warp * COLS + 2 * t;
#pragma unroll
            for (int n = 0; n < COLS; n += 8) {
                const int left = (int)RANK - warp * COLS - 2 * t - n; // columns from here to the end
                const float x = o[i / 2][n / 8][i % 2 * 2], y = o[i / 2][n / 8][i % 2 * 2 + 1];
                if (to.splits > 1) {
                    if constexpr (RANK % 2 == 0) {
                        if (left > 0) store(part + n, Vec<acc_t, 2>{{x, y}});
                    } else {
                        if (left > 0) part[n] = x;
                        if (left > 1) part[n + 1] = y;
                    }
                } else if constexpr (PAIRS) {
                    if (left > 0) *reinterpret_cast<u32*>(out + n) = pair(down<T>(x * inverse), down<T>(y * inverse));
                } else {
                    if (left > 0) out[n] = down<T>(x * inverse);
                    if (left > 1) out[n + 1] = down<T>(y * inverse);
                }
            }
        }
    }
}

template <class T> DEVICE void split_fma(const Args& a) {
    if constexpr (sizeof(T) != 2) {
        __shared__ FmaShared<T, WIDTH> shared;
        const Block block(a, FMA_ROWS);
        const auto to = results(a);
        to.begin();
        fma_rows<WIDTH, (int)RANK, WHOLE>(shared, block, a.q, a.cache, a.cache, logit_factor(SCALE, T(0)),
                                          blockIdx.z * FMA_THREADS, [&](int r, int col, T value, T top, T sum) {
                                              to.put(block.q_row(r), col, value, top, sum);
                                          });
    }
}

KERNEL __launch_bounds__(256, 2) split_mma_16(const __grid_constant__ Args a) { split_mma<q_t, 1>(a); }

KERNEL __launch_bounds__(256, 1) split_mma_32(const __grid_constant__ Args a) { split_mma<q_t, 2>(a); }

KERNEL __launch_bounds__(256, 1) split_mma_64(const __grid_constant__ Args a) { split_mma<q_t, 4>(a); }

KERNEL __launch_bounds__(FMA_THREADS, 2) split_fma(const __grid_constant__ Args a) { split_fma<q_t>(a); }

KERNEL __launch_bounds__(COMBINE_THREADS, 2) combine(const __grid_constant__ Args a) {
    combine_splits<acc_t>(a.o, a.lse, a.workspace);
}
