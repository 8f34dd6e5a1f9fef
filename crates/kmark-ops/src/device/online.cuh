// Maximum and sum of exponentials of a row in one pass (Milakov and Gimelshein 2018): each thread keeps its own, and
// scales its sum when its maximum grows.
#pragma once
#include "fast_exp.cuh"
#include "spans.cuh"

// Stands for no element: its exponential is 0.
template <class T> DEVICE T nothing() { return down<T>((acc_t)double_of(0xfff0000000000000ull)); }

struct Online {
    acc_t max = acc_t(-1e30); // finite, so that no difference of infinities arises
    acc_t sum = 0;

    template <class T, int V, int U> __device__ __forceinline__ void add(Pack<T, V> (&x)[U]) {
        acc_t top = max;
#pragma unroll
        for (int k = 0; k < U; k++) {
            Vec<T, V> v = unpack(x[k]);
#pragma unroll
            for (int j = 0; j < V; j++) top = larger(top, up(v.v[j]));
            forget(x[k].w);
        }
        acc_t part[U], at = scaled(top);
#pragma unroll
        for (int k = 0; k < U; k++) {
            Vec<T, V> v = unpack(x[k]);
            part[k] = 0;
#pragma unroll
            for (int j = 0; j < V; j++) part[k] += exp_less(up(v.v[j]), at);
        }
        sum *= exp_down(max - top);
        max = top;
#pragma unroll
        for (int k = 0; k < U; k++) sum += part[k];
    }

    // Over the 32 lanes of a warp: every one gets those of all.
    __device__ __forceinline__ void join_warp() {
        acc_t top = max;
        for (int step = 16; step > 0; step /= 2) top = larger(top, __shfl_xor_sync(0xffffffffu, top, step));
        sum = warp_all<Add>(sum * exp_down(max - top));
        max = top;
    }
    // Over the block, once in a kernel: every thread gets those of the whole row.
    __device__ __forceinline__ void join() {
        __shared__ acc_t maxima[32], sums[32];
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
        join_warp();
        if (warps == 1) return;
        if (lane == 0) maxima[warp] = max, sums[warp] = sum;
        __syncthreads();
        max = lane < warps ? maxima[lane] : acc_t(-1e30);
        sum = lane < warps ? sums[lane] : acc_t(0);
        join_warp();
    }
};
