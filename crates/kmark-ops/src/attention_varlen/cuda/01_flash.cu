// FlashAttention-2 on mma.sync over ragged sequences: a block for every tile of queries that the longest sequence has;
// those behind the end of a shorter one leave at once.
// kmark: only dtype=f16,bf16
// kmark: require d <= 256
// kmark: constants d
// kmark: kernel varlen_flash grid=ceil(s,d<=128?128:64)*hq*b block=128 shared=(ceil(d,16)*16+8)*2*(d<=128?256:128)
#include "flash.cuh"

KERNEL __launch_bounds__(128, 2) varlen_flash(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    // Late queries see more keys under a causal mask: they start first.
    i64 tiles = (a.s + QUERIES - 1) / QUERIES, tile = tiles - 1 - blockIdx.x % tiles;
    i64 head = blockIdx.x / tiles % a.hq, s = blockIdx.x / tiles / a.hq, kv_head = head / (a.hq / a.hkv);
    int start_q = a.cu_q.ptr[s], start_k = a.cu_k.ptr[s];
    Sequence seq{a.cu_q.ptr[s + 1] - start_q, a.cu_k.ptr[s + 1] - start_k};
    if (tile * QUERIES >= seq.queries) return;
    flash_forward(
        shared, seq, ragged_head(a.q, start_q, a.hq, head), ragged_head(a.k, start_k, a.hkv, kv_head),
        ragged_head(a.v, start_k, a.hkv, kv_head), ragged_out(a.o, start_q, a.hq, head),
        Head<lse_t>{LSE ? a.lse.row(start_q) + head : nullptr, a.lse.pitch}, (int)tile * QUERIES,
        in_vectors(a.q) && in_vectors(a.k) && in_vectors(a.v), in_vectors(a.o));
}
