// What the oracles of row ops share: sums over a row by a whole block, and sums in the CPU's order for derived inputs.
#pragma once
#include "kmark.cuh"

// Sum of term(column) over a row, by all threads of a one-dimensional block.
template <class F> DEVICE double row_total(i64 columns, F term) {
    double sum = 0.0;
    for (i64 c = threadIdx.x; c < columns; c += blockDim.x) sum += term(c);
    return block_sum(sum);
}

// Sum of term(element) over row `first + lane` of x, for one warp: one addition after the other from the left, so that
// what is derived from it has the bits that the CPU gets. Tiles pass through shared memory to be read in whole lines.
template <class T, class F> DEVICE double sum_in_order(const Tensor<T>& x, i64 first, F term) {
    __shared__ double tile[32][33];
    int lane = threadIdx.x;
    double sum = -0.0; // what sums start from in Rust
    for (i64 left = 0; left < x.cols; left += 32) {
        int width = (int)(x.cols - left < 32 ? x.cols - left : 32);
        for (int r = 0; r < 32; r++)
            tile[r][lane] = first + r < x.rows && lane < width ? wide(x.at(first + r, left + lane)) : 0.0;
        __syncwarp();
        for (int c = 0; c < width; c++) sum += term(tile[lane][c]);
        __syncwarp();
    }
    return sum;
}
