// Truth of cross entropy's backward, and the log-sum-exp that its forward would have saved.
// kmark: derive lse save_lse grid=m block=256
// kmark: kernel judge grid=m block=256
#include "classes.cuh"

KERNEL save_lse(const __grid_constant__ Args a) {
    i64 row = blockIdx.x;
    SoftmaxRow s = softmax_row(a.x.row(row), a.n);
    if (threadIdx.x == 0) a.lse.ptr[row] = down<lse_t>(s.max + log(s.total));
}

KERNEL judge(const __grid_constant__ Args a) {
    Judge<dx_t> judge(a.dx_gate);
    i64 row = blockIdx.x, target = a.target.ptr[row];
    double lse = wide(a.lse.ptr[row]), dloss = wide(a.dloss.ptr[row]), u = unit<acc_t>();
    for (i64 i = threadIdx.x; i < a.n; i += blockDim.x) {
        double x = wide(a.x.at(row, i));
        // A few roundings, and the rounded argument of exp: kernels scale x and lse to base 2 each for itself.
        double off = u * (8.0 + ARGUMENT * (fabs(x) + fabs(lse)));
        put_class(judge, row, i, dloss, target != IGNORE, target, exp_of_difference(x, lse), off);
    }
    judge.finish();
}
