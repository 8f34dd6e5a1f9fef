// Inputs q and k of the ops with dense tensors, and the largest norms of their rows: what their oracles share.
#pragma once
#include "attention_truth.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;

KERNEL derive_q(const __grid_constant__ Args a) {
    i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= a.q.rows) return;
    i64 i = HEADS_FIRST ? row % a.sq : row / a.hq % a.sq, head = HEADS_FIRST ? row / a.sq % a.hq : row % a.hq;
    u64 key = fill_key(a.seed, "q");
    u32 slot = row_slot(i + head, a.seed);
    for (i64 x = threadIdx.x % 32; x < a.d; x += 32) a.q.at(row, x) = down<q_t>(query_value(key, row * a.d + x, slot));
}

KERNEL derive_k(const __grid_constant__ Args a) {
    i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= a.k.rows) return;
    bool loud = is_loud(HEADS_FIRST ? row % a.sk : row / a.hkv % a.sk, a.sk);
    double scale = logit_scale(a.d);
    u64 key = fill_key(a.seed, "k");
    for (i64 x = threadIdx.x % 32; x < a.d; x += 32) a.k.at(row, x) = down<k_t>(key_value(key, row * a.d + x, loud, a.d, scale));
}

// Row of a query, or of a key, of head `head` of batch `b`.
DEVICE i64 dense_row(i64 b, i64 heads, i64 len, i64 head, i64 i) {
    return HEADS_FIRST ? (b * heads + head) * len + i : (b * len + i) * heads + head;
}
