// Values that stay in registers while products that run by themselves fill others.
#pragma once
#include "kmark.cuh"

// The values live in registers here: the compiler may not move what touches them across.
template <int N> DEVICE void keep(float (&v)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(v[i])::"memory");
}
