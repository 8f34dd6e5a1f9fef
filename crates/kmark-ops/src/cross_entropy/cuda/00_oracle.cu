// Truth of cross entropy: a block per row, the softmax row in f64.
// kmark: kernel judge grid=m block=256
#include "classes.cuh"

enum { COUNTED, IGNORED };

KERNEL judge(const __grid_constant__ Args a) {
    Judge<loss_t> loss(a.loss_gate);
    Judge<lse_t> lse(a.lse_gate);
    i64 row = blockIdx.x;
    SoftmaxRow s = softmax_row(a.x.row(row), a.n);
    if (threadIdx.x == 0) {
        double k = sum_slack((double)a.n), u = unit<acc_t>(), log_total = log(s.total);
        // The sum is off by k relatively and by the rounded arguments of exp; then a logarithm and a sum.
        double off = k + u * (s.drift + 2.0 * (fabs(s.max) + log_total));
        i64 target = a.target.ptr[row];
        bool counted = target != IGNORE;
        int region = counted ? COUNTED : IGNORED;
        double x_t = counted ? wide(a.x.at(row, target)) : 0.0;
        double loss_slack = off + u * (fabs(s.max + log_total) + fabs(x_t));
        loss.put(0, row, counted ? log_total + (s.max - x_t) : 0.0, counted ? loss_slack : 0.0, region);
        lse.put(0, row, s.max + log_total, off, region);
    }
    loss.finish();
    lse.finish();
}
