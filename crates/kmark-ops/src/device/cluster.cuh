// Blocks of a cluster and what they tell each other, from Hopper on. Elsewhere a cluster is one block, and none of this
// is compiled into anything.
#pragma once
#include "kmark.cuh"

#ifndef KMARK_EMULATE
#include "hopper/barrier.cuh"

// Writes at the same address in the shared memory of another block, whose barrier counts the bytes.
template <class A> DEVICE void send_to_block(A* p, A v, u64* barrier, int block) {
    u32 to, counter;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(p)), "r"(block));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counter) : "r"(shared_address(barrier)), "r"(block));
    if constexpr (sizeof(A) == 4)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                     ::"r"(to), "r"(__float_as_uint(v)), "r"(counter) : "memory");
    else
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
                     ::"r"(to), "l"(__double_as_longlong(v)), "r"(counter) : "memory");
}
#else
DEVICE int cluster_rank() { return 0; }
DEVICE void cluster_arrive() {}
DEVICE void cluster_wait() {}
DEVICE void barrier_init(u64*, int) {}
DEVICE void barrier_fence_init() {}
DEVICE void barrier_expect(u64*, int) {}
DEVICE void barrier_wait(u64*, int) {}
template <class A> DEVICE void send_to_block(A* p, A v, u64*, int) { *p = v; }
#endif
