// Backward of LayerNorm in f64: dx with a block for each row; dw and dbias as sums over groups of rows, then over the
// groups.
// kmark: derive mean saved_mean grid=ceil(m,32) block=32
// kmark: derive rstd saved_rstd grid=ceil(m,32) block=32
// kmark: workspace max(1,min(64,4194304/n))*n*48
// kmark: kernel judge_dx grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
// kmark: kernel sum_groups grid=ceil(n,128),max(1,min(64,4194304/n)) block=128
// kmark: kernel judge_dw grid=ceil(n,128) block=128
#include "column_truth.cuh"

KERNEL saved_mean(const __grid_constant__ Args a) {
    i64 first = (i64)blockIdx.x * 32, row = first + threadIdx.x;
    double sum = sum_in_order(a.x, first, [](double v) { return v; });
    if (row < a.m) a.mean.ptr[row] = down<mean_t>(sum / (double)a.n);
}

// From the mean before it was rounded.
KERNEL saved_rstd(const __grid_constant__ Args a) {
    i64 first = (i64)blockIdx.x * 32, row = first + threadIdx.x;
    double mean = sum_in_order(a.x, first, [](double v) { return v; }) / (double)a.n;
    double squares = sum_in_order(a.x, first, [&](double v) { return (v - mean) * (v - mean); });
    if (row < a.m) a.rstd.ptr[row] = down<rstd_t>(1.0 / sqrt(squares / (double)a.n + EPS));
}

KERNEL judge_dx(const __grid_constant__ Args a) {
    Judge<dx_t> dx(a.dx_gate);
    double k = sum_slack(a.n), n = (double)a.n;
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        const x_t* x = a.x.row(row);
        const dout_t* dout = a.dout.row(row);
        double r = wide(a.rstd.ptr[row]), mean = wide(a.mean.ptr[row]);
        auto hat = [&](i64 c) { return (wide(x[c]) - mean) * r; };
        auto g = [&](i64 c) { return wide(dout[c]) * wide(a.w.ptr[c]); };
        // Means of g and of xh * g, and of their magnitudes.
        double g_mean = row_total(a.n, g) / n;
        double g_size = row_total(a.n, [&](i64 c) { return fabs(g(c)) / n; });
        double dot_mean = row_total(a.n, [&](i64 c) { return g(c) * hat(c); }) / n;
        double dot_size = row_total(a.n, [&](i64 c) { return fabs(g(c) * hat(c)) / n; });
        // Rounded on the way: the means themselves, and g, xh and their product in each of the terms.
        double g_off2 = row_total(a.n, [&](i64 c) { return rounding2<dx_t>(g(c)); });
        double dot_off2 = row_total(a.n, [&](i64 c) { return rounding2<dx_t>(g(c) * hat(c)); });
        double g_mean_off = rounding<dx_t>(g_mean) + SURE * sqrt(g_off2) / n;
        double dot_mean_off = rounding<dx_t>(dot_mean) + SURE * sqrt(3.0 * dot_off2) / n;
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double xh = hat(c), rest = g(c) - g_mean - xh * dot_mean;
            double differences = rounding<dx_t>(g(c)) + rounding<dx_t>(g(c) - g_mean) + rounding<dx_t>(rest);
            double means = 2.0 * rounding<dx_t>(xh * dot_mean) + fabs(xh) * dot_mean_off + g_mean_off;
            double loose = r * (differences + means) + rounding<dx_t>(rest * r);
            dx.put(row, c, rest * r, k * (fabs(g(c)) + g_size + fabs(xh) * dot_size) * r, 0, loose);
        }
    }
    dx.finish();
}

KERNEL sum_groups(const __grid_constant__ Args a) {
    sum_group<2>(a, [&](i64 row, i64 c, double (&term)[2], double (&loose2)[2]) {
        double dout = wide(a.dout.at(row, c));
        double xh = (wide(a.x.at(row, c)) - wide(a.mean.ptr[row])) * wide(a.rstd.ptr[row]);
        term[0] = dout * xh;
        term[1] = dout;
        loose2[0] = rounding2<x_t>(xh) * dout * dout + rounding2<x_t>(term[0]);
        loose2[1] = 0.0;
    });
}

KERNEL judge_dw(const __grid_constant__ Args a) {
    Judge<dw_t> dw(a.dw_gate);
    judge_sums<2>(a, 0, dw, sizeof(x_t) == 2 && sizeof(dw_t) == 2);
    dw.finish();
    if (BIAS) {
        Judge<dbias_t> dbias(a.dbias_gate);
        judge_sums<2>(a, 1, dbias, false);
        dbias.finish();
    }
}
