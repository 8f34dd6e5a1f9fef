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
    for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {
        auto sum = [&](i64 c) { return wide(a.x.at(row, c)) + wide(a.residual.at(row, c)); };
        // What is normalised: the sum as z holds it, or as it was before.
        auto normed = [&](i64 c) { return SUM == SUM_rounded ? rounded<z_t>(sum(c)) : sum(c); };
        double k = sum_slack(row_nonzero(a.n, normed));
        double squares = row_total(a.n, [&](i64 c) { return normed(c) * normed(c); }) + (double)a.n * EPS;
        double r = 1.0 / sqrt(squares / (double)a.n);
        // The mean square, if the sum or the squares are rounded on the way.
        double off = sqrt(row_total(a.n, [&](i64 c) { return rounding2<y_t>(normed(c) * normed(c)); })) / squares;
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            double hat = normed(c) * r, w = wide(a.w.ptr[c]), expect = hat * w;
            double loose = rounding<y_t>(hat) * fabs(w) + rounding<y_t>(expect) + 1.25 * fabs(expect) * off;
            y.put(row, c, expect, k * fabs(expect), 0, loose);
            z.put(row, c, sum(c), 0.0); // one addition and one rounding, nothing else
        }
    }
    y.finish();
    z.finish();
}
