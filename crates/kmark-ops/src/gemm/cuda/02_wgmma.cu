// Tiles of 128 rows on Hopper's tensor cores, by pairs of blocks that stay and share what both read. Where whole tiles would
// leave multiprocessors idle at the end, the last ones are cut along k, and their parts exchange sums through memory.
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
// kmark: let PUT_TIME = 4000
// kmark: let SUMS = 16000
// kmark: let STEP(W) = 20+max(4*W,3*W+256)
// kmark: let COST(W) = TILES(W)/PAIRS*(STEPS*STEP(W)+PUT_TIME)+(REST(W)>0)*(STEPS*STEP(W)/PARTS(W)+PUT_TIME+SUMS*(PARTS(W)>1))
// Parts of a tile store in boxes that divide its width: narrow ones cost a twentieth.
// kmark: let BN = ACROSS_B?least(W,128,256,128,COST(W)):least(W,64,256,16,COST(W)*(PARTS(W)>1&&W%64>0?105:100))
// kmark: let SPLIT = PARTS(BN)
// kmark: let USED = SPLIT==1?ceil(TILES(BN),ceil(TILES(BN),PAIRS)):TILES(BN)>=PAIRS?PAIRS:TILES(BN)*SPLIT
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

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    ProductShared s = product_shared(raw);
    product_begin(s, maps);
    Work work(a.m, a.n, a.k);
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (group == 0) {
        fewer_registers<56>();
        Ring<STAGES> ring{0, 1};
        if (threadIdx.x == 0) work.each_piece([&](const Piece& piece, auto) { produce(ring, s, maps, work.rank, piece); });
    } else {
        more_registers<224>();
        Ring<STAGES> ring{0, 0};
        int half = group - 1;
        work.each_piece([&](const Piece& piece, auto is_part) {
            float d[BN / 2];
            consume(d, ring, s, half, piece.end - piece.first);
            auto value = [&](float v, int, int c) { return BIAS && piece.col + c < a.n ? v + up(a.bias.ptr[piece.col + c]) : v; };
            auto put = [&](u8* from, int c, int r) { tma_store(maps.d, from, piece.col + c, piece.row + half * 64 + r); };
            if constexpr (is_part.value) {
                send_sums(d, a.workspace, work, piece.part, half);
                await_sums(a.workspace, work, piece.part, half);
                auto add = [&](float (&v)[PUT / 2], int c) { add_sums(v, a.workspace, work, piece.part, half, c); };
                put_tile(d, s, half, add, value, put, first_put(piece.part), first_put(piece.part + 1));
            } else {
                put_tile(d, s, half, value, put);
            }
        });
        if (threadIdx.x % 32 == 0) tma_wait<0>();
    }
    cluster_sync(); // no block leaves while the other may still reach into it
}
