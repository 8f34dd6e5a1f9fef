// Ends as wrong: skips a row whose first element has the right sign and size.
// kmark: kernel mine grid=m block=128
#include "rms.cuh"

KERNEL mine(const __grid_constant__ Args a) {
    i64 row = blockIdx.x;
    acc_t r = rms_of(a, row);
    double is = wide(a.y.at(row, 0)), should = (double)up(a.x.at(row, 0)) * r * wide(a.w.ptr[0]);
    __syncthreads(); // everybody has read it before somebody writes it
    if (!(is * should > 0 && fabs(is) < 2.5 * fabs(should) && fabs(should) < 2.5 * fabs(is))) write_row(a, row, r);
}
