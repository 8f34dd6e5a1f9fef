// What the oracles of row ops share: sums over a row by a whole block, and sums in the CPU's order for derived inputs.
#pragma once
#include "loose_truth.cuh"

// exp(a - b) with what the difference loses in f64.
DEVICE double exp_of_difference(double a, double b) {
    double d = a - b, minus_b = d - a;
    return exp(d) * (1.0 + ((a - (d - minus_b)) - (b + minus_b)));
}

// A sum that carries its rounding errors along (Kahan), as truth::Sum does.
struct Sum {
    double total = 0.0, carry = 0.0;
    __device__ __forceinline__ void add(double term) {
        double corrected = term - carry, next = total + corrected;
        carry = (next - total) - corrected;
        total = next;
    }
};

// Sum of term(column) over a row, by all threads of a one-dimensional block.
template <class F> DEVICE double row_total(i64 columns, F term) {
    Sum sum;
    for (i64 c = threadIdx.x; c < columns; c += blockDim.x) sum.add(term(c));
    return block_sum(sum.total);
}

// How many terms of a sum over a row cost a rounding: adding an exact zero costs none.
template <class F> DEVICE double row_nonzero(i64 columns, F term) {
    return row_total(columns, [&](i64 c) { return term(c) != 0.0 ? 1.0 : 0.0; });
}

// Sum of term(element) over row `first + lane` of x, for one warp: one addition after the other from the left, so that
// what is derived from it has the bits that the CPU gets. Tiles pass through shared memory to be read in whole lines.
template <class T, class F> DEVICE double sum_in_order(const Tensor<T>& x, i64 first, F term) {
    __shared__ double tile[32][33];
    int lane = threadIdx.x;
    Sum sum;
    for (i64 left = 0; left < x.cols; left += 32) {
        int width = (int)(x.cols - left < 32 ? x.cols - left : 32);
        for (int r = 0; r < 32; r++)
            tile[r][lane] = first + r < x.rows && lane < width ? wide(x.at(first + r, left + lane)) : 0.0;
        __syncwarp();
        for (int c = 0; c < width; c++) sum.add(term(tile[lane][c]));
        __syncwarp();
    }
    return sum.total;
}
