// Copies of boxes of tensors with four dimensions, as `tma.cuh` has them for two.
#pragma once
#include "hopper/tma.cuh"

DEVICE void tma_load(void* to, const TensorMap& map, u64* barrier, int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

DEVICE void tma_store(const TensorMap& map, const void* from, int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
                 ::"l"(&map), "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

// Arrives at one of the block's barriers 1 to 15 without waiting; others wait there with `named_barrier`.
DEVICE void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
