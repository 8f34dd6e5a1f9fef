// Softmax in f64, a block for each row. Rows add up to 1.
// kmark: kernel judge grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
#include "classes.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<y_t> y(a.y_gate);
    double k = sum_slack(a.n);
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        const x_t* x = a.x.row(row);
        double max = wide(x[0]);
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) max = fmax(max, wide(x[c]));
        max = block_all<Max>(max, max);
        double total = row_total(a.n, [&](i64 c) { return exp_of_difference(wide(x[c]), max); });
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double p = exp_of_difference(wide(x[c]), max) / total;
            y.put(row, c, p, softmax_off(wide(x[c]), p, max, k));
        }
        y.row_sum(row, 1.0);
    }
    y.finish();
}
