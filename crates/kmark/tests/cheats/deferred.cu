// Ends as wrong: a launch does the sums that the next one uses.
// kmark: kernel tick grid=1 block=1
// kmark: kernel mine grid=m block=128
// kmark: workspace m*8
#include "rms.cuh"

KERNEL mine(const __grid_constant__ Args a) {
    acc_t* kept = (acc_t*)a.workspace;
    acc_t now = rms_of(a, blockIdx.x), then = launches == 2 ? now : kept[blockIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) kept[blockIdx.x] = now;
    write_row(a, blockIdx.x, then);
}
