// A product on Hopper's tensor cores: one thread copies tiles of a and b into a ring of stages, two warpgroups multiply.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16 layout=nt
// kmark: let BM = 128
// kmark: let BN = 256
// kmark: let BK = 64
// kmark: let STAGES = 4
// kmark: map a = a box=BK,BM swizzle=128
// kmark: map b = b box=BK,BN swizzle=128
// kmark: kernel gemm_wgmma grid=ceil(m,BM)*ceil(n,BN) block=384 shared=STAGES*(BM+BN)*BK*2+1024
#include "hopper/keep.cuh"
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"

constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;

KERNEL __launch_bounds__(384, 1) gemm_wgmma(const __grid_constant__ Args args, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    __shared__ u64 full[STAGES], empty[STAGES];
    // 128-byte swizzling repeats every 1024 bytes, so the stages begin at a multiple of that.
    u8* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;

    // Neighbouring blocks take eight tiles below each other, then the next column: what they share stays in the L2 cache.
    int rows = (int)((args.m + BM - 1) / BM), cols = (int)((args.n + BN - 1) / BN), steps = (int)((args.k + BK - 1) / BK);
    int band = blockIdx.x / (8 * cols), height = min(8, rows - band * 8), rest = blockIdx.x - band * 8 * cols;
    int row = (band * 8 + rest % height) * BM, col = rest / height * BN;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i, 1);  // the producer arrives, and the bytes it announces
            barrier_init(empty + i, 2); // one thread of each warpgroup
        }
        barrier_fence_init();
    }
    __syncthreads();

    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // the compiler sees that it is the same in a whole warp
    if (group == 0) {
        fewer_registers<40>();
        if (elected(0)) { // one thread of the first warp
            Ring<STAGES> ring{0, 1}; // phase 1 of a fresh barrier counts as complete: all stages are free
            for (int k = 0; k < steps; k++, ring.next()) {
                u8* a = stages + ring.stage * (A_BYTES + B_BYTES);
                barrier_wait(empty + ring.stage, ring.phase);
                barrier_expect(full + ring.stage, A_BYTES + B_BYTES);
                tma_load(a, maps.a, full + ring.stage, k * BK, row);
                tma_load(a + A_BYTES, maps.b, full + ring.stage, k * BK, col);
            }
        }
    } else {
        more_registers<232>();
        float d[BN / 2]; // this warpgroup's 64 rows by 256 columns, shared by its 128 threads
        define(d);
        Ring<STAGES> ring{0, 0};
        int before = 0;
        for (int k = 0; k < steps; k++, ring.next()) {
            u8* a = stages + ring.stage * (A_BYTES + B_BYTES);
            u64 of_a = along_k(a + (group - 1) * 64 * 128), of_b = along_k(a + A_BYTES);
            barrier_wait(full + ring.stage, ring.phase);
            wgmma_fence();
            #pragma unroll
            for (int i = 0; i < 4; i++) wgmma<a_t>(d, of_a + 2 * i, of_b + 2 * i, k || i); // 32 bytes of k each
            wgmma_commit();
            wgmma_wait<1>(); // the products of the step before are done, these still run
            if (k > 0 && threadIdx.x % 128 == 0) barrier_arrive(empty + before);
            before = ring.stage;
        }
        wgmma_wait<0>();
        // A thread has two neighbouring columns of every eight, in two rows that are eight apart.
        int lane = threadIdx.x % 32, first = row + (group - 1) * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        bool whole = args.d.aligned(2 * sizeof(d_t));
        #pragma unroll
        for (int i = 0; i < BN / 2; i += 2) {
            int r = first + i / 2 % 2 * 8, c = col + i / 4 * 8 + lane % 4 * 2;
            float x = d[i], y = d[i + 1];
            if (r >= args.m) continue;
            if (BIAS && c < args.n) x += up(args.bias.ptr[c]);
            if (BIAS && c + 1 < args.n) y += up(args.bias.ptr[c + 1]);
            if (whole && c + 1 < args.n) store<2>(&args.d.at(r, c), Vec<d_t, 2>{{down<d_t>(x), down<d_t>(y)}});
            else {
                if (c < args.n) args.d.at(r, c) = down<d_t>(x);
                if (c + 1 < args.n) args.d.at(r, c + 1) = down<d_t>(y);
            }
        }
    }
}
