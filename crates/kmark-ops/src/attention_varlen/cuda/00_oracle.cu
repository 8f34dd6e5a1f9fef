// Attention over ragged sequences in f64: as for dense tensors, 16 queries of a head per block, but rows start where
// cu_q and cu_k say. The slack follows truth/attention.rs.
// kmark: derive q derive_q grid=ceil(q.rows,8) block=256
// kmark: derive k derive_k grid=ceil(k.rows,8) block=256
// kmark: workspace b*hkv*8
// kmark: kernel longest_keys grid=b*hkv block=256
// kmark: kernel judge_o grid=ceil(s,16)*hq*b*ceil(d,128) block=128 shared=29952
#include "attention_truth.cuh"

KERNEL derive_q(const __grid_constant__ Args a) {
    i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= a.q.rows) return;
    u64 key = fill_key(a.seed, "q");
    u32 slot = row_slot(row / a.hq + row % a.hq, a.seed);
    for (i64 x = threadIdx.x % 32; x < a.d; x += 32) a.q.at(row, x) = down<q_t>(query_value(key, row * a.d + x, slot));
}

KERNEL derive_k(const __grid_constant__ Args a) {
    i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32, token = row / a.hkv;
    if (row >= a.k.rows) return;
    // The last sequence that starts at or before the token; empty ones start where the next does.
    i64 s = 0, end = a.b;
    while (end - s > 1) {
        i64 middle = (s + end) / 2;
        if (a.cu_k.ptr[middle] <= token) s = middle;
        else end = middle;
    }
    bool loud = is_loud(token - a.cu_k.ptr[s], a.cu_k.ptr[s + 1] - a.cu_k.ptr[s]);
    double scale = logit_scale(a.d);
    u64 key = fill_key(a.seed, "k");
    for (i64 x = threadIdx.x % 32; x < a.d; x += 32) a.k.at(row, x) = down<k_t>(key_value(key, row * a.d + x, loud, a.d, scale));
}

KERNEL longest_keys(const __grid_constant__ Args a) {
    i64 s = blockIdx.x / a.hkv;
    Head<const k_t> k = ragged_head(a.k, a.cu_k.ptr[s], a.hkv, blockIdx.x % a.hkv);
    double longest = longest_row(k, a.cu_k.ptr[s + 1] - a.cu_k.ptr[s], (int)a.d);
    if (threadIdx.x == 0) ((double*)a.workspace)[blockIdx.x] = longest;
}

KERNEL __launch_bounds__(128, 2) judge_o(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    i64 tiles = (a.s + TRUTH_BLOCK - 1) / TRUTH_BLOCK, parts = (a.d + TRUTH_WIDTH - 1) / TRUTH_WIDTH, n = blockIdx.x;
    int first = (int)(n % tiles) * TRUTH_BLOCK, col = (int)(n / tiles % parts) * TRUTH_WIDTH;
    i64 head = n / tiles / parts % a.hq, s = n / tiles / parts / a.hq, kv_head = head / (a.hq / a.hkv);
    int start_q = a.cu_q.ptr[s], start_k = a.cu_k.ptr[s];
    Sequence seq{a.cu_q.ptr[s + 1] - start_q, a.cu_k.ptr[s + 1] - start_k};
    Judge<o_t> o(a.o_gate);
    Judge<lse_t> lse(a.lse_gate);
    // Tiles behind the last query of a short sequence put nothing.
    judge_queries(
        shared, seq, ragged_head(a.q, start_q, a.hq, head), ragged_head(a.k, start_k, a.hkv, kv_head),
        ragged_head(a.v, start_k, a.hkv, kv_head), first, (int)a.d, col, ((double*)a.workspace)[s * a.hkv + kv_head],
        [&](int i, int x, double expect, double slack, int region, double loose) {
            o.put((i64)(start_q + i) * a.hq + head, x, expect, slack, region, loose);
        },
        [&](int i, double expect, double slack, int region) {
            if (LSE) lse.put(start_q + i, head, expect, slack, region);
        });
    o.finish();
    if (LSE) lse.finish();
}
