// Truth of the gradient of cross entropy from the logits alone; its rows add up to 0.
// kmark: kernel judge grid=m block=256
#include "classes.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<dx_t> judge(a.dx_gate);
    i64 row = blockIdx.x, target = a.target.ptr[row];
    SoftmaxRow s = softmax_row(a.x.row(row), a.n);
    double dloss = wide(a.dloss.ptr[row]), k = sum_slack((double)a.n), u = unit<acc_t>();
    for (i64 i = threadIdx.x; i < a.n; i += blockDim.x) {
        double x = wide(a.x.at(row, i)), p = exp(x - s.max) / s.total;
        // As in softmax, with the sum's own share of the rounded arguments.
        put_class(judge, row, i, dloss, target != IGNORE, target, p, k + u * (2.0 * (s.max - x) + s.drift));
    }
    judge.row_sum(row, 0.0);
    judge.finish();
}
