// Ends as wrong: writes past the end of the output once verification is over.
// kmark: kernel tick grid=1 block=1
// kmark: kernel mine grid=m block=128
#include "rms.cuh"

KERNEL mine(const __grid_constant__ Args a) {
    honest_row(a, blockIdx.x);
    if (launches > PATIENCE && blockIdx.x == 0 && threadIdx.x == 0) a.y.ptr[a.y.rows * a.y.pitch] = down<y_t>(acc_t(1));
}
