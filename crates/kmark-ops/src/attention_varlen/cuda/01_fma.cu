// Attention over ragged sequences in f32 or f64 with plain multiply-adds: tiles of queries against tiles of 64 keys.
// kmark: only dtype=f32,f64
// kmark: require d <= 256
// kmark: constants d
// kmark: kernel varlen_fma grid=ceil(s,size==8?16:32)*hq*b block=128 shared=(max(size==8?80*34:96*36,512*ceil(d,32))+64*(size==8?16:32))*size
#include "attention_fma.cuh"

KERNEL __launch_bounds__(128, D > 96 ? 2 : 3) varlen_fma(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    // Late queries see more keys under a causal mask: they start first.
    i64 tiles = (a.s + FMA_BLOCK - 1) / FMA_BLOCK, tile = tiles - 1 - blockIdx.x % tiles;
    i64 head = blockIdx.x / tiles % a.hq, s = blockIdx.x / tiles / a.hq, kv_head = head / (a.hq / a.hkv);
    int start_q = a.cu_q.ptr[s], start_k = a.cu_k.ptr[s];
    Sequence seq{a.cu_q.ptr[s + 1] - start_q, a.cu_k.ptr[s + 1] - start_k};
    if (tile * FMA_BLOCK >= seq.queries) return;
    forward_fma<(D + 31) / 32>(
        shared, seq, ragged_head(a.q, start_q, a.hq, head), ragged_head(a.k, start_k, a.hkv, kv_head),
        ragged_head(a.v, start_k, a.hkv, kv_head), ragged_out(a.o, start_q, a.hq, head),
        Head<lse_t>{LSE ? a.lse.row(start_q) + head : nullptr, a.lse.pitch}, (int)tile * FMA_BLOCK, (int)D);
}
