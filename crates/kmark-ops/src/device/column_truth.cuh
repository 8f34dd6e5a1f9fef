// Sums over all rows for every column in f64, beside them the sums of their magnitudes and of the squares of what
// rounding each term on the way costs: first over groups of rows, then over the groups, as truth::by_rows_summed does.
#pragma once
#include "row_truth.cuh"

// The workspace is [groups][sums][3][n]; grid y is the number of groups. `term` fills in what a row adds to a column, and
// the square of what rounding it costs.
template <int sums, class A, class F> DEVICE void sum_group(const A& a, F term) {
    i64 c = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= a.n) return;
    i64 group = (a.m + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * group;
    i64 end = begin + group < a.m ? begin + group : a.m;
    Sum value[sums];
    double size[sums], loose2[sums], t[sums], l[sums];
    for (int s = 0; s < sums; s++) size[s] = loose2[s] = 0.0;
#pragma unroll 4
    for (i64 row = begin; row < end; row++) {
        term(row, c, t, l);
        for (int s = 0; s < sums; s++) value[s].add(t[s]), size[s] += fabs(t[s]), loose2[s] += l[s];
    }
    double* to = reinterpret_cast<double*>(a.workspace) + blockIdx.y * sums * 3 * a.n + c;
    for (int s = 0; s < sums; s++) {
        to[3 * s * a.n] = value[s].total, to[(3 * s + 1) * a.n] = size[s], to[(3 * s + 2) * a.n] = loose2[s];
    }
}

// Puts the totals of sum `s`, a thread for each column; `halves`: terms may be rounded on the way.
template <int sums, class A, class T> DEVICE void judge_sums(const A& a, int s, Judge<T>& judge, bool halves) {
    i64 c = (i64)blockIdx.x * blockDim.x + threadIdx.x, groups = (1 << 22) / a.n;
    groups = groups < 1 ? 1 : groups > 64 ? 64 : groups;
    if (c >= a.n) return;
    Sum value;
    double size = 0.0, loose2 = 0.0;
    for (i64 g = 0; g < groups; g++) {
        const double* from = reinterpret_cast<const double*>(a.workspace) + (g * sums + s) * 3 * a.n + c;
        value.add(from[0]);
        size += from[a.n];
        loose2 += from[2 * a.n];
    }
    judge.put(0, c, value.total, sum_slack(a.m) * size, 0, halves ? SURE * sqrt(loose2) : 0.0);
}
