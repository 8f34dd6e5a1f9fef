// Truth of the streams: a block for each 65536 elements, which is what a sum of kind `read` is over.
// kmark: kernel judge grid=ceil(n,65536) block=256
#include "row_truth.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<y_t> y(a.y_gate);
    Judge<sums_t> sums(a.sums_gate);
    i64 start = blockIdx.x * 65536ll, end = min(start + 65536ll, a.n);
    double u = unit<acc_t>(), size = 0.0;
    Sum sum;
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
        if constexpr (KIND == KIND_copy) {
            y.put(0, i, wide(a.x.ptr[i]), 0.0);
        } else if constexpr (KIND == KIND_write) {
            y.put(0, i, wide(a.s.ptr[0]), 0.0);
        } else if constexpr (KIND == KIND_read) {
            sum.add(wide(a.x.ptr[i]));
            size += fabs(wide(a.x.ptr[i]));
        } else {
            double s = wide(a.s.ptr[0]), b = wide(a.b.ptr[i]), triad = wide(a.a.ptr[i]) + s * b;
            // The product is rounded unless it is fused, then the sum.
            y.put(0, i, triad, u * (fabs(s * b) + fabs(triad)));
        }
    }
    if constexpr (KIND == KIND_read) {
        double total = block_sum(sum.total);
        size = block_sum(size);
        if (threadIdx.x == 0) sums.put(0, blockIdx.x, total, size * sum_slack((double)(end - start)));
        sums.finish();
    } else {
        y.finish();
    }
}
