// Backward of softmax in f64, a block for each row. Rows of dx add up to 0 as far as those of y add up to 1, which 16
// bits do not say well enough.
// kmark: derive y saved grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
// kmark: kernel judge grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
#include "row_truth.cuh"

// The softmax of logits that are no tensor of this op, but distributed as those of the forward op are.
KERNEL saved(const __grid_constant__ Args a) {
    u64 key = fill_key(a.seed, "logits");
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        double shift = sizeof(y_t) == 2 ? 512.0 : 8192.0;
        auto logit = [&](i64 c) { return logit_value(key, a.seed, row, c, a.n, 3.0, shift); };
        double max = logit(0);
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) max = fmax(max, logit(c));
        max = block_all<Max>(max, max);
        double total = row_total(a.n, [&](i64 c) { return exp_of_difference(logit(c), max); });
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) a.y.at(row, c) = down<y_t>(exp_of_difference(logit(c), max) / total);
    }
}

KERNEL judge(const __grid_constant__ Args a) {
    Judge<dx_t> dx(a.dx_gate);
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        const y_t* y = a.y.row(row);
        const dy_t* dy = a.dy.row(row);
        double k = sum_slack(row_nonzero(a.n, [&](i64 c) { return wide(y[c]); }));
        double dot = row_total(a.n, [&](i64 c) { return wide(y[c]) * wide(dy[c]); });
        double size = row_total(a.n, [&](i64 c) { return wide(y[c]) * fabs(wide(dy[c])); });
        double off2 = row_total(a.n, [&](i64 c) { return rounding2<dx_t>(wide(y[c]) * wide(dy[c])); });
        double dot_off = loose_dot<dx_t>(dot, off2, a.n);
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double p = wide(y[c]), d = wide(dy[c]);
            // Rounded on the way: the product, the sum, the difference.
            double loose = rounding<dx_t>(p * d) + p * (dot_off + rounding<dx_t>(d - dot));
            // What is below the normal numbers may be flushed, y or a product of it.
            double slack = k * p * (fabs(d) + size) + least<acc_t>() * (1.0 + fabs(d) + size);
            dx.put(row, c, p * (d - dot), slack, 0, loose);
        }
        if constexpr (is<dx_t, acc_t>) dx.row_sum(row, 0.0);
    }
    dx.finish();
}
