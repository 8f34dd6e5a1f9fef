// What the oracles of cross entropy share, as in truth/mod.rs: a softmax row, and the gradient of its logits.
#pragma once
#include "kmark.cuh"

struct SoftmaxRow {
    double max;
    double total; // sum of exp(x - max)
    double drift; // mean of max - x under p
};

// By the whole block; every thread gets the result.
template <class T> DEVICE SoftmaxRow softmax_row(const T* x, i64 n) {
    double top = -Format<double>::max, total = 0.0, drift = 0.0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) top = fmax(top, wide(x[i]));
    double max = block_max(top);
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
        double below = max - wide(x[i]), e = exp(-below);
        total += e;
        drift += e * below;
    }
    total = block_sum(total);
    return SoftmaxRow{max, total, block_sum(drift) / total};
}

enum { AT_TARGET, NOT_TARGET, AT_IGNORED };

// Element `i` of a row of dx. `p` is its probability, `off` how far a kernel's may be off in relation.
template <class J>
DEVICE void put_class(J& judge, i64 row, i64 i, double dloss, bool counted, i64 target, double p, double off) {
    double u = unit<acc_t>();
    if (!counted) {
        judge.put(row, i, 0.0, 0.0, AT_IGNORED);
    } else if (i == target) {
        judge.put(row, i, dloss * (p - 1.0), fabs(dloss) * (p * off + 2.0 * u), AT_TARGET);
    } else {
        judge.put(row, i, dloss * p, fabs(dloss) * p * off, NOT_TARGET);
    }
}
