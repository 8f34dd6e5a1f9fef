// Which tiles of groups of rows there are, for kernels that stay and go from tile to tile: every tile has rows of one group
// only, and both tiles of a pair have rows of the same. Contiguous: groups begin at multiples of a pair's rows, a tile's group
// is that of its first row, padding has none. Masked: a group's rows begin a slot of m rows, and tiles beyond them are left out.
#pragma once
#include "product_wgmma.cuh"

struct GroupPiece : Piece {
    int group;
    int in_slot; // row within the slot of a group; contiguous: of the tensor
};

template <class A, class F> DEVICE void each_group_tile(const A& a, int rank, int steps, F body) {
    constexpr int SIDE = 8;
    int cols = (int)((a.n + BN * CN - 1) / (BN * CN)), clusters = gridDim.x / CLUSTER, t = blockIdx.x / CLUSTER;
    // Tiles of `rows` row tiles, of which SIDE lie side by side; `at` counts from the first of them.
    auto visit = [&](int at, int rows, auto call) {
        int band = at / (SIDE * cols), side = min(SIDE, rows - band * SIDE), rest = at - band * SIDE * cols;
        call((band * SIDE + rest % side) * CM + (CM == 2 ? rank : 0), (rest / side * CN + (CN == 2 ? rank : 0)) * BN);
    };
    auto piece = [&](int slot, int row, int col, int group) {
        GroupPiece p;
        p.row = slot + row, p.col = col, p.first = 0, p.end = steps, p.after = STAGES, p.b_first = group * (int)a.n + col, p.group = group, p.in_slot = row;
        body(p);
    };
    if constexpr (FORM == FORM_masked) {
        for (int g = 0, before = 0; g < (int)a.g; g++) {
            int rows = (a.count.ptr[g] + BM * CM - 1) / (BM * CM);
            for (; t < before + rows * cols; t += clusters)
                visit(t - before, rows, [&](int row, int col) { piece(g * (int)a.m, row * BM, col, g); });
            before += rows * cols;
        }
    } else {
        int rows = (int)((a.a.rows + BM * CM - 1) / (BM * CM));
        for (; t < rows * cols; t += clusters) {
            visit(t, rows, [&](int row, int col) {
                int group = a.group.ptr[(CM == 2 ? row - rank : row) * BM];
                if (group >= 0) piece(0, row * BM, col, group);
            });
        }
    }
}
