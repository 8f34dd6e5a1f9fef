// 8-bit operands on Hopper's tensor cores, whose own sums keep 14 bits: what they add up over a little of k goes to registers of
// its own, and is added, scaled, to sums in f32. While one warpgroup of a block adds, the other multiplies.
// kmark: arch sm_90a
// kmark: only dtype=f8e4m3,f8e5m2 layout=nt
// kmark: let ACROSS_A = 0
// kmark: let ACROSS_B = 0
// kmark: let CM = 1
// kmark: let CN = 2
// kmark: let H = m>128?2:1
// kmark: let BN = 128
// kmark: let BK = 128
// kmark: let SPLIT = 1
// kmark: let WIDTH = out.f32?4:2
// kmark: let PUT = scale.block?32/(WIDTH/2):128/WIDTH
// kmark: let COPIED = scale.block&&a_scale.pitch%4==0
// kmark: let SCALE_BYTES = COPIED?2*128*H*16:0
// kmark: let STAGES = min(4,(max_shared-33*1024-512)/((128*H+BN)*128))
// kmark: map a = a box=128,128*H/CN swizzle=128
// kmark: map b = b box=128,BN/CM swizzle=128
// kmark: map d = d box=PUT,16 swizzle=PUT*WIDTH
// kmark: map a_scale = a_scale box=4,128*H strides=ceil(a_scale.pitch,4)*4
// kmark: kernel gemm_fp8 grid=min(ceil(m,128*H*CM)*ceil(n,BN*CN),sms/2)*2 block=384 cluster=2 shared=STAGES*(128*H+BN)*128+16*PUT*WIDTH*16+SCALE_BYTES+1024
#include "product_wgmma.cuh"

// The values live in registers here: the compiler may not move what touches them across.
template <int N> DEVICE void keep(float (&v)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(v[i])::"memory");
}

// Scales of a's rows come by copies of four blocks of k for all rows of a tile, into one of two buffers, with the stage of the
// first of the four; where rows of scales are not at multiples of 16 bytes, they are read when they are needed.
DEVICE float* scale_buffer(const ProductShared& s, int k) { return (float*)(s.out + 16 * PUT_BYTES) + k / 4 % 2 * BM * 4; }

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_fp8(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    ProductShared s = product_shared(raw);
    product_begin(s, maps);
    Work work(a.m, a.n, a.k);
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (group == 0) {
        fewer_registers<40>();
        Ring<STAGES> ring{0, 1};
        if (threadIdx.x == 0) {
            work.each_piece([&](const Piece& piece) {
                produce(ring, s, maps, work.rank, piece, [&](int k, u64* barrier) {
                    if (!COPIED || k % 4 > 0) return 0;
                    tma_load(scale_buffer(s, k), maps.a_scale, barrier, k, piece.row);
                    return BM * 16;
                });
            });
        }
    } else {
        more_registers<232>();
        Ring<STAGES> ring{0, 0};
        int half = group - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        float all = SCALE == SCALE_tensor ? a.a_scale.ptr[0] * a.b_scale.ptr[0] : 1.0f;
        work.each_piece([&](const Piece& piece) {
            int row = piece.row + half * 64 * H, col = piece.col;
            float d[H][BN / 2], part[BN / 2], scale[H][2];
            #pragma unroll
            for (int h = 0; h < H; h++)
                for (int i = 0; i < BN / 2; i++) d[h][i] = 0.0f;
            const float* of_b = SCALE == SCALE_block ? a.b_scale.row(min((i64)col, a.n - 1) / 128) : nullptr;
            float next_b = SCALE == SCALE_block ? of_b[0] : 1.0f;
            int first = warp * 16 + lane / 4;
            barrier_wait(s.full + ring.stage, ring.phase);
            for (int k = 0; k < work.steps; k++) {
                int stage = ring.stage;
                bool more = k + 1 < work.steps;
                ring.next();
                u8 *left = s.stages + stage * STAGE_BYTES + half * H * 64 * 128, *right = s.stages + stage * STAGE_BYTES + A_BYTES;
                #pragma unroll
                for (int h = 0; h < H; h++) {
                    keep(part);
                    wgmma_fence();
                    u64 of_left = along_k(left + h * 64 * 128), of_right = along_k(right);
                    #pragma unroll
                    for (int i = 0; i < 4; i++) wgmma<a_t>(part, of_left + 2 * i, of_right + 2 * i, i);
                    wgmma_commit();
                    // While the products run.
                    if (SCALE == SCALE_block && h == 0) {
                        float b = next_b;
                        if (more) next_b = of_b[k + 1];
                        #pragma unroll
                        for (int g = 0; g < H * 2; g++) {
                            int r = first + g / 2 * 64 + g % 2 * 8;
                            float of_a = COPIED ? scale_buffer(s, k)[(half * H * 64 + r) * 4 + k % 4] : a.a_scale.at(min((i64)(row + r), a.m - 1), k);
                            scale[g / 2][g % 2] = of_a * b;
                        }
                    }
                    if (h == H - 1 && more) barrier_wait(s.full + ring.stage, ring.phase);
                    wgmma_wait<0>();
                    if (h == H - 1) release(s, stage);
                    keep(part);
                    #pragma unroll
                    for (int i = 0; i < BN / 2; i++) d[h][i] = SCALE == SCALE_block ? fmaf(part[i], scale[h][i / 2 % 2], d[h][i]) : d[h][i] + part[i];
                }
            }
            #pragma unroll
            for (int h = 0; h < H; h++) {
                auto value = [&](float v, int r, int c) {
                    i64 i = row + h * 64 + r, j = col + c;
                    if (SCALE == SCALE_tensor) v *= all;
                    if (SCALE == SCALE_row && i < a.m && j < a.n) v *= a.a_scale.ptr[i] * a.b_scale.ptr[j];
                    if (BIAS && j < a.n) v += up(a.bias.ptr[j]);
                    return v;
                };
                put_tile(d[h], s, half, value, [&](u8* from, int c, int r) { tma_store(maps.d, from, col + c, row + h * 64 + r); });
            }
        });
        if (threadIdx.x % 32 == 0) tma_wait<0>();
    }
    cluster_sync();
}
