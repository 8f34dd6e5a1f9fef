// Sums over all rows for every column in f64, and the sums of their magnitudes: first over groups of rows, then over
// the groups, in the order in which the CPU adds (truth::by_rows_summed), so that sums have its bits.
#pragma once
#include "kmark.cuh"

// The workspace is [groups][sums][2][n]; grid y is the number of groups. `term` fills in what a row adds to a column.
template <int sums, class A, class F> DEVICE void sum_group(const A& a, F term) {
    i64 c = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= a.n) return;
    i64 group = (a.m + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * group;
    i64 end = begin + group < a.m ? begin + group : a.m;
    double value[sums], size[sums], t[sums];
    for (int s = 0; s < sums; s++) value[s] = size[s] = 0.0;
#pragma unroll 4
    for (i64 row = begin; row < end; row++) {
        term(row, c, t);
        for (int s = 0; s < sums; s++) value[s] += t[s], size[s] += fabs(t[s]);
    }
    double* to = reinterpret_cast<double*>(a.workspace) + blockIdx.y * sums * 2 * a.n + c;
    for (int s = 0; s < sums; s++) to[2 * s * a.n] = value[s], to[(2 * s + 1) * a.n] = size[s];
}

// Puts the totals of sum `s`, a thread for each column.
template <int sums, class A, class T> DEVICE void judge_sums(const A& a, int s, Judge<T>& judge) {
    i64 c = (i64)blockIdx.x * blockDim.x + threadIdx.x, groups = (1 << 22) / a.n;
    groups = groups < 1 ? 1 : groups > 64 ? 64 : groups;
    if (c >= a.n) return;
    double value = 0.0, size = 0.0;
    for (i64 g = 0; g < groups; g++) {
        const double* from = reinterpret_cast<const double*>(a.workspace) + (g * sums + s) * 2 * a.n + c;
        value += from[0];
        size += from[a.n];
    }
    judge.put(0, c, value, sum_slack(a.m) * size);
}
