// FlashAttention-2 on mma.sync: 128 queries of a head per block, keys in tiles of 64, softmax in registers, weights
// rounded to 16 bits for the second product.
// kmark: only dtype=f16,bf16
// kmark: require d <= 256
// kmark: constants d
// kmark: kernel attention_flash grid=ceil(sq,d<=128?128:64)*hq*b block=128 shared=(ceil(d,16)*16+8)*2*(d<=128?256:128)
#include "flash.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;

KERNEL __launch_bounds__(128, 2) attention_flash(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    // Late queries see more keys under a causal mask: they start first.
    i64 tiles = (a.sq + QUERIES - 1) / QUERIES, tile = tiles - 1 - blockIdx.x % tiles;
    i64 head = blockIdx.x / tiles % a.hq, b = blockIdx.x / tiles / a.hq, kv_head = head / (a.hq / a.hkv);
    flash_forward(
        shared, Sequence{(int)a.sq, (int)a.sk}, dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head),
        dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head), dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head),
        dense_out(a.o, HEADS_FIRST, b, a.hq, a.sq, head), Head<lse_t>{LSE ? a.lse.row(b * a.hq + head) : nullptr, 1},
        (int)tile * QUERIES, in_vectors(a.q) && in_vectors(a.k) && in_vectors(a.v), in_vectors(a.o));
}
