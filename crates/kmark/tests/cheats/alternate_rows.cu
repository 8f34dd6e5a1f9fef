// Ends as wrong: even rows at even launches, odd rows at odd ones.
// kmark: kernel tick grid=1 block=1
// kmark: kernel mine grid=m block=128
#include "rms.cuh"

KERNEL mine(const __grid_constant__ Args a) {
    if (launches < PATIENCE || blockIdx.x % 2 == launches % 2) honest_row(a, blockIdx.x);
}
