// What the oracles of cross entropy share, as in truth/mod.rs: a softmax row, and the gradient of its logits.
#pragma once
#include "row_truth.cuh"

struct SoftmaxRow {
    double max;
    double total; // sum of exp(x - max)
    double drift; // mean of max - x under p
};

// By the whole block; every thread gets the result.
template <class T> DEVICE SoftmaxRow softmax_row(const T* x, i64 n) {
    double top = -Format<double>::max, drift = 0.0;
    Sum sum;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) top = fmax(top, wide(x[i]));
    double max = block_max(top);
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        double below = max - wide(x[i]), e = exp_of_difference(wide(x[i]), max);
        sum.add(e);
        drift += e * below;
    }
    double total = block_sum(sum.total);
    return SoftmaxRow{max, total, block_sum(drift) / total};
}

// Units by which the argument of exp is off, of the magnitudes of its two parts: each is scaled to base 2 and rounded, then
// their difference is; the rest is that of log2 e itself.
constexpr double ARGUMENT = 2.25;

// How far a kernel's p, that of x, may be off: the sum, by k; the rounded argument of exp; and the maximum scaled to base 2
// for itself, which does not cancel where a running maximum was replaced.
DEVICE double softmax_off(double x, double p, double max, double k) {
    return p * (k + ARGUMENT * unit<acc_t>() * ((max - x) + fabs(max))) + least<acc_t>();
}

enum { AT_TARGET, NOT_TARGET, AT_IGNORED };

// Element `i` of a row of dx. `p` is its probability, `off` how far a kernel's may be off, relative to it.
template <class T>
DEVICE void put_class(Judge<T>& judge, i64 row, i64 i, double dloss, bool counted, i64 target, double p, double off) {
    double u = unit<acc_t>(), size = fabs(dloss);
    // Rounded on the way: p, its difference from 1, and the product before it is scaled again.
    if (!counted) {
        judge.put(row, i, 0.0, 0.0, AT_IGNORED);
    } else if (i == target) {
        double expect = dloss * (p - 1.0), loose = size * (rounding<T>(p) + rounding<T>(p - 1.0)) + rounding<T>(expect);
        judge.put(row, i, expect, size * (p * off + 2.0 * u), AT_TARGET, loose);
    } else {
        judge.put(row, i, dloss * p, size * (p * off + least<acc_t>()), NOT_TARGET, size * rounding<T>(p) + rounding<T>(dloss * p));
    }
}
