// Ends as wrong: works at the first launches only.
// kmark: kernel tick grid=1 block=1
// kmark: kernel mine grid=m block=128
#include "rms.cuh"

KERNEL mine(const __grid_constant__ Args a) {
    if (launches < PATIENCE) honest_row(a, blockIdx.x);
}
