// Rows of x and dy in the registers of a block, short ones in those of a warp or less: maximum, then the sums of
// weights and of weighted dy together, then the result, in one pass over memory. Too long rows are read twice.
// kmark: constants n
// kmark: kernel dx_rows grid=n*size>2048?m:min(ceil(m,4),sms*16) block=n*size>2048?min(1024,ceil(n*size,2048)*32):128
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 2, 64, rows_aligned<x_t>(MEMORY, N)>;
using L = Rows::Layout;

KERNEL __launch_bounds__(Rows::threads) dx_rows(const __grid_constant__ Args a) {
    using T = L::Team;
    // Weights take the place of the elements where they have the same type.
    constexpr bool keep = L::resident && is<x_t, acc_t>;
    Rows::each_row(a.m, [&](i64 row, bool live) {
        Row<L, x_t> x(a.x.row(row), down<x_t>(minus_infinity<acc_t>()));
        Row<L, dy_t> dy(a.dy.row(row));
        acc_t top = minus_infinity<acc_t>(), sums[2] = {0, 0};
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
            acc_t old = top;
#pragma unroll
            for (int i = 0; i < L::step; i++) top = Max::of(top, (acc_t)up(v.v[i]));
            if constexpr (!L::resident) {
                auto d = dy.at(k, column);
                if (top > old) {
                    acc_t shrink = Exp<x_t>(top)(old);
                    sums[0] *= shrink, sums[1] *= shrink;
                }
#pragma unroll
                for (int i = 0; i < L::step; i++) {
                    acc_t e = Exp<x_t>(top)(up(v.v[i]));
                    sums[0] += e;
                    sums[1] += e * up(d.v[i]);
                }
            }
        });
        Exp<x_t> weight(team_max<T>(top, 0));
        if constexpr (L::resident) {
            x.convert_again();
            L::each([&](int k, int column) {
                auto v = x.at(k, column);
                auto d = dy.at(k, column);
#pragma unroll
                for (int i = 0; i < L::step; i++) {
                    acc_t e = weight(up(v.v[i]));
                    sums[0] += e;
                    sums[1] += e * up(d.v[i]);
                    if (keep) x.held[k].v[i] = down<x_t>(e);
                }
            });
        } else {
            acc_t shrink = weight(top);
            sums[0] *= shrink, sums[1] *= shrink;
        }
        team_all<Add, T>(sums, (acc_t)0, 1);
        acc_t scale = 1 / sums[0], dot = sums[1] * scale;
        if (!live) return;
        x.convert_again();
        dy.convert_again();
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
            auto d = dy.at(k, column);
            Vec<dx_t, L::step> dx;
#pragma unroll
            for (int i = 0; i < L::step; i++) {
                acc_t e = keep ? up(v.v[i]) : weight(up(v.v[i]));
                dx.v[i] = down<dx_t>(e * scale * (up(d.v[i]) - dot));
            }
            L::put(a.dx.row(row), k, column, dx);
        });
    });
}
