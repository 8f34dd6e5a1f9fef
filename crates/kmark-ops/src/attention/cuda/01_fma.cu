// Attention in f32 or f64 with plain multiply-adds: tiles of queries against tiles of 64 keys, sums in registers.
// kmark: only dtype=f32,f64
// kmark: require d <= 256
// kmark: constants d
// kmark: kernel attention_fma grid=ceil(sq,size==8?16:32)*hq*b block=128 shared=(max(size==8?80*34:96*36,512*ceil(d,32))+64*(size==8?16:32))*size
#include "attention_fma.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;

KERNEL __launch_bounds__(128, D > 96 ? 2 : 3) attention_fma(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    // Late queries see more keys under a causal mask: they start first.
    i64 tiles = (a.sq + FMA_BLOCK - 1) / FMA_BLOCK, tile = tiles - 1 - blockIdx.x % tiles;
    i64 head = blockIdx.x / tiles % a.hq, b = blockIdx.x / tiles / a.hq, kv_head = head / (a.hq / a.hkv);
    forward_fma<(D + 31) / 32>(
        shared, Sequence{(int)a.sq, (int)a.sk}, dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head),
        dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head), dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head),
        dense_out(a.o, HEADS_FIRST, b, a.hq, a.sq, head), Head<lse_t>{LSE ? a.lse.row(b * a.hq + head) : nullptr, 1},
        (int)tile * FMA_BLOCK, (int)D);
}
