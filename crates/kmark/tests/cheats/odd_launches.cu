// Ends as wrong: does nothing at odd launches.
// kmark: kernel tick grid=1 block=1
// kmark: kernel mine grid=m block=128
#include "rms.cuh"

KERNEL mine(const __grid_constant__ Args a) {
    if (launches < PATIENCE || launches % 2 == 0) honest_row(a, blockIdx.x);
}
