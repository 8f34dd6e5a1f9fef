// Copies into shared memory that a thread begins and a barrier hears of, where a box would be too small to be worth one.
#pragma once
#include "hopper/barrier.cuh"

// Copies 4 or 16 bytes to shared memory while the thread goes on, and lets it arrive when all copies that it began are done. Such
// an arrival is one of those that the barrier was made for.
template <int BYTES> DEVICE void copy_later(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES) : "memory");
}
DEVICE void arrive_when_copied(u64* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
