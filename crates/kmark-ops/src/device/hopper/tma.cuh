// Copies of boxes between a tensor and shared memory by the tensor memory accelerator. One thread asks, the hardware
// copies; what lies outside the tensor is read as zero and is not written. Coordinates count elements, innermost first.
#pragma once
#include "hopper/barrier.cuh"
#include "hopper/elect.cuh"

// Early, once per map: its 128 bytes are fetched before the first copy needs them.
DEVICE void tma_prefetch(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

// Into this block's shared memory; brings the bytes of a whole box to `barrier`.
DEVICE void tma_load(void* to, const TensorMap& map, u64* barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y) : "memory");
}

// Into the same place of every block of the cluster whose bit is set, and to the same barrier of each.
DEVICE void tma_load_to_all(void* to, const TensorMap& map, u64* barrier, int x, int y, u16 blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
                 ::"r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(blocks) : "memory");
}

// From shared memory. Threads that wrote it have passed `fence_for_copies`, and a barrier, before.
DEVICE void tma_store(const TensorMap& map, const void* from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(&map), "r"(shared_address(from)), "r"(x), "r"(y) : "memory");
}

DEVICE void tma_store(const TensorMap& map, const void* from, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
                 ::"l"(&map), "r"(shared_address(from)), "r"(x), "r"(y), "r"(z) : "memory");
}

// What this thread stored since the last call is one group; later it waits until at most N groups still read.
DEVICE void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> DEVICE void tma_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
template <int N> DEVICE void tma_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
