// The sum and its RMSNorm in f64, a block for each row.
// kmark: kernel judge grid=min(m,sms*32) block=min(256,ceil(n,32)*32)
#include "row_truth.cuh"

// The outputs: the inputs themselves in place, else y and z.
template <class A> DEVICE const Gate<y_t>& y_gate(const A& a) {
    if constexpr (FORM == FORM_inplace) return a.x_gate;
    else return a.y_gate;
}
template <class A> DEVICE const Gate<z_t>& z_gate(const A& a) {
    if constexpr (FORM == FORM_inplace) return a.residual_gate;
    else return a.z_gate;
}

KERNEL judge(const __grid_constant__ Args a) {
    Judge<y_t> y(y_gate(a));
    Judge<z_t> z(z_gate(a));
    double k = sum_slack(a.n);
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        auto sum = [&](i64 c) { return wide(a.x.at(row, c)) + wide(a.residual.at(row, c)); };
        // What is normalised: the sum as z holds it, or as it was before.
        auto normed = [&](i64 c) { return SUM == SUM_rounded ? rounded<z_t>(sum(c)) : sum(c); };
        double squares = row_total(a.n, [&](i64 c) { return normed(c) * normed(c); });
        double r = 1.0 / sqrt(squares / (double)a.n + EPS);
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double expect = normed(c) * r * wide(a.w.ptr[c]);
            y.put(row, c, expect, k * fabs(expect));
            z.put(row, c, sum(c), 0.0); // one addition and one rounding, nothing else
        }
    }
    y.finish();
    z.finish();
}
