// Teams of threads that share a row, of a warp, a block or a cluster: sums and maxima over them.
#pragma once
#include "cluster.cuh"

DEVICE constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
DEVICE constexpr int up_to_pow2(i64 n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

// `per` threads share a row: a power of two up to 32, or whole warps, of one block or of all `blocks` of a cluster. A
// block of `threads` has as many rows at a time as fit; threads that are left over only wait at barriers.
template <int team, int block, int cluster = 1> struct Team {
    static constexpr int here = team, threads = block, blocks = cluster, per = here * blocks, rows = block / here;

    DEVICE int index() { return rows > 1 || here < threads ? threadIdx.x / here : 0; }
    DEVICE int lane() {
        int lane = rows > 1 || here < threads ? threadIdx.x % here : threadIdx.x;
        if constexpr (blocks > 1) lane += cluster_rank() * here;
        return lane;
    }
};

template <class By, int lanes, int count, class A> DEVICE void lanes_all(A (&v)[count]) {
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2)
#pragma unroll
        for (int i = 0; i < count; i++) v[i] = By::of(v[i], __shfl_xor_sync(0xffffffffu, v[i], step));
}

// One barrier in shared memory for each slot, at which a cluster waits for what its blocks send.
DEVICE u64* slot_barriers() {
    __shared__ u64 barriers[2];
    return barriers;
}
// At the start of a kernel whose teams are clusters.
DEVICE void cluster_begin() {
    if (threadIdx.x == 0) {
        barrier_init(slot_barriers(), 1), barrier_init(slot_barriers() + 1, 1);
        barrier_fence_init();
    }
    __syncwarp();
    cluster_arrive();
}

// Calls of team_exchange must alternate between slot 0 and slot 1: then one barrier is enough, as nobody overwrites
// what a slower thread reads. A cluster has one row, for which slot 0 is first, and each slot is used once.
//
// What the warps of a team know, `count` values each, is handed to all of them. Each thread gets those of some warps:
// merge(values) is called for each, and what the lanes of a warp then have is all there is.
template <class T, int count, class A, class F> DEVICE void team_exchange(const A (&v)[count], int slot, F merge) {
    constexpr int warps = T::here / 32, parts = warps * T::blocks;
    __shared__ __align__(8) A known[2][count][T::blocks > 1 ? parts : 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if constexpr (T::blocks > 1) {
        u64* barrier = slot_barriers() + slot;
        if (threadIdx.x == 0) barrier_expect(barrier, parts * count * (int)sizeof(A));
        if (slot == 0) cluster_wait(); // all blocks have their barriers
        if (lane < T::blocks) {
#pragma unroll
            for (int i = 0; i < count; i++)
                send_to_block(&known[slot][i][cluster_rank() * warps + warp], v[i], barrier, lane);
        }
        barrier_wait(barrier, 0);
#pragma unroll
        for (int from = 0; from < parts; from += 32) {
            A of[count];
            if (parts % 32 == 0 || from + lane < parts) {
#pragma unroll
                for (int i = 0; i < count; i++) of[i] = known[slot][i][from + lane];
                merge(of);
            }
        }
    } else {
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < count; i++) known[slot][i][warp] = v[i];
        }
        __syncthreads();
        int from = lane % up_to_pow2(warps);
        if (from < warps) {
            A of[count];
#pragma unroll
            for (int i = 0; i < count; i++) of[i] = known[slot][i][(T::index() * warps + from) % 32];
            merge(of);
        }
    }
}
// Lanes that hold different parts after an exchange.
template <class T> constexpr int exchanged = T::blocks > 1 ? 32 : up_to_pow2(T::here / 32);
template <class T> constexpr bool exchanges = T::here > 32 || T::blocks > 1;

// Each of `count` values over the team, by sum or maximum; all its threads get the results.
template <class By, class T, int count, class A> DEVICE void team_all(A (&v)[count], A zero, int slot) {
    lanes_all<By, (T::here < 32 ? T::here : 32)>(v);
    if constexpr (exchanges<T>) {
        A all[count];
#pragma unroll
        for (int i = 0; i < count; i++) all[i] = zero;
        team_exchange<T>(v, slot, [&](const A (&of)[count]) {
#pragma unroll
            for (int i = 0; i < count; i++) all[i] = By::of(all[i], of[i]);
        });
        lanes_all<By, exchanged<T>>(all);
#pragma unroll
        for (int i = 0; i < count; i++) v[i] = all[i];
    }
}
template <class T, class A> DEVICE A team_sum(A v, int slot) {
    A one[1] = {v};
    team_all<Add, T>(one, A(0), slot);
    return one[0];
}
