// RMSNorm in f64, a block for each row.
// kmark: kernel judge grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
#include "row_truth.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<y_t> y(a.y_gate);
    Judge<rstd_t> rstd(a.rstd_gate);
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        const x_t* x = a.x.row(row);
        double squares = row_total(a.n, [&](i64 c) { return wide(x[c]) * wide(x[c]); });
        double k = sum_slack(row_nonzero(a.n, [&](i64 c) { return wide(x[c]); }));
        double r = 1.0 / sqrt(squares / (double)a.n + EPS);
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double hat = wide(x[c]) * r, w = wide(a.w.ptr[c]), expect = hat * w;
            // Rounded on the way: x * rstd, and rstd itself.
            y.put(row, c, expect, k * fabs(expect), 0, rounding<y_t>(hat) * fabs(w) + rounding<y_t>(expect));
        }
        if (RSTD && threadIdx.x == 0) rstd.put(0, row, r, k * r);
    }
    y.finish();
    if (RSTD) rstd.finish();
}
