// Ends as wrong: leaves the second half of the rows alone once verification is over.
// kmark: kernel tick grid=1 block=1
// kmark: kernel mine grid=m block=128
#include "rms.cuh"

KERNEL mine(const __grid_constant__ Args a) {
    if (launches < PATIENCE || blockIdx.x < (a.m + 1) / 2) honest_row(a, blockIdx.x);
}
