// A row in the registers of a block, a short one in those of a warp or less: one pass over memory, and two over the
// registers, because a variance around the known mean does not cancel.
// kmark: constants n
// kmark: kernel ln_rows grid=n*size>2048?m:min(ceil(m,4),sms*16) block=n*size>2048?min(1024,ceil(n*size,2048)*32):128
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 1, 64, rows_aligned<x_t>(MEMORY, N)>;
using L = Rows::Layout;

KERNEL __launch_bounds__(Rows::threads) ln_rows(const __grid_constant__ Args a) {
    Rows::each_row(a.m, [&](i64 row, bool live) {
        Row<L, x_t> x(a.x.row(row));
        acc_t sum = 0;
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
#pragma unroll
            for (int i = 0; i < L::step; i++) sum += up(v.v[i]); // elements beyond the row are 0
        });
        acc_t mean = team_sum<L::Team>(sum, 0) / (acc_t)N;
        x.convert_again();
        acc_t squares = 0;
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
#pragma unroll
            for (int i = 0; i < L::step; i++) {
                acc_t d = up(v.v[i]) - mean;
                if (L::has(k, column + i)) squares += d * d;
            }
        });
        acc_t r = inverse_root(team_sum<L::Team>(squares, 1) / (acc_t)N + (acc_t)EPS);
        if (!live) return;
        x.convert_again();
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
            auto w = L::take(a.w.ptr, k, column);
            Vec<y_t, L::step> y;
            if constexpr (BIAS) {
                auto b = L::take(a.b.ptr, k, column);
#pragma unroll
                for (int i = 0; i < L::step; i++)
                    y.v[i] = down<y_t>((up(v.v[i]) - mean) * r * (acc_t)up(w.v[i]) + (acc_t)up(b.v[i]));
            } else {
#pragma unroll
                for (int i = 0; i < L::step; i++) y.v[i] = down<y_t>((up(v.v[i]) - mean) * r * (acc_t)up(w.v[i]));
            }
            L::put(a.y.row(row), k, column, y);
        });
        if constexpr (STATS) {
            if (L::Team::lane() == 0) a.mean.ptr[row] = mean, a.rstd.ptr[row] = r;
        }
    });
}
