// Barriers in shared memory (mbarrier): threads arrive, copies bring bytes, and whoever waits goes on when all have come.
// They turn over: phase 0, phase 1, phase 0 … A wait for phase p returns once phase p is complete; on a fresh barrier a wait
// for phase 1 returns at once.
#pragma once
#include "kmark.cuh"

DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

DEVICE void barrier_init(u64* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

// After the inits, by the thread that made them: copies and other blocks of the cluster see them. A cluster_meet follows.
DEVICE void barrier_fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Arrives, and says how many bytes copies will bring in this phase.
DEVICE void barrier_expect(u64* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

DEVICE void barrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives at the same barrier of another block of the cluster. Says nothing of memory that was written before: with
// `.release.cluster` the compiler would flush it to the whole GPU, which costs a quarter of a product's speed.
DEVICE void barrier_arrive_at(u64* barrier, int block) {
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [remote];\n}"
                 ::"r"(shared_address(barrier)), "r"(block) : "memory");
}

DEVICE void barrier_wait(u64* barrier, int phase) {
    asm volatile("{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}"
                 ::"r"(shared_address(barrier)), "r"(phase) : "memory");
}

// What this thread wrote to shared memory is seen by copies and tensor cores. What it asked for there it has: loads may wait behind
// tensor cores, and arriving at a barrier alone does not wait for them, so that a copy could overwrite what they are to read.
DEVICE void fence_for_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A place in a ring of stages: which one is next, and in which phase of its barriers.
template <int STAGES> struct Ring {
    int stage, phase;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

// `threads` threads of a block meet at one of its barriers 1 to 15; 0 is __syncthreads.
DEVICE void named_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// ---- Clusters ------------------------------------------------------------------------------------------------------

DEVICE int cluster_rank() { int rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); return rank; }

// All threads of all blocks of the cluster: who waits goes on when all have arrived.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// Both at once, where blocks have written nothing that others read: barriers were set up, or all is done.
DEVICE void cluster_meet() {
    __syncwarp();
    cluster_arrive();
    cluster_wait();
}

// The same, and what they wrote to shared memory is seen by all. It waits until the whole GPU sees what they wrote anywhere.
DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Four floats at the same address in the shared memory of another block; a multiple of 16.
DEVICE Vec<float, 4> load_from_block(const float* p, int block) {
    Vec<float, 4> v;
    asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}"
                 : "=f"(v.v[0]), "=f"(v.v[1]), "=f"(v.v[2]), "=f"(v.v[3]) : "r"(shared_address(p)), "r"(block) : "memory");
    return v;
}

// ---- Registers -----------------------------------------------------------------------------------------------------

// A warpgroup gives registers away, or takes what others gave; needs __launch_bounds__(threads, 1).
template <int N> DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
