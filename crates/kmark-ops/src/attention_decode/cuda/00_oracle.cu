// The truth of attention over a paged cache: caches filled through the page table, then a block per sequence, key head
// and up to eight of the queries that share it (heads of a group, new tokens).
// kmark: derive q fill_q grid=ceil(q.rows*q.cols,256) block=256
// kmark: derive k_cache fill_k_unused grid=ceil(k_cache.rows*k_cache.cols,256) block=256
// kmark: derive k_cache fill_k grid=ceil(b*l*hkv*d,256) block=256
// kmark: derive v_cache fill_v_unused grid=ceil(v_cache.rows*v_cache.cols,256) block=256
// kmark: derive v_cache fill_v grid=ceil(b*l*hkv*d,256) block=256
// kmark: kernel judge_rows grid=b*hkv*ceil(hq/hkv*q,8),ceil(d,256) block=256
#include "decode_oracle.cuh"

DEVICE double scale_of(const Args& a) { return SCALE_AUTO ? 1.0 / sqrt((double)a.d) : SCALE; }

KERNEL fill_q(const __grid_constant__ Args a) { fill_query(a.q, a.seed, a.hq); }

KERNEL fill_k_unused(const __grid_constant__ Args a) {
    i64 row = element() / a.d;
    if (row < a.k_cache.rows) {
        put_key(a.k_cache, fill_key(a.seed, "k_cache"), row, element() % a.d, scale_of(a), KIND_UNUSED);
    }
}

KERNEL fill_k(const __grid_constant__ Args a) {
    Spot s = spot_of(a.page_table, a.lengths, a.b, a.l, PAGE, a.hkv, a.d);
    if (s.used) put_key(a.k_cache, fill_key(a.seed, "k_cache"), s.row, s.col, scale_of(a), s.kind);
}

KERNEL fill_v_unused(const __grid_constant__ Args a) {
    i64 row = element() / a.d;
    if (row < a.v_cache.rows) put_value(a.v_cache, fill_key(a.seed, "v_cache"), row, element() % a.d, KIND_UNUSED);
}

KERNEL fill_v(const __grid_constant__ Args a) {
    Spot s = spot_of(a.page_table, a.lengths, a.b, a.l, PAGE, a.hkv, a.d);
    if (s.used) put_value(a.v_cache, fill_key(a.seed, "v_cache"), s.row, s.col, s.kind);
}

// Some queries of one sequence and key head; query n of them is head n / Q of the group, new token n % Q.
struct Queries {
    const Args& a;
    i64 s, head, first, keys;
    int rows;

    __device__ Queries(const Args& args) : a(args) {
        const i64 all = a.hq / a.hkv * Q, tiles = (all + BLOCK_ROWS - 1) / BLOCK_ROWS, n = blockIdx.x / tiles;
        s = n / a.hkv, head = n % a.hkv, first = blockIdx.x % tiles * BLOCK_ROWS;
        keys = a.lengths.at(0, s);
        rows = (int)(all - first < BLOCK_ROWS ? all - first : BLOCK_ROWS);
    }
    __device__ i64 token(int r) const { return (first + r) % Q; }
    __device__ i64 query_head(int r) const { return head * (a.hq / a.hkv) + (first + r) / Q; }
    __device__ i64 q_row(int r) const { return lse_row(r) * a.hq + query_head(r); }
    __device__ i64 lse_row(int r) const { return s * Q + token(r); }
    __device__ i64 lse_col(int r) const { return query_head(r); }
    // Positions are aligned at the end: the last token sees the last key.
    __device__ i64 visible(int r) const {
        i64 end = keys - Q + token(r) + 1;
        return end > 0 ? end : 0;
    }
    __device__ i64 key_row(i64 j) const {
        return ((i64)a.page_table.at(s, j / PAGE) * PAGE + j % PAGE) * a.hkv + head;
    }
};

KERNEL __launch_bounds__(BLOCK_THREADS) judge_rows(const __grid_constant__ Args a) {
    judge_attention(Queries(a), a.q, a.k_cache, a.v_cache, a.d, a.d, scale_of(a), a.o_gate, a.lse_gate);
}
