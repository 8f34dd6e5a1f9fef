// Softmax beneath Hopper's products: logits of a warpgroup become weights in registers, block of BN keys after block.
#pragma once
#include "attention_mma.cuh"

// The largest of the four lanes that share a row.
DEVICE float max_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// Whether `yes` holds for all threads of warpgroup `group`.
#ifndef KMARK_EMULATE
DEVICE bool all_of_group(bool yes, int group) {
    int all;
    asm volatile("{\n.reg .pred yes, all;\nsetp.ne.b32 yes, %1, 0;\nbar.red.and.pred all, %2, 128, yes;\nselp.b32 %0, 1, 0, all;\n}"
                 : "=r"(all) : "r"((int)yes), "r"(4 + group) : "memory");
    return all;
}
#else
DEVICE bool all_of_group(bool yes, int) { return __all_sync(~0u, yes); } // tests have warps alone
#endif

// Two rows of a thread, 8 apart: logits become weights 2^(logit - base), whose sum is `total`; the last division removes `base`
// again. So it need not be the maximum, and nobody has to look for one in every block: a base lasts until weights grow beyond
// LARGEST. All in powers of two.
struct RowPair {
    static constexpr float LAG = 8.0f, LARGEST = is<q_t, f16> ? 32768.0f : 1e18f; // f16 goes up to 65504
    static constexpr float LOST = 1e30f; // what can still be scaled down: 2^-100 is a normal number, and so are products with values
    float base[2], total[2];

    __device__ __forceinline__ void clear() { base[0] = base[1] = (float)-infinity(), total[0] = total[1] = 0.0f; }

    // By the maximum, or something up to LAG below it. Sums so far must be multiplied by `by`.
    __device__ __forceinline__ void meet(float (&s)[BN / 2], float (&by)[2], float scale) {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            float m = s[2 * h];
            #pragma unroll
            for (int n = 0; n < BN / 8; n++) m = fmaxf(m, fmaxf(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]));
            float top = max_of_row(m) * scale, to = top > base[h] + LAG ? top : base[h];
            by[h] = to == base[h] ? 1.0f : power2(base[h] - to);
            base[h] = to;
            // A row that has seen nothing yet: all its logits are minus infinity.
            total[h] = total[h] * by[h] + weigh(s, h, to == (float)-infinity() ? 0.0f : to, scale);
        }
    }

    // By the base that there is, which is moved where weights are large. False for a whole warpgroup if they are too large for that,
    // or if a row had no base; the logits are lost then.
    __device__ __forceinline__ bool meet_quickly(float (&s)[BN / 2], float (&by)[2], float scale, int group) {
        float sums[2] = {weigh(s, 0, base[0], scale), weigh(s, 1, base[1], scale)};
        if (!all_of_group(sums[0] < LOST && sums[1] < LOST, group)) return false;
        by[0] = by[1] = 1.0f;
        if (__any_sync(~0u, fmaxf(sums[0], sums[1]) > LARGEST)) {
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                float more = fmaxf(rintf(log2f(max_of_row(sums[h]))), 0.0f);
                by[h] = power2(-more), base[h] += more, sums[h] *= by[h], total[h] *= by[h];
                #pragma unroll
                for (int n = 0; n < BN / 8; n++) s[4 * n + 2 * h] *= by[h], s[4 * n + 2 * h + 1] *= by[h];
            }
        }
        total[0] += sums[0], total[1] += sums[1];
        return true;
    }

    __device__ __forceinline__ float weigh(float (&s)[BN / 2], int h, float base, float scale) {
        float sums[2] = {0.0f, 0.0f};
        #pragma unroll
        for (int n = 0; n < BN / 8; n++) {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
                float& x = s[4 * n + 2 * h + e];
                x = power2(fmaf(x, scale, -base));
                sums[e] += x;
            }
        }
        return sums[0] + sums[1];
    }
};
