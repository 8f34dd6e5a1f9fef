// Copies of runs of bytes by the tensor memory accelerator, without a tensor map.
#pragma once
#include "hopper/barrier.cuh"
#include "hopper/elect.cuh"

// Begins to copy to this block's shared memory; the barrier counts the bytes. Addresses and sizes are multiples of 16.
DEVICE void bulk_load(void* to, const void* from, int bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}
