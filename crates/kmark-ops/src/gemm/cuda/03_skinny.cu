// For few rows of a, when reading b is all that takes time: b's columns are the tensor cores' rows, many small blocks keep
// copies of b under way, and a cluster shares the sums over k.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16 layout=nt,nn
// kmark: require m<=128
// kmark: let ACROSS = layout.nn
// kmark: let BK = 64
// kmark: let M = ceil(m,16)*16
// kmark: let GROUPS = m>64?2:1
// kmark: let DEEP = 1
// kmark: let TILES = ceil(n,64*GROUPS)
// kmark: let PER_SM = TILES>sms?2:1
// kmark: let SLOTS = sms*PER_SM-sms*PER_SM/32
// kmark: let MOST = ceil(k,BK*DEEP)/4
// kmark: let SPLIT = max(1,min(min(SLOTS/TILES,MOST),8))
// kmark: let STAGES = min(12,(max_shared/PER_SM-4*1024)/(DEEP*(64*GROUPS+M)*128))
// kmark: map a = a box=BK,M swizzle=128
// kmark: map b = b box=ACROSS?64:BK,ACROSS?BK:64*GROUPS swizzle=128
// kmark: kernel gemm_skinny grid=TILES*SPLIT block=128*GROUPS+32 cluster=SPLIT shared=STAGES*DEEP*(64*GROUPS+M)*128+1024
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"
#include "product.cuh"

constexpr int COLS = 64 * GROUPS, MULTIPLIERS = 128 * GROUPS, B_BYTES = COLS * 128, STEP_BYTES = B_BYTES + M * 128;
// Sums of a tile in shared memory: its columns for each row of a, and a little so that banks differ.
constexpr int LINE = COLS + 4;
static_assert(M * LINE * 4 <= STAGES * DEEP * STEP_BYTES, "sums lie where the stages were");

KERNEL __launch_bounds__(MULTIPLIERS + 32) gemm_skinny(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    __shared__ u64 full[STAGES], empty[STAGES];
    u8* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    int part = blockIdx.x % SPLIT, col = blockIdx.x / SPLIT * COLS, all = (int)((a.k + BK * DEEP - 1) / (BK * DEEP));
    int first = all * part / SPLIT, end = all * (part + 1) / SPLIT;
    // One thread sets the barriers up and at once asks for all that the stages hold; the others need the barriers only.
    float d[M / 2];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, ahead = min(end, first + STAGES);
    auto copy = [&](int k, int stage) {
        barrier_expect(full + stage, DEEP * STEP_BYTES);
        #pragma unroll
        for (int e = 0; e < DEEP; e++) {
            u8* b = stages + (stage * DEEP + e) * STEP_BYTES;
            int at = (k * DEEP + e) * BK;
            #pragma unroll
            for (int g = 0; g < (ACROSS ? GROUPS : 1); g++)
                tma_load(b + g * 8192, maps.b, full + stage, ACROSS ? col + g * 64 : at, ACROSS ? at : col);
            tma_load(b + B_BYTES, maps.a, full + stage, at, 0);
        }
    };
    if (threadIdx.x == MULTIPLIERS) {
        for (int i = 0; i < STAGES; i++) barrier_init(full + i, 1), barrier_init(empty + i, GROUPS);
        barrier_fence_init();
        for (int k = first; k < ahead; k++) copy(k, k - first);
    }
    __syncthreads();
    if (threadIdx.x >= MULTIPLIERS) {
        Ring<STAGES> ring{0, 0};
        if (lane == 0) {
            for (int k = ahead; k < end; k++, ring.next()) {
                barrier_wait(empty + ring.stage, ring.phase);
                copy(k, ring.stage);
            }
        }
        __syncwarp();
    } else {
        Ring<STAGES> ring{0, 0};
        int before = 0;
        for (int k = first; k < end; k++, ring.next()) {
            barrier_wait(full + ring.stage, ring.phase);
            wgmma_fence();
            #pragma unroll
            for (int e = 0; e < DEEP; e++) {
                u8* b = stages + (ring.stage * DEEP + e) * STEP_BYTES;
                u8* mine = b + warp / 4 * 8192;
                u64 of_b = ACROSS ? across_k(mine, BK * 128) : along_k(mine), of_a = along_k(b + B_BYTES);
                #pragma unroll
                for (int i = 0; i < 4; i++) wgmma<a_t, ACROSS>(d, of_b + (ACROSS ? 128 : 2) * i, of_a + 2 * i, k > first || e || i);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (k > first && threadIdx.x % 128 == 0) barrier_arrive(empty + before);
            before = ring.stage;
        }
        wgmma_wait<0>();
    }
    // All copies have come and all products are done: the stages hold the sums now.
    __syncthreads();
    float* sums = (float*)stages;
    if (threadIdx.x < MULTIPLIERS) {
        #pragma unroll
        for (int i = 0; i < M / 2; i++) {
            int row = i / 4 * 8 + lane % 4 * 2 + i % 2, c = warp * 16 + lane / 4 + i / 2 % 2 * 8;
            sums[row * LINE + c] = d[i];
        }
    }
    if (SPLIT > 1) cluster_sync();
    else __syncthreads();
    bool whole = a.d.aligned(4 * sizeof(d_t));
    // Four columns at a time; the rows of a are dealt out to the blocks of the cluster.
    constexpr int FOURS = COLS / 4;
    for (int i = threadIdx.x; i < (M + SPLIT - 1) / SPLIT * FOURS; i += MULTIPLIERS + 32) {
        int row = i / FOURS * SPLIT + part, c = i % FOURS * 4;
        if (row >= a.m) continue;
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        #pragma unroll
        for (int block = 0; block < SPLIT; block++) {
            Vec<float, 4> more = SPLIT > 1 ? load_from_block(sums + row * LINE + c, block) : load<4>(sums + row * LINE + c);
            #pragma unroll
            for (int e = 0; e < 4; e++) v[e] += more.v[e];
        }
        i64 left = a.n - (col + c);
        if (left <= 0) continue;
        #pragma unroll
        for (int e = 0; e < 4; e++)
            if (BIAS && e < left) v[e] += up(a.bias.ptr[col + c + e]);
        put_run(a.d.row(row) + col + c, (int)(left < 4 ? left : 4), whole, v);
    }
    if (SPLIT > 1) cluster_sync(); // no block leaves while others read its sums
}
