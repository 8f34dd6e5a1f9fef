// Attention forward on tensor cores (Dao, FlashAttention-2): a warp keeps its queries' sums and softmax in registers,
// keys and values pass through shared memory, and no warp waits for another but to share them.
#pragma once
#include "attention_mma.cuh"

// Rows of a warp in tiles of 16, of a block, and keys at a time: what registers and shared memory hold. Copies in
// single elements need more registers.
constexpr int TILES = DP <= 128 ? 2 : 1, QUERIES = WARPS * TILES * 16, KEYS = DP <= (VECTORS ? 128 : 96) ? 64 : 32;

// The running softmax of a warp's rows. Logits are in powers of two; weights are 2^(logit - high). `high` lags behind
// the true maximum by up to LAG, so that sums are seldom rescaled; the last division removes it again.
struct Softmax {
    static constexpr float LAG = 8.0f;
    float high[TILES][2], total[TILES][2];

    __device__ __forceinline__ Softmax() {
        #pragma unroll
        for (int t = 0; t < TILES; t++) high[t][0] = high[t][1] = (float)-infinity(), total[t][0] = total[t][1] = 0.0f;
    }

    // Products become weights.
    __device__ __forceinline__ void meet(Sums<TILES, KEYS>& s, Sums<TILES, DP>& o, float scale) {
        float top[TILES][2];
        bool raise = false;
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                float m = s.v[t][0][2 * h];
                #pragma unroll
                for (int n = 0; n < KEYS / 8; n++) m = fmaxf(m, fmaxf(s.v[t][n][2 * h], s.v[t][n][2 * h + 1]));
                m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
                m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
                top[t][h] = m * scale;
                raise |= top[t][h] > high[t][h] + LAG;
            }
        }
        if (__any_sync(0xffffffffu, raise)) {
            #pragma unroll
            for (int t = 0; t < TILES; t++) {
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    float to = fmaxf(high[t][h], top[t][h]), by = to == high[t][h] ? 1.0f : power2(high[t][h] - to);
                    high[t][h] = to;
                    total[t][h] *= by;
                    #pragma unroll
                    for (int n = 0; n < DP / 8; n++) o.v[t][n][2 * h] *= by, o.v[t][n][2 * h + 1] *= by;
                }
            }
        }
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                // A row that has seen nothing yet: all its products are minus infinity.
                float base = high[t][h] == (float)-infinity() ? 0.0f : high[t][h];
                #pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
                    #pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; e++) {
                        s.v[t][n][e] = power2(fmaf(s.v[t][n][e], scale, -base));
                        total[t][h] += s.v[t][n][e];
                    }
                }
            }
        }
    }

    // Four lanes share a row.
    __device__ __forceinline__ void finish() {
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                total[t][h] += __shfl_xor_sync(0xffffffffu, total[t][h], 1);
                total[t][h] += __shfl_xor_sync(0xffffffffu, total[t][h], 2);
            }
        }
    }
};

// QUERIES queries from `first` on of one head; `lse` may have no rows.
template <class T>
DEVICE void flash_forward(void* memory, Sequence seq, Head<const T> q, Head<const T> k, Head<const T> v, Head<T> o,
                          Head<float> lse, int first, bool vectors_in, bool vectors_out) {
    T* qs = (T*)memory;
    T* ks = qs + QUERIES * PITCH;
    T* vs = ks + KEYS * PITCH;
    int lane = threadIdx.x % 32, offset = threadIdx.x / 32 * TILES * 16;
    T* own = qs + offset * PITCH;
    // The warp's queries, and the keys that any of the block's sees.
    int from = first + offset, to = min(from + TILES * 16, seq.queries) - 1;
    int begin = seq.low(first), end = seq.high(min(first + QUERIES, seq.queries) - 1);
    float scale = (float)(logit_scale(D) * LOG2_E);
    Softmax softmax;
    Sums<TILES, KEYS> s;
    Sums<TILES, DP> sums;
    sums.clear();
    load_tile<QUERIES>(qs, q, first, seq.queries, vectors_in);
    if (begin < end) load_tile<KEYS>(ks, k, begin, seq.keys, vectors_in);
    copy_commit();
    #pragma unroll 1
    for (int key = begin; key < end; key += KEYS) {
        bool some = from <= to && key < seq.high(to) && key + KEYS > seq.low(from);
        copy_wait<0>();
        __syncthreads(); // the keys are here, the last values have been used
        load_tile<KEYS>(vs, v, key, seq.keys, vectors_in);
        copy_commit();
        if (some) rows_times_rows(s, own, ks);
        copy_wait<0>();
        __syncthreads(); // the values are here, the keys have been used
        if (key + KEYS < end) load_tile<KEYS>(ks, k, key + KEYS, seq.keys, vectors_in);
        copy_commit();
        if (!some) continue; // the same in all lanes of a warp
        if (key + KEYS > seq.high(from) || key < seq.low(to)) {
            #pragma unroll
            for (int t = 0; t < TILES; t++) {
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    int i = from + t * 16 + h * 8 + lane / 4, low = seq.low(i), high = seq.high(i);
                    #pragma unroll
                    for (int n = 0; n < KEYS / 8; n++) {
                        int j = key + n * 8 + lane % 4 * 2;
                        if (j < low || j >= high) s.v[t][n][2 * h] = (float)-infinity();
                        if (j + 1 < low || j + 1 >= high) s.v[t][n][2 * h + 1] = (float)-infinity();
                    }
                }
            }
        }
        softmax.meet(s, sums, scale);
        weights_times_rows(sums, s, vs);
    }
    copy_wait<0>();
    __syncthreads(); // no copy of q is under way where the output goes
    softmax.finish();
    write_rows(o, from, seq.queries, sums, own, vectors_out, [&](int t, int h) {
        int i = from + t * 16 + h * 8 + lane / 4;
        float total = softmax.total[t][h];
        if (lse.first && lane % 4 == 0 && i < seq.queries) {
            *lse.row(i) = (float)LN_2 * (softmax.high[t][h] + log2f(total));
        }
        return total > 0.0f ? 1.0f / total : 0.0f;
    });
}
