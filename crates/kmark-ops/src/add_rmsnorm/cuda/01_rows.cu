// Two rows in the registers of a block, short ones in those of a warp or less: one pass over memory. The rounded sum
// takes the place of x there, and is stored before its mean square is known; an exact one is added up twice instead.
// kmark: constants n
// kmark: kernel add_rows grid=n*size>2048?m:min(ceil(m,4),sms*16) block=n*size>2048?min(1024,ceil(n*size,2048)*32):128
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 2, 64, rows_aligned<x_t>(MEMORY, N)>;
using L = Rows::Layout;
constexpr bool rounds = SUM == SUM_rounded;
// A row that is read again must not have been overwritten, and the sum may be stored where the residual was.
constexpr bool early = rounds || L::resident;

// Where the normalised row and the sum go.
template <class A> DEVICE auto y_of(const A& a) {
    if constexpr (FORM == FORM_inplace) return a.x;
    else return a.y;
}
template <class A> DEVICE auto z_of(const A& a) {
    if constexpr (FORM == FORM_inplace) return a.residual;
    else return a.z;
}

KERNEL __launch_bounds__(Rows::threads) add_rows(const __grid_constant__ Args a) {
    auto y = y_of(a);
    auto z = z_of(a);
    Rows::each_row(a.m, [&](i64 row, bool live) {
        Row<L, x_t> x(a.x.row(row));
        Row<L, residual_t> residual(a.residual.row(row));
        acc_t squares = 0;
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
            auto r = residual.at(k, column);
#pragma unroll
            for (int i = 0; i < L::step; i++) {
                acc_t sum = up(v.v[i]) + up(r.v[i]);
                v.v[i] = down<x_t>(sum);
                if constexpr (rounds) sum = up(v.v[i]);
                squares += sum * sum;
            }
            if (live && early) L::put(z.row(row), k, column, v);
            if constexpr (L::resident && rounds) x.held[k] = v;
        });
        acc_t r = inverse_root(team_sum<L::Team>(squares, 0) / (acc_t)N + (acc_t)EPS);
        if (!live) return;
        if constexpr (!L::resident && rounds) x.row = z.row(row); // this thread reads what it wrote
        x.convert_again();
        if constexpr (!rounds) residual.convert_again();
        L::each([&](int k, int column) {
            auto v = x.at(k, column);
            auto w = L::take(a.w.ptr, k, column);
            acc_t sum[L::step];
#pragma unroll
            for (int i = 0; i < L::step; i++) sum[i] = up(v.v[i]);
            if constexpr (!rounds) {
                auto other = residual.at(k, column);
#pragma unroll
                for (int i = 0; i < L::step; i++) {
                    sum[i] += up(other.v[i]);
                    other.v[i] = down<residual_t>(sum[i]);
                }
                if constexpr (!early) L::put(z.row(row), k, column, other);
            }
#pragma unroll
            for (int i = 0; i < L::step; i++) v.v[i] = down<x_t>(sum[i] * r * (acc_t)up(w.v[i]));
            L::put(y.row(row), k, column, v);
        });
    });
}
