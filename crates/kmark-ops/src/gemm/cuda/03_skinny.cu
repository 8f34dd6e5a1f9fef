// For few rows of a, when reading b is all that takes time: b's columns are the tensor cores' rows, many small blocks keep
// copies of b under way, and a cluster shares the sums over k. Of 8-bit operands, sums over 128 of k are added in f32.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16,f8e4m3,f8e5m2 layout=nt,nn
// kmark: require m<=128
// kmark: require size==2||layout.nt
// kmark: let FP8 = size==1
// kmark: let BLOCKS = scale.block
// kmark: let ACROSS = layout.nn
// kmark: let BK = 128/size
// kmark: let GROUPS = m>64&&ceil(n,128)*3>sms&&(k*size>4096||n>64*sms)?2:1
// kmark: let DEEP = 1
// kmark: let TILES = ceil(n,64*GROUPS)
// kmark: let ONCE = sms-sms/32
// kmark: let IDLE = TILES*2>ONCE&&TILES*4<ONCE*3
// kmark: let PER_SM = FP8?min(m>64?2:m>32?3:4,max(ceil(TILES,sms),IDLE?2:1)):TILES>sms*2&&m<=64?4:TILES>sms?2:1
// kmark: let SETS = m>64||BLOCKS&&m>48&&PER_SM>2?1:2
// kmark: let H = FP8&&m>64&&PER_SM>1?(m>96?4:2):1
// kmark: let M = ceil(m,16*H)*16*H
// kmark: let SLOTS = sms*PER_SM-sms*PER_SM/32
// kmark: let MOST = ceil(k,BK*DEEP)/4
// kmark: let SPLIT = max(1,min(min(SLOTS/TILES,MOST),8))
// kmark: let STAGE = DEEP*(64*GROUPS+M)*128+BLOCKS*(M+4)*4
// kmark: let STAGES = min(12,(max_shared/PER_SM-4*1024)/STAGE)
// kmark: map a = a box=BK,M swizzle=128
// kmark: map b = b box=ACROSS?64:BK,ACROSS?BK:64*GROUPS swizzle=128
// kmark: kernel gemm_skinny grid=TILES*SPLIT block=128*GROUPS+32 cluster=SPLIT shared=STAGES*STAGE+1024
#include "hopper/keep.cuh"
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"
#include "product.cuh"

constexpr int COLS = 64 * GROUPS, MULTIPLIERS = 128 * GROUPS, B_BYTES = COLS * 128, STEP_BYTES = B_BYTES + M * 128;
// Sums of a tile in shared memory: its columns for each row of a, and a little so that banks differ.
constexpr int LINE = COLS + 4;
static_assert(M * LINE * 4 <= STAGES * DEEP * STEP_BYTES, "sums lie where the stages were");
static_assert(!FP8 || DEEP == 1, "a step is 128 of k");
// Rows of a that one product takes, and its registers.
constexpr int ROWS = M / H, R = ROWS / 2;
// Scales of a step, behind the stages: of the rows of a, and of the columns.
constexpr int SCALES = M + 4;
// One scale for all of k: kept for the end.
constexpr bool ENDS = FP8 && (SCALE == SCALE_tensor || SCALE == SCALE_row);

// A float to shared memory by itself. What a thread asked for so far arrives at the barrier, which counts the thread, when it
// has come; or the thread waits for it.
DEVICE void copy_float(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
DEVICE void floats_arrive(u64* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
DEVICE void floats_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Sums of 8-bit products over `steps` steps; one warpgroup. Hopper's tensor cores keep 14 bits of their own sums, so what they add
// up over 128 of k goes to registers of its own, and is added, scaled, to d in f32. With two SETS of such registers the next
// products run meanwhile; where registers are scarce, H products one by one take a part of the rows each.
DEVICE void sum_fp8(float (&d)[H][R], u8* stages, const float* scales, u64* full, u64* empty, int steps) {
    static_assert(H == 1 || SETS == 1, "a set is for all rows");
    float part[SETS][R], scale[R / 2];
    Ring<STAGES> ring{0, 0};
    int group = GROUPS > 1 ? __shfl_sync(~0u, threadIdx.x / 128, 0) : 0;
    auto multiply = [&](float (&sums)[R], int stage, int h) {
        u8* b = stages + stage * STEP_BYTES;
        u64 of_b = along_k(b + group * 8192), of_a = along_k(b + B_BYTES + h * ROWS * 128);
        keep(sums);
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 4; i++) wgmma<a_t>(sums, of_b + 2 * i, of_a + 2 * i, i);
        wgmma_commit();
    };
    auto read_scales = [&](int stage, int h) {
        if (!BLOCKS) return;
        const float* from = scales + stage * SCALES;
        #pragma unroll
        for (int i = 0; i < R / 2; i += 2) {
            Vec<float, 2> two = load<2>(from + h * ROWS + i * 4 + threadIdx.x % 4 * 2);
            scale[i] = two.v[0] * from[M], scale[i + 1] = two.v[1] * from[M];
        }
    };
    auto add = [&](float (&sums)[R], int h) {
        keep(sums);
        #pragma unroll
        for (int i = 0; i < R; i++) d[h][i] = BLOCKS ? fmaf(sums[i], scale[i / 4 * 2 + i % 2], d[h][i]) : d[h][i] + sums[i];
    };
    // Products are done for the whole warpgroup at once; scales, each warp reads for itself.
    auto release = [&](int stage) {
        if (BLOCKS) __syncwarp();
        if (threadIdx.x % (BLOCKS ? 32 : 128) == 0) barrier_arrive(empty + stage);
    };
    #pragma unroll
    for (int i = 0; i < M / 2; i++) d[i / R][i % R] = 0.0f;
    if constexpr (SETS == 1) {
        for (; steps > 0; steps--, ring.next()) {
            barrier_wait(full + ring.stage, ring.phase);
            #pragma unroll
            for (int h = 0; h < H; h++) {
                multiply(part[0], ring.stage, h);
                wgmma_wait<0>();
                read_scales(ring.stage, h);
                if (h == H - 1) release(ring.stage);
                add(part[0], h);
            }
        }
    } else {
        // The loop and its end apart, so that the compiler sees which products are under way.
        auto turn = [&](float (&now)[R], float (&next)[R]) {
            int stage = ring.stage;
            ring.next();
            read_scales(stage, 0);
            barrier_wait(full + ring.stage, ring.phase);
            multiply(next, ring.stage, 0);
            wgmma_wait<1>();
            release(stage);
            add(now, 0);
        };
        auto last = [&](float (&now)[R]) {
            read_scales(ring.stage, 0);
            wgmma_wait<0>();
            add(now, 0);
        };
        barrier_wait(full, 0);
        multiply(part[0], 0, 0);
        for (; steps > 2; steps -= 2) turn(part[0], part[1]), turn(part[1], part[0]);
        if (steps == 2) turn(part[0], part[1]), last(part[1]);
        else last(part[0]);
    }
}

KERNEL __launch_bounds__(MULTIPLIERS + 32, FP8 ? PER_SM : 0) gemm_skinny(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    __shared__ u64 full[STAGES], empty[STAGES];
    __shared__ float ends[ENDS ? M + COLS : 1];
    u8* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    int part = blockIdx.x % SPLIT, col = blockIdx.x / SPLIT * COLS, all = (int)((a.k + BK * DEEP - 1) / (BK * DEEP));
    int first = all * part / SPLIT, end = all * (part + 1) / SPLIT;
    // One thread sets the barriers up and at once asks for all that the stages hold; the others need the barriers only.
    float d[H][R], *scales = (float*)(stages + STAGES * DEEP * STEP_BYTES);
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
    // The scales of a step; all threads of a warp.
    auto copy_scales = [&](int k, int stage) {
        float* to = scales + stage * SCALES;
        #pragma unroll
        for (int r = lane; r < M; r += 32) copy_float(to + r, &a.a_scale.at(min((i64)r, a.m - 1), k));
        if (lane == 0) copy_float(to + M, &a.b_scale.at(col / SCALE_BLOCK, k));
        floats_arrive(full + stage);
    };
    if (elected(MULTIPLIERS / 32)) {
        for (int i = 0; i < STAGES; i++) barrier_init(full + i, BLOCKS ? 33 : 1), barrier_init(empty + i, BLOCKS ? GROUPS * 4 : GROUPS);
        barrier_fence_init();
        for (int k = first; k < ahead; k++) copy(k, k - first);
    }
    __syncthreads();
    if (threadIdx.x >= MULTIPLIERS) {
        Ring<STAGES> ring{0, 0};
        if constexpr (BLOCKS)
            for (int k = first; k < ahead; k++) copy_scales(k, k - first);
        if constexpr (ENDS) {
            for (int i = lane; i < M + COLS; i += 32) {
                i64 row = min((i64)i, a.m - 1), c = min((i64)(col + i - M), a.n - 1);
                copy_float(ends + i, i < M ? a.a_scale.ptr + (SCALE == SCALE_row ? row : 0) : a.b_scale.ptr + (SCALE == SCALE_row ? c : 0));
            }
        }
        if (BLOCKS || elected()) {
            for (int k = ahead; k < end; k++, ring.next()) {
                barrier_wait(empty + ring.stage, ring.phase);
                if (!BLOCKS || elected()) copy(k, ring.stage);
                if constexpr (BLOCKS) copy_scales(k, ring.stage);
            }
        }
        if (ENDS) floats_wait();
        __syncwarp();
    } else if constexpr (FP8) {
        sum_fp8(d, stages, scales, full, empty, end - first);
    } else {
        Ring<STAGES> ring{0, 0};
        int before = 0;
        u8* mine = stages + warp / 4 * 8192;
        u64 first_b = ACROSS ? across_k(mine, BK * 128) : along_k(mine), first_a = along_k(stages + B_BYTES);
        define(d[0]);
        for (int k = first; k < end; k++, ring.next()) {
            barrier_wait(full + ring.stage, ring.phase);
            wgmma_fence();
            #pragma unroll
            for (int e = 0; e < DEEP; e++) {
                int at = (ring.stage * DEEP + e) * (STEP_BYTES / 16);
                u64 of_b = first_b + at, of_a = first_a + at;
                #pragma unroll
                for (int i = 0; i < 4; i++) wgmma<a_t, ACROSS>(d[0], of_b + (ACROSS ? 128 : 2) * i, of_a + 2 * i, k > first || e || i);
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
            sums[row * LINE + c] = d[i / R][i % R];
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
        for (int e = 0; e < 4; e++) {
            if (ENDS) v[e] *= ends[row] * ends[M + c + e];
            if (BIAS && e < left) v[e] += up(a.bias.ptr[col + c + e]);
        }
        put_run(a.d.row(row) + col + c, (int)(left < 4 ? left : 4), whole, v);
    }
    if (SPLIT > 1) cluster_sync(); // no block leaves while others read its sums
}
