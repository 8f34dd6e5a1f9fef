// Values that stay in registers while products that run by themselves fill others.
#pragma once
#include "kmark.cuh"

// The values live in registers here: the compiler may not move what touches them across.
template <int N> DEVICE void keep(float (&v)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(v[i])::"memory");
}

// Sums that products will begin anew. Compilers before CUDA 12.9 serialise these products if the sums are not defined before.
template <int N> DEVICE void define(float (&v)[N]) {
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1209
    #pragma unroll
    for (int i = 0; i < N; i++) v[i] = 0.0f;
    keep(v);
#endif
}
