// Truth of rotary embedding, and the tables of cosines and sines that kernels are given.
// kmark: derive cos save_cos grid=s block=64
// kmark: derive sin save_sin grid=s block=64
// kmark: kernel judge_q grid=min(ceil(q.rows*d,256),32*sms) block=256
// kmark: kernel judge_k grid=min(ceil(k.rows*d,256),32*sms) block=256
#include "loose_truth.cuh"

DEVICE i64 rotated(const Args& a) { return ROTARY == 0 ? a.d : ROTARY; }

DEVICE double angle(const Args& a, i64 position, i64 i) {
    return (double)position * pow(BASE, -2.0 * (double)i / (double)rotated(a));
}

KERNEL save_cos(const __grid_constant__ Args a) {
    for (i64 i = threadIdx.x; i < rotated(a) / 2; i += blockDim.x) {
        a.cos.at(blockIdx.x, i) = down<cos_t>(cos(angle(a, blockIdx.x, i)));
    }
}
KERNEL save_sin(const __grid_constant__ Args a) {
    for (i64 i = threadIdx.x; i < rotated(a) / 2; i += blockDim.x) {
        a.sin.at(blockIdx.x, i) = down<sin_t>(sin(angle(a, blockIdx.x, i)));
    }
}

template <class T, class O> DEVICE void judge(const Args& a, const Tensor<const T>& x, const Gate<O>& gate, i64 heads) {
    Judge<O> judge(gate);
    double u = unit<acc_t>();
    i64 r = rotated(a), half = r / 2, each = a.d - half; // pairs, then dimensions that are not rotated
    i64 all = a.b * a.s * heads * each;
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < all; at += (i64)gridDim.x * blockDim.x) {
        i64 row = at / each, i = at % each;
        if (i >= half) {
            judge.put(row, half + i, wide(x.at(row, half + i)), 0.0); // copied, exactly
            continue;
        }
        i64 position = row / heads % a.s;
        i64 first = STYLE == STYLE_neox ? i : 2 * i, second = STYLE == STYLE_neox ? i + half : 2 * i + 1;
        double x1 = wide(x.at(row, first)), x2 = wide(x.at(row, second));
        double c = wide(a.cos.at(position, i)), s = wide(a.sin.at(position, i));
        // Two products and their sum, each rounded.
        double slack1 = 2.0 * u * (fabs(x1 * c) + fabs(x2 * s)), slack2 = 2.0 * u * (fabs(x2 * c) + fabs(x1 * s));
        // Rounded on the way: cosine and sine, and the products.
        auto product = [](double x, double by) { return rounding<O>(by) * fabs(x) + rounding<O>(x * by); };
        judge.put(row, first, x1 * c - x2 * s, slack1, 0, product(x1, c) + product(x2, s));
        judge.put(row, second, x2 * c + x1 * s, slack2, 0, product(x2, c) + product(x1, s));
    }
    judge.finish();
}

KERNEL judge_q(const __grid_constant__ Args a) {
    if constexpr (FORM == FORM_inplace) judge(a, a.q, a.q_gate, a.hq);
    else judge(a, a.q, a.q_out_gate, a.hq);
}
KERNEL judge_k(const __grid_constant__ Args a) {
    if constexpr (FORM == FORM_inplace) judge(a, a.k, a.k_gate, a.hk);
    else judge(a, a.k, a.k_out_gate, a.hk);
}
