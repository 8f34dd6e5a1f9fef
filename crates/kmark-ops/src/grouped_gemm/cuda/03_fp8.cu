// Tiles of 128 or 256 rows of one group with 8-bit operands on Hopper's tensor cores, sums over 128 of k scaled and added in f32.
// kmark: arch sm_90a
// kmark: only dtype=f8e4m3
// kmark: require form.masked||align%128==0
// kmark: let ACROSS_A = 0
// kmark: let ACROSS_B = 0
// kmark: let CM = 1
// kmark: let CN = 2
// kmark: let SWAP = 0
// kmark: let WG = 2
// kmark: let DIRECT = 0
// kmark: let H = (lengths.equal&&m%256==0)||(form.masked&&m>=1024)?2:1
// Tiles of 128 rows are wider, so that shared memory keeps up with the tensor cores (8 ragged groups of up to 4096 rows, k = 2048:
// 234 -> 219 us); where rows are few the weights are what takes long, and more stages keep more of them under way (32 groups of up
// to 64 rows: 264 -> 245 us).
// kmark: let FEW = m<=64
// kmark: let BN = H==2||FEW?128:192
// kmark: let BK = 128
// kmark: let SPLIT = 1
// kmark: let PUT = BN==192?64:32
// kmark: let SCALED = 1
// kmark: let A_PITCH = a_scale.pitch
// kmark: let B_PITCH = b_scale.pitch
// kmark: let STAGE = (128*H+BN)*128
// kmark: let STAGES = FEW?6:4
// kmark: let SCALE_BUFFERS = 2
// kmark: let SCALE_BYTES = SCALE_BUFFERS*(128*H+3)*16
// kmark: let SLOT = form.masked?m:d.rows
// kmark: map a = a box=128,128*H/CN swizzle=128
// kmark: map b = b box=128,BN/CM swizzle=128
// kmark: map d = d box=PUT,16,1 dims=n,SLOT,d.rows/SLOT strides=d.pitch,d.pitch*SLOT swizzle=PUT*2
// kmark: kernel grouped_fp8 grid=sms/2*2 block=384 cluster=2 shared=STAGES*STAGE+SCALE_BYTES+512*PUT+1024
#include "groups_wgmma.cuh"
#include "product_fp8.cuh"

KERNEL __launch_bounds__(WGMMA_THREADS, 1) grouped_fp8(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    ProductShared s = product_shared(raw);
    int rank = cluster_rank(), warp = __shfl_sync(~0u, threadIdx.x / 32, 0), steps = (int)((a.k + BK - 1) / BK);
    Scales scales(s, warp < 4);
    if (threadIdx.x == 0) scales.begin();
    product_begin(s, maps);
    if (warp < 4) {
        fewer_registers<40>();
        Ring<STAGES> ring{0, 1};
        if (elected(0)) each_group_tile(a, rank, steps, [&](const GroupPiece& piece) { produce(ring, s, maps, rank, piece), leave_stages(ring, s, steps); });
        else if (warp > 0) each_group_tile(a, rank, steps, [&](const GroupPiece& piece) {
            int blocks = ((int)a.n + 127) / 128, block = piece.col / 128;
            scales.copy(steps, a.a_scale.row(piece.row), (int)a.a.rows - piece.row, a.b_scale.row((i64)piece.group * blocks + block), blocks - block);
        });
    } else {
        more_registers<232>();
        int half = warp / 4 - 1;
        Stages stages(s, half);
        each_group_tile(a, rank, steps, [&](const GroupPiece& piece) {
            float d[H][BN / 2];
            at_place(piece.col % 128, [&](auto place) { consume_fp8<decltype(place)::value>(d, stages, scales, half, steps); });
            #pragma unroll
            for (int h = 0; h < H; h++)
                put_tile(d[h], s, half, [](float v, int, int) { return v; }, [&](u8* from, int c, int r) {
                    tma_store(maps.d, from, piece.col + c, piece.in_slot + (half * H + h) * 64 + r, FORM == FORM_masked ? piece.group : 0);
                });
        });
        if (elected()) tma_wait<0>();
    }
    cluster_meet();
}
