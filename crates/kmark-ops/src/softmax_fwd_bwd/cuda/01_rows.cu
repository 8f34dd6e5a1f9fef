// Rows of x and dy in the registers of a block, short ones in those of a warp or less: maximum, then the sums of
// weights and of weighted dy together, then the result, in one pass over memory. Too long rows are read twice.
// Where there are few rows, more threads share one. A row of more than 32 KB is split over a cluster of blocks, which
// exchange their sums.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let BLOCKS = min(max_cluster,FEW?(ROW<=32768?1:8):ROW<=32768?1:ROW<=65536||ROW>262144?4:8)
// kmark: let SHARE = ROW<=32768?(FEW?32:64):64
// kmark: let THREADS = ROW<=2048?128:min(1024,ceil(ROW,BLOCKS*SHARE*32)*32)
// kmark: let AHEAD = ROW>2048||FEW||ROW%16>0?0:ROW<=128?8:ROW*2>2048?0:5
// kmark: let FIT = AHEAD?AHEAD:BLOCKS>1?max(1,(SHARE==128?768:1024)/THREADS):1
// kmark: kernel dx_rows grid=ROW<=2048?min(ceil(m,4),sms*(AHEAD?AHEAD:16)):m*BLOCKS block=THREADS cluster=BLOCKS
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 2, THREADS, BLOCKS, FEW, AHEAD != 0>;
using L = Rows::Layout;

struct Held {
    Row<L, x_t> x;
    Row<L, dy_t> dy;
};

KERNEL __launch_bounds__(THREADS, FIT) dx_rows(const __grid_constant__ Args a) {
    // Weights take the place of the elements where they have the same type.
    constexpr bool keep = L::resident && is<x_t, acc_t>;
    auto load = [&](i64 row) {
        return Held{Row<L, x_t>(a.x.row(row), down<x_t>(minus_infinity<acc_t>())), Row<L, dy_t>(a.dy.row(row))};
    };
    Rows::each(a.m, load, [&](Held& held, i64 row, bool live) {
        Row<L, x_t>& x = held.x;
        Row<L, dy_t>& dy = held.dy;
        acc_t top = no_maximum<acc_t>(), sums[2] = {0, 0};
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
            acc_t old = top;
#pragma unroll
            for (int i = 0; i < L::step; i++) top = Max::of(top, (acc_t)up(v.v[i]));
            if constexpr (!L::resident) {
                auto d = dy.at(k, column);
                if (top > old) {
                    acc_t shrink = Exp<x_t>(top).again(Exp<x_t>(old));
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
        Exp<x_t> mine(top);
        if constexpr (L::resident) {
            x.convert_again();
            x.each([&](int k, int column) {
                auto v = x.at(k, column);
                auto d = dy.at(k, column);
#pragma unroll
                for (int i = 0; i < L::step; i++) {
                    acc_t e = mine(up(v.v[i]));
                    sums[0] += e;
                    sums[1] += e * up(d.v[i]);
                    if (keep) v.v[i] = down<x_t>(e);
                }
                if (keep) x.set(k, v);
            });
        }
        team_weigh<x_t, L::Team>(top, sums, 0);
        Exp<x_t> weight(top);
        acc_t inverse = 1 / sums[0], scale = keep ? weight.again(mine) * inverse : inverse, dot = sums[1] * inverse;
        if (!live) return;
        x.convert_again();
        dy.convert_again();
        x.each([&](int k, int column) {
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
