// A row in the registers of a block, a short one in those of a warp or less: maximum, sum and result in one pass.
// A row that is too long is read twice: maximum and sum together first, rescaled as the maximum grows.
// kmark: constants n
// kmark: kernel y_rows grid=n*size>2048?m:min(ceil(m,4),sms*16) block=n*size>2048?min(1024,ceil(n*size,4096)*32):128
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 1, 128, rows_aligned<x_t>(MEMORY, N)>;
using L = Rows::Layout;

KERNEL __launch_bounds__(Rows::threads) y_rows(const __grid_constant__ Args a) {
    using T = L::Team;
    // Weights take the place of the elements where they have the same type.
    constexpr bool keep = L::resident && is<x_t, acc_t>;
    Rows::each_row(a.m, [&](i64 row, bool live) {
        Row<L, x_t> x(a.x.row(row), down<x_t>(minus_infinity<acc_t>()));
        acc_t top = minus_infinity<acc_t>(), sum = 0;
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
            acc_t old = top;
#pragma unroll
            for (int i = 0; i < L::step; i++) top = Max::of(top, (acc_t)up(v.v[i]));
            if constexpr (!L::resident) {
                if (top > old) sum *= Exp<x_t>(top)(old);
#pragma unroll
                for (int i = 0; i < L::step; i++) sum += Exp<x_t>(top)(up(v.v[i]));
            }
        });
        Exp<x_t> weight(team_max<T>(top, 0));
        if constexpr (L::resident) {
            x.convert_again();
            L::each([&](int k, int column) {
                auto v = x.at(k, column);
#pragma unroll
                for (int i = 0; i < L::step; i++) {
                    acc_t e = weight(up(v.v[i]));
                    sum += e;
                    if (keep) x.held[k].v[i] = down<x_t>(e);
                }
            });
        } else {
            sum *= weight(top);
        }
        acc_t scale = 1 / team_sum<T>(sum, 1);
        if (!live) return;
        x.convert_again();
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
            Vec<y_t, L::step> y;
#pragma unroll
            for (int i = 0; i < L::step; i++) y.v[i] = down<y_t>((keep ? up(v.v[i]) : weight(up(v.v[i]))) * scale);
            L::put(a.y.row(row), k, column, y);
        });
    });
}
