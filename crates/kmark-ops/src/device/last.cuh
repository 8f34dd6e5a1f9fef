// Blocks that put together what each of them has.
#pragma once
#include "kmark.cuh"

// The whole block, when it has written its part: whether all others of `all` had written theirs. The counter is zero before, and the
// last one leaves it so.
DEVICE bool last_of(u32* counter, u32 all) {
    __shared__ int is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(counter, 1u) == all - 1;
        if (is_last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}
