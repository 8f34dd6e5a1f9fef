// A row in the registers of a block, a short one in those of a warp or less: maximum, sum and result in one pass.
// Threads weigh with their own maximum and exchange both, once. A row that is too long is read twice.
// Where there are few rows, more threads share one. A row of more than 32 KB is split over a cluster of blocks, which
// exchange their sums.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let BLOCKS = min(max_cluster,FEW?(ROW<=32768?1:8):ROW<=32768?1:ROW<=65536?4:ROW>262144&&size==2?2:8)
// kmark: let SHARE = ROW<=32768?(FEW?32:ROW<=8192?64:128):FEW?64:size>2?128:64
// kmark: let THREADS = ROW<=2048?128:min(1024,ceil(ROW,BLOCKS*SHARE*32)*32)
// kmark: let AHEAD = ROW>2048||FEW||ROW%16>0?0:ROW<=128?8:5
// kmark: let FIT = AHEAD?AHEAD:BLOCKS>1?max(1,(SHARE==128?768:1024)/THREADS):1
// kmark: kernel y_rows grid=ROW<=2048?min(ceil(m,4),sms*(AHEAD?AHEAD:16)):m*BLOCKS block=THREADS cluster=BLOCKS
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 1, THREADS, BLOCKS, FEW, AHEAD != 0>;
using L = Rows::Layout;

KERNEL __launch_bounds__(THREADS, FIT) y_rows(const __grid_constant__ Args a) {
    // Weights take the place of the elements where they have the same type.
    constexpr bool keep = L::resident && is<x_t, acc_t>;
    auto load = [&](i64 row) { return Row<L, x_t>(a.x.row(row), down<x_t>(minus_infinity<acc_t>())); };
    Rows::each(a.m, load, [&](Row<L, x_t>& x, i64 row, bool live) {
        acc_t top = no_maximum<acc_t>(), sum[1] = {0};
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
            acc_t old = top;
#pragma unroll
            for (int i = 0; i < L::step; i++) top = Max::of(top, (acc_t)up(v.v[i]));
            if constexpr (!L::resident) {
                if (top > old) sum[0] *= Exp<x_t>(top).again(Exp<x_t>(old));
#pragma unroll
                for (int i = 0; i < L::step; i++) sum[0] += Exp<x_t>(top)(up(v.v[i]));
            }
        });
        Exp<x_t> mine(top);
        if constexpr (L::resident) {
            x.convert_again();
            x.each([&](int k, int column) {
                auto v = x.at(k, column);
#pragma unroll
                for (int i = 0; i < L::step; i++) {
                    acc_t e = mine(up(v.v[i]));
                    sum[0] += e;
                    if (keep) v.v[i] = down<x_t>(e);
                }
                if (keep) x.set(k, v);
            });
        }
        team_weigh<x_t, L::Team>(top, sum, 0);
        Exp<x_t> weight(top);
        acc_t scale = (keep ? weight.again(mine) : acc_t(1)) / sum[0];
        if (!live) return;
        x.convert_again();
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
            Vec<y_t, L::step> y;
#pragma unroll
            for (int i = 0; i < L::step; i++) y.v[i] = down<y_t>((keep ? up(v.v[i]) : weight(up(v.v[i]))) * scale);
            L::put(a.y.row(row), k, column, y);
        });
    });
}
