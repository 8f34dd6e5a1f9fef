// Maximum and sum of a row that lies in the registers of several blocks, a cluster: one exchange for all its warps.
#pragma once
#include "hopper/barrier.cuh"
#include "online.cuh"

// Two floats to the same address in the shared memory of another block, a multiple of 8; the barrier there counts their bytes.
DEVICE void send_to_block(float* p, u64* barrier, int block, float a, float b) {
    asm volatile("{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %2;\nmapa.shared::cluster.u32 counter, %1, %2;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [counter];\n}"
                 ::"r"(shared_address(p)), "r"(shared_address(barrier)), "r"(block), "f"(a), "f"(b) : "memory");
}

// Over the `blocks` blocks of `team` threads of a cluster. Each warp sends its own maximum and sum to all blocks, and each
// block waits until all have come: no block has to stay for others.
template <int team, int blocks> struct ClusterJoin {
    static constexpr int warps = team / 32, count = warps * blocks;
    float (*pairs)[2];
    u64* barrier;

    // At the start of the kernel, once.
    __device__ __forceinline__ ClusterJoin() {
        __shared__ __align__(8) float all_pairs[count][2];
        __shared__ u64 arrived;
        pairs = all_pairs, barrier = &arrived;
        if (threadIdx.x == 0) {
            barrier_init(barrier, 1);
            barrier_fence_init();
            barrier_expect(barrier, count * 8);
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }
    // Every thread gets the maximum and the sum of the row.
    __device__ __forceinline__ void join(Online& mine) const {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        mine.join_lanes<32>();
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); // all blocks have their barrier
        if (lane < blocks) send_to_block(pairs[cluster_rank() * warps + warp], barrier, lane, mine.max, mine.sum);
        barrier_wait(barrier, 0);
        mine = Online();
#pragma unroll
        for (int from = 0; from < count; from += 32) {
            if (from + lane < count) mine.add(Online{pairs[from + lane][0], pairs[from + lane][1]});
        }
        __syncwarp();
        mine.join_lanes<32>();
    }
};
