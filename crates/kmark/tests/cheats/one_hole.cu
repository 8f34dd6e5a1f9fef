// Ends as wrong: one element in the middle is not written once verification is over.
// kmark: kernel tick grid=1 block=1
// kmark: kernel mine grid=m block=128
#include "rms.cuh"

KERNEL mine(const __grid_constant__ Args a) {
    y_t before = a.y.at(a.m / 2, a.n / 2);
    __syncthreads();
    honest_row(a, blockIdx.x);
    __syncthreads();
    if (launches > PATIENCE && blockIdx.x == a.m / 2 && threadIdx.x == 0) a.y.at(a.m / 2, a.n / 2) = before;
}
