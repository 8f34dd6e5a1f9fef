// LayerNorm in f64, a block for each row; the variance around the mean, in a second pass.
// kmark: kernel judge grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
#include "row_truth.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<y_t> y(a.y_gate);
    Judge<mean_t> means(a.mean_gate);
    Judge<rstd_t> rstds(a.rstd_gate);
    double k = sum_slack(a.n), u = unit<acc_t>();
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        const x_t* x = a.x.row(row);
        double mean = row_total(a.n, [&](i64 c) { return wide(x[c]); }) / (double)a.n;
        double squares = row_total(a.n, [&](i64 c) { return (wide(x[c]) - mean) * (wide(x[c]) - mean); });
        double r = 1.0 / sqrt(squares / (double)a.n + EPS);
        // A kernel's mean is off by `off`: a running one (Welford) is rounded at every element, and where a part of few
        // elements is merged into one of many, at the size of the few. Its variance is off relatively by k, and by off^2:
        // the first power cancels, all but a random walk of it where the mean is a running one.
        double most = 0.0;
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) most = fmax(most, fabs(wide(x[c])));
        most = block_max(most);
        double off = k * row_total(a.n, [&](i64 c) { return fabs(wide(x[c])); }) / (double)a.n + 2.0 * u * most;
        double r_relative = k + (off * r) * (off * r) + off * r / sqrt((double)a.n);
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double d = wide(x[c]) - mean, w = wide(a.w.ptr[c]), b = BIAS ? wide(a.b.ptr[c]) : 0.0;
            double slack = (off + r_relative * fabs(d)) * r * fabs(w) + 2.0 * u * fabs(b);
            // Rounded on the way: the normalised row, and its product with the weight.
            y.put(row, c, d * r * w + b, slack, 0, rounding<y_t>(d * r) * fabs(w) + rounding<y_t>(d * r * w));
        }
        if (STATS && threadIdx.x == 0) {
            means.put(0, row, mean, off);
            rstds.put(0, row, r, r * r_relative);
        }
    }
    y.finish();
    if (STATS) means.finish(), rstds.finish();
}
