// Attention in f64: 16 queries of a head per block, keys in tiles of 64, one pass with a running maximum. The slack
// follows truth/attention.rs.
// kmark: derive q derive_q grid=ceil(q.rows,8) block=256
// kmark: derive k derive_k grid=ceil(k.rows,8) block=256
// kmark: workspace b*hkv*8
// kmark: kernel longest_keys grid=b*hkv block=256
// kmark: kernel judge_o grid=ceil(sq,16)*hq*b*ceil(d,128) block=128 shared=29952
#include "attention_dense.cuh"

KERNEL longest_keys(const __grid_constant__ Args a) {
    Head<const k_t> k = dense_head(a.k, HEADS_FIRST, blockIdx.x / a.hkv, a.hkv, a.sk, blockIdx.x % a.hkv);
    double longest = longest_row(k, (int)a.sk, (int)a.d);
    if (threadIdx.x == 0) ((double*)a.workspace)[blockIdx.x] = longest;
}

KERNEL __launch_bounds__(128, 2) judge_o(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    i64 tiles = (a.sq + TRUTH_BLOCK - 1) / TRUTH_BLOCK, parts = (a.d + TRUTH_WIDTH - 1) / TRUTH_WIDTH, n = blockIdx.x;
    int first = (int)(n % tiles) * TRUTH_BLOCK, col = (int)(n / tiles % parts) * TRUTH_WIDTH;
    i64 head = n / tiles / parts % a.hq, b = n / tiles / parts / a.hq, kv_head = head / (a.hq / a.hkv);
    Head<const q_t> q = dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head);
    Head<const k_t> k = dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Head<const v_t> v = dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Judge<o_t> o(a.o_gate);
    Judge<lse_t> lse(a.lse_gate);
    judge_queries(
        shared, Sequence{(int)a.sq, (int)a.sk}, q, k, v, first, (int)a.d, col, ((double*)a.workspace)[b * a.hkv + kv_head],
        [&](int i, int x, double expect, double slack, int region, double loose) {
            o.put(dense_row(b, a.hq, a.sq, head, i), x, expect, slack, region, loose);
        },
        [&](int i, double expect, double slack, int region) {
            if (LSE) lse.put(b * a.hq + head, i, expect, slack, region);
        });
    o.finish();
    if (LSE) lse.finish();
}
