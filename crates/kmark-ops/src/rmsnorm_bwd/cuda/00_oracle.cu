// Backward of RMSNorm in f64: dx with a block for each row; dw as sums over groups of rows, then over the groups.
// kmark: derive rstd saved grid=ceil(m,32) block=32
// kmark: workspace max(1,min(64,4194304/n))*n*24
// kmark: kernel judge_dx grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
// kmark: kernel sum_groups grid=ceil(n,128),max(1,min(64,4194304/n)) block=128
// kmark: kernel judge_dw grid=ceil(n,128) block=128
#include "column_truth.cuh"

KERNEL saved(const __grid_constant__ Args a) {
    i64 first = (i64)blockIdx.x * 32, row = first + threadIdx.x;
    double squares = sum_in_order(a.x, first, [](double v) { return v * v; });
    if (row < a.m) a.rstd.ptr[row] = down<rstd_t>(1.0 / sqrt(squares / (double)a.n + EPS));
}

KERNEL judge_dx(const __grid_constant__ Args a) {
    Judge<dx_t> dx(a.dx_gate);
    double n = (double)a.n;
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        const x_t* x = a.x.row(row);
        const dout_t* dout = a.dout.row(row);
        double r = wide(a.rstd.ptr[row]);
        auto term = [&](i64 c) { return wide(x[c]) * r * wide(dout[c]) * wide(a.w.ptr[c]); };
        double k = sum_slack(row_nonzero(a.n, [&](i64 c) { return wide(x[c]); }));
        double mean = row_total(a.n, term) / n;
        double size = row_total(a.n, [&](i64 c) { return fabs(term(c)) / n; });
        // Rounded on the way: the mean itself, and g, xh and their product in each of its terms.
        double off2 = row_total(a.n, [&](i64 c) { return rounding2<dx_t>(term(c)); });
        double mean_off = rounding<dx_t>(mean) + SURE * sqrt(3.0 * off2) / n;
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double g = wide(dout[c]) * wide(a.w.ptr[c]), xh = wide(x[c]) * r;
            double rest = g - xh * mean;
            double each = rounding<dx_t>(g) + rounding<dx_t>(rest) + 2.0 * rounding<dx_t>(xh * mean);
            double loose = r * (each + fabs(xh) * mean_off) + rounding<dx_t>(rest * r);
            dx.put(row, c, rest * r, k * (fabs(g) + fabs(xh) * size) * r, 0, loose);
        }
    }
    dx.finish();
}

KERNEL sum_groups(const __grid_constant__ Args a) {
    sum_group<1>(a, [&](i64 row, i64 c, double (&term)[1], double (&loose2)[1]) {
        double dout = wide(a.dout.at(row, c)), xh = wide(a.x.at(row, c)) * wide(a.rstd.ptr[row]);
        term[0] = dout * xh;
        loose2[0] = rounding2<x_t>(xh) * dout * dout + rounding2<x_t>(term[0]);
    });
}

KERNEL judge_dw(const __grid_constant__ Args a) {
    Judge<dw_t> dw(a.dw_gate);
    judge_sums<1>(a, 0, dw, sizeof(x_t) == 2 && sizeof(dw_t) == 2);
    dw.finish();
}
