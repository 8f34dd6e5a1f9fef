// FlashAttention-3 on Hopper: copies by the tensor memory accelerator, products by wgmma, softmax beneath the products; blocks
// stay and take tiles of queries one by one, those that see most keys first, heads in sections whose keys fit in the L2 cache.
// kmark: arch sm_90a
// kmark: only dtype=f16,bf16
// kmark: require d<=256&&d%8==0
// kmark: constants d
// kmark: let GROUPS = sq<=64?1:d<=64&&ceil(sq,192)*15<=ceil(sq,128)*12?3:2
// kmark: let IN_REGISTERS = d>64&&d<=128
// kmark: let BN = d<=128?128:d<=192?112:80
// kmark: let ROW = ceil(d,64)*128
// kmark: let AHEAD = d<=64?2:1
// kmark: let STAGES = min(4,(max_shared-2048-AHEAD*GROUPS*64*ROW)/(2*BN*ROW))
// kmark: let TILES = ceil(sq,64*GROUPS)*hq*b
// kmark: let WIDE = max(l2/2/(sk*d*4),ceil(4*sms,ceil(sq,64*GROUPS)*(hq/hkv)))
// kmark: let SECTION = ceil(b*hkv,ceil(b*hkv,max(WIDE,1)))*(hq/hkv)
// kmark: map q = q box=64,64,1,1 dims=d,sq,hq,b strides=layout.bshd?hq*q.pitch:q.pitch,layout.bshd?q.pitch:sq*q.pitch,hq*sq*q.pitch swizzle=128
// kmark: map k = k box=64,BN,1,1 dims=d,sk,hkv,b strides=layout.bshd?hkv*k.pitch:k.pitch,layout.bshd?k.pitch:sk*k.pitch,hkv*sk*k.pitch swizzle=128
// kmark: map v = v box=64,BN,1,1 dims=d,sk,hkv,b strides=layout.bshd?hkv*v.pitch:v.pitch,layout.bshd?v.pitch:sk*v.pitch,hkv*sk*v.pitch swizzle=128
// kmark: workspace 4 zeroed
// kmark: kernel attention_wgmma grid=min(TILES,sms) block=128*(GROUPS+1) shared=(AHEAD*64*GROUPS+2*STAGES*BN)*ROW+1024
#include "attention_wgmma.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;

KERNEL __launch_bounds__(FLASH_THREADS, 1) attention_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    FlashShared s = flash_shared(raw);
    int tiles = ((int)a.sq + BM - 1) / BM, heads = (int)(a.b * a.hq);
    auto tile_of = [&](int id) {
        int section = id / (SECTION * tiles), rest = id - section * SECTION * tiles, wide = min(SECTION, heads - section * SECTION);
        int n = section * SECTION + rest % wide, first = (tiles - 1 - rest / wide) * BM;
        int b = n / (int)a.hq, head = n % (int)a.hq;
        Head<float> lse{nullptr, 1};
        if constexpr (LSE) lse.first = a.lse.row(n);
        return Tile{{(int)a.sq, (int)a.sk}, first, 0, 0, head, head / (int)(a.hq / a.hkv), b, dense_out(a.o, HEADS_FIRST, b, a.hq, a.sq, head), lse};
    };
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (group == 0) {
        fewer_registers<GROUPS == 3 ? 32 : 40>();
        if (threadIdx.x == 0) flash_produce(s, maps, Counter{(u32*)a.workspace, tiles * heads}, tile_of);
    } else {
        more_registers<GROUPS == 3 ? 160 : 232>();
        flash_consume(s, group - 1, tile_of);
    }
}
