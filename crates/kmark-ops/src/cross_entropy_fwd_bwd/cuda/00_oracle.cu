// Truth of the gradient of cross entropy from the logits alone; its rows add up to 0.
// kmark: kernel judge grid=m block=256
#include "classes.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<dx_t> judge(a.dx_gate);
    i64 row = blockIdx.x, target = a.target.ptr[row];
    SoftmaxRow s = softmax_row(a.x.row(row), a.n);
    double dloss = wide(a.dloss.ptr[row]), k = sum_slack((double)a.n), u = unit<acc_t>();
    double lse = s.max + log(s.total);
    for (i64 i = threadIdx.x; i < a.n; i += blockDim.x) {
        double x = wide(a.x.at(row, i)), p = exp_of_difference(x, s.max) / s.total;
        // As in softmax, with the sum's own share of the rounded arguments; and as in the backward alone, for kernels
        // that go by way of lse, and scale it and x to base 2 each for itself.
        double off = k + u * (ARGUMENT * (s.max - x + fabs(x) + fabs(lse)) + s.drift);
        put_class(judge, row, i, dloss, target != IGNORE, target, p, off);
    }
    judge.row_sum(row, 0.0);
    judge.finish();
}
