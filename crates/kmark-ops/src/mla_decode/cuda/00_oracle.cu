// The truth of absorbed MLA: the cache filled through the page table, then a block per sequence and eight of its
// queries (heads of all new tokens), for which a cache row is key and, in its first part, value.
// kmark: derive q fill_q grid=ceil(q.rows*q.cols,256) block=256
// kmark: derive cache fill_unused grid=ceil(cache.rows*cache.cols,256) block=256
// kmark: derive cache fill_used grid=ceil(b*l*cache.cols,256) block=256
// kmark: kernel judge_rows grid=b*ceil(h*q,8),ceil(rank,256) block=256
#include "decode_oracle.cuh"

KERNEL fill_q(const __grid_constant__ Args a) { fill_query(a.q, a.seed, a.h); }

KERNEL fill_unused(const __grid_constant__ Args a) {
    i64 row = element() / (RANK + ROPE);
    if (row < a.cache.rows) {
        put_key(a.cache, fill_key(a.seed, "cache"), row, element() % (RANK + ROPE), SCALE, KIND_UNUSED);
    }
}

KERNEL fill_used(const __grid_constant__ Args a) {
    Spot s = spot_of(a.page_table, a.lengths, a.b, a.l, PAGE, 1, RANK + ROPE);
    if (s.used) put_key(a.cache, fill_key(a.seed, "cache"), s.row, s.col, SCALE, s.kind);
}

// Some queries of one sequence, in the order of their rows: query n is head n % h of new token n / h.
struct Queries {
    const Args& a;
    i64 s, first, keys;
    int rows;

    __device__ Queries(const Args& args) : a(args) {
        const i64 all = a.h * Q, tiles = (all + BLOCK_ROWS - 1) / BLOCK_ROWS;
        s = blockIdx.x / tiles, first = blockIdx.x % tiles * BLOCK_ROWS;
        keys = a.lengths.at(0, s);
        rows = (int)(all - first < BLOCK_ROWS ? all - first : BLOCK_ROWS);
    }
    __device__ i64 q_row(int r) const { return s * Q * a.h + first + r; }
    __device__ i64 lse_row(int r) const { return s * Q + (first + r) / a.h; }
    __device__ i64 lse_col(int r) const { return (first + r) % a.h; }
    // Positions are aligned at the end: the last token sees the last key.
    __device__ i64 visible(int r) const {
        i64 end = keys - Q + (first + r) / a.h + 1;
        return end > 0 ? end : 0;
    }
    __device__ i64 key_row(i64 j) const { return (i64)a.page_table.at(s, j / PAGE) * PAGE + j % PAGE; }
};

KERNEL __launch_bounds__(BLOCK_THREADS) judge_rows(const __grid_constant__ Args a) {
    judge_attention(Queries(a), a.q, a.cache, a.cache, RANK + ROPE, RANK, SCALE, a.o_gate, a.lse_gate);
}
