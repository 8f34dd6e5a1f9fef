// Softmax and its backward in f64, a block for each row. Rows of dx add up to 0.
// kmark: kernel judge grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
#include "classes.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<dx_t> dx(a.dx_gate);
    double k = sum_slack(a.n);
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        const x_t* x = a.x.row(row);
        const dy_t* dy = a.dy.row(row);
        double max = wide(x[0]);
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) max = fmax(max, wide(x[c]));
        max = block_all<Max>(max, max);
        double total = row_total(a.n, [&](i64 c) { return exp_of_difference(wide(x[c]), max); });
        auto weight = [&](i64 c) { return exp_of_difference(wide(x[c]), max) / total; };
        auto off = [&](i64 c, double p) { return softmax_off(wide(x[c]), p, max, k); };
        double dot = row_total(a.n, [&](i64 c) { return weight(c) * wide(dy[c]); });
        double size = row_total(a.n, [&](i64 c) { return weight(c) * fabs(wide(dy[c])); });
        double dot_off = row_total(a.n, [&](i64 c) { return off(c, weight(c)) * fabs(wide(dy[c])); });
        // As in the backward alone, and y is rounded as well.
        double off2 = row_total(a.n, [&](i64 c) { return rounding2<dx_t>(weight(c) * wide(dy[c])); });
        double y_off2 = row_total(a.n, [&](i64 c) { return rounding2<dx_t>(weight(c)) * wide(dy[c]) * wide(dy[c]); });
        double rounded_dot = loose_dot<dx_t>(dot, off2, a.n) + SURE * sqrt(y_off2);
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double p = weight(c), d = wide(dy[c]);
            double loose = rounding<dx_t>(p * d) + p * (rounded_dot + rounding<dx_t>(d - dot));
            loose += rounding<dx_t>(p) * fabs(d - dot);
            dx.put(row, c, p * (d - dot), off(c, p) * (fabs(d) + size) + p * dot_off, 0, loose);
        }
        dx.row_sum(row, 0.0);
    }
    dx.finish();
}
