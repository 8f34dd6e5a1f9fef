// 8-bit operands on Hopper's tensor cores, sums over 128 of k scaled and added in f32, by pairs of blocks that stay and share what
// both read.
// kmark: arch sm_90a
// kmark: only dtype=f8e4m3,f8e5m2 layout=nt
// kmark: let ACROSS_A = 0
// kmark: let ACROSS_B = 0
// kmark: let BK = 128
// kmark: let SPLIT = 1
// kmark: let PAIRS = sms/2
//
// Tiles of 128*R rows and W columns: pairs of 256 rows and W columns (R = 1), or of 256 rows and 2*W columns. What they cost, in
// clocks: a step of k takes as long as the tensor cores or shared memory need, whatever is more; then they are stored. Where scales
// are of blocks, every place at which a tile may begin within 128 columns has a loop of its own, and all of them must stay where
// instructions are kept: no more than four.
// kmark: let STEPS = ceil(k,128)
// kmark: let LOW = m<=128
// kmark: let TILES(R,W) = R==1&&!LOW?ceil(m,256)*ceil(n,W):ceil(m,256)*ceil(n,2*W)
// kmark: let SHARED(R,W) = 256*R+(1+2*R)*W
// kmark: let STEP(R,W) = scale.block?max(4*R*W,SHARED(R,W)*(32-R)/32):R==1?100+max(5*W,SHARED(1,W)):60+max(10*W,SHARED(2,W))
// kmark: let STORE(R,W) = (scale.block?15+5*R:16)*R*W
// kmark: let COST(R,W) = ceil(TILES(R,W),PAIRS)*(STEPS*STEP(R,W)+STORE(R,W))
// kmark: let BY = scale.block?32:16
// kmark: let NARROW = least(W,32,192,BY,COST(1,W))
// kmark: let BROAD = least(W,96,128,BY,COST(2,W)*(W==128?100:103))
// kmark: let SWAP = 0
// kmark: let WG = 2
// kmark: let H = !LOW&&COST(2,BROAD)<=COST(1,NARROW)?2:1
// kmark: let BN = H==2?BROAD:NARROW
// kmark: let CM = H==1&&!LOW?2:1
// kmark: let CN = 3-CM
//
// kmark: let WIDTH = out.f32?4:2
// kmark: let DIRECT = d.pitch*WIDTH%16>0
// kmark: let WIDE = !scale.block||(H==1&&BN>=128&&BN%64==0)
// kmark: let PUT = (BN==48?32:!WIDE||BN==32?64:128)/WIDTH
// kmark: let SCALED = scale.block
// kmark: let A_PITCH = SCALED?a_scale.pitch:0
// kmark: let B_PITCH = SCALED?b_scale.pitch:0
// kmark: let STAGE = (128*H+BN)*128
// kmark: let SCALE_BUFFERS = 2
// kmark: let SCALE_BYTES = SCALED*SCALE_BUFFERS*(128*H+3)*16
// kmark: let OUT_BYTES = 16*16*PUT*WIDTH
// kmark: let STAGES = (max_shared-OUT_BYTES-SCALE_BYTES-1536)/STAGE<8?4:8
// kmark: map a = a box=128,128*H/CN swizzle=128
// kmark: map b = b box=128,BN/CM swizzle=128
// kmark: map d = d box=PUT,16 dims=DIRECT?64:n,DIRECT?1:m strides=DIRECT?64:d.pitch swizzle=PUT*WIDTH
// kmark: kernel gemm_fp8 grid=ceil(TILES(H,BN),ceil(TILES(H,BN),PAIRS))*2 block=384 cluster=2 shared=STAGES*STAGE+OUT_BYTES+SCALE_BYTES+1024
#include "product_fp8.cuh"

// Scales of blocks say at which columns tiles begin.
DEVICE Work work_of(const Args& a) { return Work(a.m, a.n, a.k, !SCALED); }

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_fp8(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    ProductShared s = product_shared(raw);
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    Scales scales(s, warp < 4);
    if (SCALED && threadIdx.x == 0) scales.begin();
    product_begin(s, maps);
    if (warp < 4) {
        fewer_registers<40>();
        Ring<STAGES> ring{0, 1};
        if (elected(0)) {
            Work work = work_of(a);
            work.each_piece([&](const Piece& piece, auto) { produce(ring, s, maps, work.rank, piece), leave_stages(ring, s, work.steps); });
        }
        if (SCALED && warp > 0) {
            Work work = work_of(a);
            work.each_piece([&](const Piece& piece, auto) {
                int block = piece.col / 128;
                if constexpr (SCALED) scales.copy(work.steps, a.a_scale.row(piece.row), (int)a.m - piece.row, a.b_scale.row(block), ((int)a.n + 127) / 128 - block);
            });
        }
    } else {
        more_registers<232>();
        int half = warp / 4 - 1;
        Stages stages(s, half);
        Work work = work_of(a);
        float all = SCALE == SCALE_tensor ? a.a_scale.ptr[0] * a.b_scale.ptr[0] : 1.0f;
        work.each_piece([&](const Piece& piece, auto) {
            int row = piece.row + half * 64 * H, col = piece.col;
            float d[H][BN / 2];
            at_place(SCALED ? col % 128 : 0, [&](auto place) { consume_fp8<decltype(place)::value>(d, stages, scales, half, work.steps); });
            #pragma unroll
            for (int h = 0; h < H; h++) {
                asm volatile("" : "+r"(row), "+r"(col)); // places are computed anew: there are no registers for those of both halves
                auto value = [&](float v, int r, int c) {
                    i64 i = row + h * 64 + r, j = col + c;
                    if (SCALE == SCALE_tensor) v *= all;
                    if (SCALE == SCALE_row && i < a.m && j < a.n) v *= a.a_scale.ptr[i] * a.b_scale.ptr[j];
                    if (BIAS && j < a.n) v += up(a.bias.ptr[j]);
                    return v;
                };
                put_tile(d[h], s, half, value, [&](u8* from, int c, int r) {
                    if constexpr (DIRECT) store_box(a.d, from, row + h * 64 + r, col + c);
                    else tma_store(maps.d, from, col + c, row + h * 64 + r);
                });
            }
        });
        if (elected()) tma_wait<0>();
    }
    cluster_meet();
}
