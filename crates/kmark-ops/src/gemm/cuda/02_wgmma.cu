// Tiles of 128 rows on Hopper's tensor cores, by pairs of blocks that stay and share what both read. Where whole tiles would
// leave multiprocessors idle at the end, the last ones are cut along k, and sums are added through memory.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16
// kmark: let ACROSS_A = layout.tn+layout.tt
// kmark: let ACROSS_B = layout.nn+layout.tn
// kmark: let CM = m>128?2:1
// kmark: let CN = 3-CM
// kmark: let H = 1
// kmark: let BK = 64
// kmark: let PAIRS = sms/2
// kmark: let ROWS = ceil(m,128*CM)
//
// Tiles of W columns: how many rounds they take, and into how many parts those that are left are cut. Then what they cost, in
// clocks: a step of k takes as long as the tensor cores or shared memory need, whatever is more.
// kmark: let STEPS = ceil(k,64)
// kmark: let TILES(W) = ROWS*ceil(n,W*CN)
// kmark: let REST(W) = TILES(W)%PAIRS
// kmark: let PARTS(W) = REST(W)==0||STEPS<32?1:min(PAIRS/REST(W),4)
// kmark: let STEP(W) = 20+max(4*W,3*W+256)
// kmark: let COST(W) = TILES(W)/PAIRS*(STEPS*STEP(W)+4000)+(REST(W)>0)*(STEPS*STEP(W)/PARTS(W)+4000+12000*(PARTS(W)-1))
// kmark: let BN = ACROSS_B?least(W,128,256,128,COST(W)):least(W,64,256,16,COST(W))
// kmark: let SPLIT = PARTS(BN)
// kmark: let USED = TILES(BN)>=PAIRS?PAIRS:TILES(BN)*SPLIT
//
// kmark: let WIDTH = out.f32?4:2
// kmark: let PUT = min(128/WIDTH,BN%64==0?64:BN%32==0?32:16)
// kmark: let STAGES = min(8,(max_shared-33*1024-512)/((128+BN)*128))
// kmark: map a = a box=ACROSS_A?64:BK,ACROSS_A?BK:128/CN swizzle=128
// kmark: map b = b box=ACROSS_B?64:BK,ACROSS_B?BK:BN/CM swizzle=128
// kmark: map d = d box=PUT,16 swizzle=PUT*WIDTH
// kmark: workspace SPLIT>1?USED*4*(4+BN*256):0 zeroed
// kmark: kernel gemm_wgmma grid=USED*2 block=384 cluster=2 shared=STAGES*(128+BN)*128+33*1024
#include "product_wgmma.cuh"

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    ProductShared s = product_shared(raw);
    product_begin(s, maps);
    Work work(a.m, a.n, a.k);
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (group == 0) {
        fewer_registers<56>();
        Ring<STAGES> ring{0, 1};
        if (threadIdx.x == 0) work.each_piece([&](const Piece& piece) { produce(ring, s, maps, work.rank, piece); });
    } else {
        more_registers<224>();
        Ring<STAGES> ring{0, 0};
        int half = group - 1;
        work.each_piece([&](const Piece& piece) {
            float d[BN / 2];
            consume(d, ring, s, half, piece.end - piece.first);
            if constexpr (SPLIT > 1) {
                if (piece.first > 0) return leave_sums(d, a.workspace, work, half);
                if (piece.end < work.steps) add_sums(d, a.workspace, work, half);
            }
            auto value = [&](float v, int, int c) { return BIAS && piece.col + c < a.n ? v + up(a.bias.ptr[piece.col + c]) : v; };
            put_tile(d, s, half, value, [&](u8* from, int c, int r) { tma_store(maps.d, from, piece.col + c, piece.row + half * 64 + r); });
        });
        if (threadIdx.x % 32 == 0) tma_wait<0>();
    }
    cluster_sync(); // no block leaves while the other may still reach into it
}
