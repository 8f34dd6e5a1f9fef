// Rows of y and dy in the registers of a block, short ones in those of a warp or less: one pass over memory, one sum.
// kmark: constants n
// kmark: kernel dx_rows grid=n*size>2048?m:min(ceil(m,4),sms*16) block=n*size>2048?min(1024,ceil(n*size,2048)*32):128
#include "rows.cuh"

using Rows = RowKernel<y_t, N, 2, 64, rows_aligned<y_t>(MEMORY, N)>;
using L = Rows::Layout;

KERNEL __launch_bounds__(Rows::threads) dx_rows(const __grid_constant__ Args a) {
    Rows::each_row(a.m, [&](i64 row, bool live) {
        Row<L, y_t> y(a.y.row(row));
        Row<L, dy_t> dy(a.dy.row(row));
        acc_t dot = 0;
        L::each([&](int k, int column) {
            auto p = y.at(k, column);
            auto d = dy.at(k, column);
#pragma unroll
            for (int i = 0; i < L::step; i++) dot += up(p.v[i]) * up(d.v[i]);
        });
        dot = team_sum<L::Team>(dot, 0);
        if (!live) return;
        y.convert_again();
        dy.convert_again();
        L::each([&](int k, int column) {
            auto p = y.at(k, column);
            auto d = dy.at(k, column);
            Vec<dx_t, L::step> dx;
#pragma unroll
            for (int i = 0; i < L::step; i++) dx.v[i] = down<dx_t>(up(p.v[i]) * (up(d.v[i]) - dot));
            L::put(a.dx.row(row), k, column, dx);
        });
    });
}
