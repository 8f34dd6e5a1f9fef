// Backward of RMSNorm in f64: dx with a block for each row; dw as sums over groups of rows, then over the groups.
// kmark: derive rstd saved grid=ceil(m,32) block=32
// kmark: workspace max(1,min(64,4194304/n))*n*16
// kmark: kernel judge_dx grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
// kmark: kernel sum_groups grid=ceil(n,128),max(1,min(64,4194304/n)) block=128
// kmark: kernel judge_dw grid=ceil(n,128) block=128
#include "column_truth.cuh"
#include "row_truth.cuh"

KERNEL saved(const __grid_constant__ Args a) {
    i64 first = (i64)blockIdx.x * 32, row = first + threadIdx.x;
    double squares = sum_in_order(a.x, first, [](double v) { return v * v; });
    if (row < a.m) a.rstd.ptr[row] = down<rstd_t>(1.0 / sqrt(squares / (double)a.n + EPS));
}

KERNEL judge_dx(const __grid_constant__ Args a) {
    Judge<dx_t> dx(a.dx_gate);
    double k = sum_slack(a.n), n = (double)a.n;
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        const x_t* x = a.x.row(row);
        const dout_t* dout = a.dout.row(row);
        double r = wide(a.rstd.ptr[row]);
        auto term = [&](i64 c) { return wide(x[c]) * r * wide(dout[c]) * wide(a.w.ptr[c]); };
        double mean = row_total(a.n, [&](i64 c) { return term(c) / n; });
        double size = row_total(a.n, [&](i64 c) { return fabs(term(c)) / n; });
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double g = wide(dout[c]) * wide(a.w.ptr[c]), xh = wide(x[c]) * r;
            dx.put(row, c, (g - xh * mean) * r, k * (fabs(g) + fabs(xh) * size) * r);
        }
    }
    dx.finish();
}

KERNEL sum_groups(const __grid_constant__ Args a) {
    sum_group<1>(a, [&](i64 row, i64 c, double (&term)[1]) {
        term[0] = wide(a.dout.at(row, c)) * wide(a.x.at(row, c)) * wide(a.rstd.ptr[row]);
    });
}

KERNEL judge_dw(const __grid_constant__ Args a) {
    Judge<dw_t> dw(a.dw_gate);
    judge_sums<1>(a, 0, dw);
    dw.finish();
}
