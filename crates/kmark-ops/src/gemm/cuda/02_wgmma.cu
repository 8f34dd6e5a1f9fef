// Tiles of 128 rows on Hopper's tensor cores, by pairs of blocks that stay and share what both read. A tile's results wait in
// registers and are stored while the next one is multiplied. Where whole tiles would leave multiprocessors idle at the end, the
// last ones are cut along k, and their parts exchange sums through memory.
// What a launch takes beside its products, in clocks of an H200 with cold caches: 3400 until the first operands are there, 900
// between tiles, and at the end what storing takes, when all blocks store at once: each gets 26 to 38 bytes a clock through.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16
// kmark: let ACROSS_A = layout.tn+layout.tt
// kmark: let ACROSS_B = layout.nn+layout.tn
// kmark: let H = 1
// kmark: let BK = 64
// kmark: let PAIRS = sms/2
//
// Tiles of W columns, C of a pair one below the other: how many rounds they take, and into how many parts those that are left are
// cut, if it pays. Then what they cost, in clocks: a step of k takes as long as the tensor cores or shared memory need, whatever is
// more. Where rows do not begin at lines of 128 bytes the cache is slower: every row is two lines, each of them two clocks.
// kmark: let STEPS = ceil(k,64)
// kmark: let TILES(C,W) = ceil(m,128*C)*ceil(n,W*(3-C))
// kmark: let REST(C,W) = TILES(C,W)%PAIRS
// kmark: let SLOW_A = !ACROSS_A&&a.pitch%64>0
// kmark: let SLOW_B = !ACROSS_B&&b.pitch%64>0
// kmark: let CACHE(C,W) = 4*(SLOW_A*64*C+SLOW_B*W/C)
// Narrow tiles in several rounds read more than the cache hands out.
// kmark: let STEP(C,W) = (20+max(max(4*W,13*W/4+100),CACHE(C,W)))*(W<128&&TILES(C,W)>=2*PAIRS?4:3)/3
// kmark: let PUT_TIME = out.f32?4000:900
// kmark: let SUMS = 9000
// kmark: let FIT(C,W) = REST(C,W)==0||STEPS<32?1:min(PAIRS/REST(C,W),4)
// kmark: let PARTS(C,W) = STEPS*STEP(C,W)/FIT(C,W)+SUMS<STEPS*STEP(C,W)?FIT(C,W):1
// kmark: let COST(C,W) = TILES(C,W)/PAIRS*(STEPS*STEP(C,W)+PUT_TIME)+(REST(C,W)>0)*(STEPS*STEP(C,W)/PARTS(C,W)+PUT_TIME+SUMS*(PARTS(C,W)>1))
// Parts of a tile store in boxes that divide its width: narrow ones cost a twentieth. Tiles of less than 256 columns read more for
// the same work, and where power is the limit that costs clocks.
// kmark: let SUM(C,W) = COST(C,W)*((PARTS(C,W)>1&&W%64>0?105:100)+3*(W<256))
// kmark: let LEAST(C) = ACROSS_B?least(W,128,256,128,SUM(C,W)):least(W,64,256,16,SUM(C,W))
// kmark: let CM = m>128&&SUM(2,LEAST(2))<=SUM(1,LEAST(1))?2:1
// kmark: let CN = 3-CM
// kmark: let BN = LEAST(CM)
// kmark: let SPLIT = PARTS(CM,BN)
// kmark: let ALL = TILES(CM,BN)
// kmark: let USED = SPLIT==1?ceil(ALL,ceil(ALL,PAIRS)):ALL>=PAIRS?PAIRS:ALL*SPLIT
// kmark: let LATE = !out.f32&&STEPS>=4
//
// kmark: let WIDTH = out.f32?4:2
// kmark: let PUT = min(128/WIDTH,SPLIT==1||BN%64==0?64:BN%32==0?32:16)
// kmark: let STAGES = min(8,(max_shared-33*1024-512)/((128+BN)*128))
// kmark: map a = a box=ACROSS_A?64:BK,ACROSS_A?BK:128/CN swizzle=128
// kmark: map b = b box=ACROSS_B?64:BK,ACROSS_B?BK:BN/CM swizzle=128
// kmark: map d = d box=PUT,16 swizzle=PUT*WIDTH
// kmark: workspace SPLIT>1?USED*4*(SPLIT*4+BN*256):0 zeroed
// kmark: kernel gemm_wgmma grid=USED*2 block=384 cluster=2 shared=STAGES*(128+BN)*128+33*1024
#include "product_wgmma.cuh"

struct Place {
    int row, col;
};

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    ProductShared s = product_shared(raw);
    product_begin(s, maps);
    Work work(a.m, a.n, a.k);
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (group == 0) {
        fewer_registers<40>();
        Ring<STAGES> ring{0, 1};
        if (threadIdx.x == 0) work.each_piece([&](const Piece& piece, auto) { produce(ring, s, maps, work.rank, piece); });
    } else {
        more_registers<232>();
        Ring<STAGES> ring{0, 0};
        int half = group - 1;
        Late<Place> late;
        auto put = [&](const Place& at, u8* from, int c, int r) { tma_store(maps.d, from, at.col + c, at.row + half * 64 + r); };
        work.each_piece([&](const Piece& piece, auto is_part) {
            float d[BN / 2];
            consume<LATE ? LATE_STEPS : 0>(d, ring, s, half, piece, [&](int step) { late.store(s, half, step, put); });
            Place at{piece.row, piece.col};
            auto value = [&](float v, int, int c) { return BIAS && at.col + c < a.n ? v + up(a.bias.ptr[at.col + c]) : v; };
            auto put_here = [&](u8* from, int c, int r) { put(at, from, c, r); };
            if constexpr (is_part.value) {
                send_sums(d, a.workspace, work, piece.part, half);
                await_sums(a.workspace, work, piece.part, half);
                auto add = [&](float (&v)[PUT / 2], int c) { add_sums(v, a.workspace, work, piece.part, half, c); };
                put_tile(d, s, half, add, value, put_here, first_put(piece.part), first_put(piece.part + 1));
                late.some = false;
            } else if constexpr (LATE) {
                late.keep(d, at, value);
            } else {
                put_tile(d, s, half, value, put_here);
            }
        });
        late.store_all(s, half, put);
        if (threadIdx.x % 32 == 0) tma_wait<0>();
    }
}
