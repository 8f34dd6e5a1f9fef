// Ends as wrong: by the clock, works in the first 5 ms only.
// kmark: kernel watch grid=1 block=1
// kmark: kernel mine grid=m block=128
#include "rms.cuh"

__device__ u64 first = 1, now = 1;
KERNEL watch(const __grid_constant__ Args a) {
    now = global_ns();
    if (first == 1) first = now;
}

KERNEL mine(const __grid_constant__ Args a) {
    if (now - first < 5000000ull) honest_row(a, blockIdx.x);
}
