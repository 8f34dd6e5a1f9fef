// What blocks of a cluster send each other without waiting.
#pragma once
#include "hopper/barrier.cuh"

// Writes four floats at the same address in the shared memory of another block, a multiple of 16; its barrier counts the bytes.
DEVICE void send_four_to_block(float* p, const Vec<float, 4>& v, u64* barrier, int block) {
    asm volatile("{\n.reg .b32 to, counter;\nmapa.shared::cluster.u32 to, %0, %6;\nmapa.shared::cluster.u32 counter, %1, %6;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%2, %3, %4, %5}, [counter];\n}"
                 ::"r"(shared_address(p)), "r"(shared_address(barrier)), "f"(v.v[0]), "f"(v.v[1]), "f"(v.v[2]), "f"(v.v[3]), "r"(block)
                 : "memory");
}
