// FlashAttention-3 on Hopper: copies by the tensor memory accelerator, products by wgmma, softmax beneath the products; blocks
// stay and take tiles of queries one by one, head by head; with masks those that see most keys first, heads in sections whose keys
// fit in the L2 cache.
// Where queries do not fill tiles, heads that share keys share tiles, too; where keys do not fill blocks of 128, blocks have 112.
// kmark: arch sm_90a
// kmark: only dtype=f16,bf16
// kmark: require d<=256&&d%8==0
// kmark: constants d
// kmark: let SHARE = hq/hkv
// kmark: let PACK = 64%SHARE==0&&ceil(sq*SHARE,128)<ceil(sq,128)*SHARE?SHARE:1
// kmark: let ROWS = sq*PACK
// kmark: let GROUPS = ROWS<=64?1:d<=64&&ceil(ROWS,192)*15<=ceil(ROWS,128)*12?3:2
// kmark: let IN_REGISTERS = d>64&&d<=128
// kmark: let BN = d>192?80:d>128||(!causal&&window==0&&ceil(sk,112)*114<ceil(sk,128)*128)?112:128
// kmark: let ROW = ceil(d,64)*128
// kmark: let AHEAD = d<=64?2:1
// kmark: let STAGES = min(4,(max_shared-2048-AHEAD*GROUPS*64*ROW)/(2*BN*ROW))
// kmark: let TURNS = GROUPS>1&&(d<=64||d>192)
// kmark: let TILES = ceil(ROWS,64*GROUPS)*(hq/PACK)*b
// kmark: let WIDE = max(l2/2/(sk*d*4),ceil(4*sms,ceil(ROWS,64*GROUPS)*(SHARE/PACK)))
// kmark: let SECTION = !causal&&window==0?SHARE/PACK:ceil(b*hkv,ceil(b*hkv,max(WIDE,1)))*(SHARE/PACK)
// kmark: map q = q box=64,PACK,64/PACK,1 dims=d,hq,sq,b strides=layout.bshd?q.pitch:sq*q.pitch,layout.bshd?hq*q.pitch:q.pitch,hq*sq*q.pitch swizzle=128
// kmark: map k = k box=64,BN,1,1 dims=d,sk,hkv,b strides=layout.bshd?hkv*k.pitch:k.pitch,layout.bshd?k.pitch:sk*k.pitch,hkv*sk*k.pitch swizzle=128
// kmark: map v = v box=64,BN,1,1 dims=d,sk,hkv,b strides=layout.bshd?hkv*v.pitch:v.pitch,layout.bshd?v.pitch:sk*v.pitch,hkv*sk*v.pitch swizzle=128
// kmark: workspace 4 zeroed
// kmark: kernel attention_wgmma grid=min(TILES,sms) block=128*(GROUPS+1) shared=(AHEAD*64*GROUPS+2*STAGES*BN)*ROW+1024
#include "attention_wgmma.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;

// What the producer leaves in shared memory of a tile.
struct Slot {
    int first, b, head;
};

KERNEL __launch_bounds__(FLASH_THREADS, 1) attention_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    __shared__ Slot slots[SLOTS];
    FlashShared s = flash_shared(raw);
    int tiles = ((int)a.sq + QUERIES - 1) / QUERIES, heads = (int)(a.hq / PACK), all = (int)a.b * heads;
    auto find = [&](int number) {
        int section = number / (SECTION * tiles), rest = number - section * SECTION * tiles, wide = min(SECTION, all - section * SECTION);
        int n = section * SECTION + rest % wide;
        return Slot{(tiles - 1 - rest / wide) * QUERIES, n / heads, n % heads * PACK};
    };
    auto tile_of = [&](int id) {
        const Slot& t = slots[id % SLOTS];
        Head<float> lse{nullptr, 1};
        if constexpr (LSE) lse.first = a.lse.row(t.b * a.hq + t.head);
        int kv_head = t.head / (int)(a.hq / a.hkv);
        Head<o_t> o = dense_out(a.o, HEADS_FIRST, t.b, a.hq, a.sq, t.head);
        return Tile{{(int)a.sq, (int)a.sk}, t.first, 0, 0, t.head, kv_head, t.b, o, lse, HEADS_FIRST ? a.sq * a.o.pitch : a.o.pitch, a.lse.pitch};
    };
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (group == 0) {
        fewer_registers<GROUPS == 3 ? 32 : 40>();
        if (elected(0)) flash_produce(s, maps, Counter{(u32*)a.workspace, tiles * all}, slots, find, tile_of);
    } else {
        more_registers<GROUPS == 3 ? 160 : 232>();
        flash_consume(s, group - 1, tile_of);
    }
}
