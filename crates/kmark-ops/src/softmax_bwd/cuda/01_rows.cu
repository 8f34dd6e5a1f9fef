// Rows of y and dy in the registers of a block, short ones in those of a warp or less: one pass over memory, one sum.
// Where there are few rows, more threads share one. A row of more than 32 KB is split over a cluster of blocks, which
// exchange their sums.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let BLOCKS = min(max_cluster,FEW?(ROW<=32768?1:8):ROW<=32768?1:ROW<=65536?4:8)
// kmark: let SHARE = ROW<=32768?(FEW?32:64):64
// kmark: let THREADS = ROW<=2048?128:min(1024,ceil(ROW,BLOCKS*SHARE*32)*32)
// kmark: let AHEAD = ROW>2048||FEW||ROW%16>0?0:ROW<=128?8:ROW*2>2048?0:5
// kmark: let FIT = AHEAD?AHEAD:BLOCKS>1?max(1,(SHARE==128?768:1024)/THREADS):1
// kmark: kernel dx_rows grid=ROW<=2048?min(ceil(m,4),sms*(AHEAD?AHEAD:16)):m*BLOCKS block=THREADS cluster=BLOCKS
#include "rows.cuh"

using Rows = RowKernel<y_t, N, 2, THREADS, BLOCKS, FEW, AHEAD != 0>;
using L = Rows::Layout;

struct Held {
    Row<L, y_t> y;
    Row<L, dy_t> dy;
};

KERNEL __launch_bounds__(THREADS, FIT) dx_rows(const __grid_constant__ Args a) {
    auto load = [&](i64 row) { return Held{Row<L, y_t>(a.y.row(row)), Row<L, dy_t>(a.dy.row(row))}; };
    Rows::each(a.m, load, [&](Held& held, i64 row, bool live) {
        Row<L, y_t>& y = held.y;
        Row<L, dy_t>& dy = held.dy;
        acc_t dot = 0;
        y.each([&](int k, int column) {
            auto p = y.at(k, column);
            auto d = dy.at(k, column);
#pragma unroll
            for (int i = 0; i < L::step; i++) dot += up(p.v[i]) * up(d.v[i]);
        });
        dot = team_sum<L::Team>(dot, 0);
        if (!live) return;
        y.convert_again();
        dy.convert_again();
        y.each([&](int k, int column) {
            auto p = y.at(k, column);
            auto d = dy.at(k, column);
            Vec<dx_t, L::step> dx;
#pragma unroll
            for (int i = 0; i < L::step; i++) dx.v[i] = down<dx_t>(up(p.v[i]) * (up(d.v[i]) - dot));
            L::put(a.dx.row(row), k, column, dx);
        });
    });
}
