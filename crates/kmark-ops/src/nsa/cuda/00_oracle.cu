// The truth of attention to lists of key blocks: a block per token, key head and up to eight heads of its group; the
// keys of a list are a sequence of their own.
// kmark: derive q fill_q grid=ceil(q.rows*q.cols,256) block=256
// kmark: derive k fill_k grid=ceil(k.rows*k.cols,256) block=256
// kmark: kernel judge_rows grid=b*s*hkv*ceil(hq/hkv,8),ceil(d,256) block=256
#include "decode_oracle.cuh"

DEVICE double scale_of(const Args& a) { return SCALE_AUTO ? 1.0 / sqrt((double)a.d) : SCALE; }

KERNEL fill_q(const __grid_constant__ Args a) { fill_query(a.q, a.seed, a.hq); }

KERNEL fill_k(const __grid_constant__ Args a) {
    i64 row = element() / a.d;
    if (row >= a.k.rows) return;
    put_key(a.k, fill_key(a.seed, "k"), row, element() % a.d, scale_of(a), kind_of(row / a.hkv % a.s, a.s));
}

// Heads of one group of one token; list n is that of (batch, token, key head).
struct Queries {
    const Args& a;
    i64 n, first, keys;
    int rows;

    __device__ Queries(const Args& args) : a(args) {
        const i64 group = a.hq / a.hkv, tiles = (group + BLOCK_ROWS - 1) / BLOCK_ROWS;
        n = blockIdx.x / tiles, first = blockIdx.x % tiles * BLOCK_ROWS;
        rows = (int)(group - first < BLOCK_ROWS ? group - first : BLOCK_ROWS);
        const i64 t = n / a.hkv % a.s, blocks = (a.s + BLOCK - 1) / BLOCK;
        // Unused places, behind the others, hold s.
        i64 count = 0;
        while (count < SELECTED && a.blocks.at(n, count) < blocks) count++;
        if (count == 0) {
            keys = 0;
        } else if (CAUSAL) {
            keys = (count - 1) * BLOCK + t % BLOCK + 1; // the newest block ends with the token
        } else {
            keys = count * BLOCK;
            if (a.blocks.at(n, count - 1) == blocks - 1) keys -= blocks * BLOCK - a.s; // the last block may be short
        }
    }
    __device__ i64 q_row(int r) const { return lse_row(r) * a.hq + lse_col(r); }
    __device__ i64 lse_row(int) const { return n / a.hkv; }
    __device__ i64 lse_col(int r) const { return n % a.hkv * (a.hq / a.hkv) + first + r; }
    __device__ i64 visible(int) const { return keys; }
    __device__ i64 key_row(i64 j) const {
        const i64 key = (i64)a.blocks.at(n, j / BLOCK) * BLOCK + j % BLOCK;
        return (n / a.hkv / a.s * a.s + key) * a.hkv + n % a.hkv;
    }
};

KERNEL __launch_bounds__(BLOCK_THREADS) judge_rows(const __grid_constant__ Args a) {
    judge_attention(Queries(a), a.q, a.k, a.v, a.d, a.d, scale_of(a), a.o_gate, a.lse_gate);
}
