// A row in the registers of a block, a short one in those of a warp or less: one pass over memory and one sum.
// Where there are few rows, they and their weights are asked for together, and more threads share one. A long row is
// split over a cluster of blocks, which exchange their sums.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let BLOCKS = min(max_cluster,FEW?(ROW<=32768?1:8):ROW<=65536?1:ROW<=131072?2:8)
// kmark: let SHARE = ROW<=32768?(m*ROW<=16777216||ROW<=16384?32:64):FEW?64:128
// kmark: let THREADS = ROW<=2048?128:min(1024,ceil(ROW,BLOCKS*SHARE*32)*32)
// kmark: let AHEAD = ROW>2048||FEW||ROW%16>0?0:ROW<=128?8:5
// kmark: let FIT = AHEAD?AHEAD:BLOCKS>1?max(1,(SHARE==128?768:1024)/THREADS):1
// kmark: kernel rms_rows grid=ROW<=2048?min(ceil(m,4),sms*(AHEAD?AHEAD:16)):m*BLOCKS block=THREADS cluster=BLOCKS
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 1, THREADS, BLOCKS, FEW, AHEAD != 0>;
using L = Rows::Layout;

KERNEL __launch_bounds__(THREADS, FIT) rms_rows(const __grid_constant__ Args a) {
    Rows::Weights<w_t> weights(a.w.ptr);
    auto load = [&](i64 row) { return Row<L, x_t>(a.x.row(row)); };
    Rows::each(a.m, load, [&](Row<L, x_t>& x, i64 row, bool live) {
        acc_t squares = 0;
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
#pragma unroll
            for (int i = 0; i < L::step; i++) squares += up(v.v[i]) * up(v.v[i]);
        });
        acc_t r = inverse_root(team_sum<L::Team>(squares, 0) / (acc_t)N + (acc_t)EPS);
        if (!live) return;
        x.convert_again();
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
            auto w = weights.at(k, column);
            Vec<y_t, L::step> y;
#pragma unroll
            for (int i = 0; i < L::step; i++) y.v[i] = down<y_t>(up(v.v[i]) * r * (acc_t)up(w.v[i]));
            L::put(a.y.row(row), k, column, y);
        });
        if constexpr (RSTD) {
            if (L::Team::lane() == 0) a.rstd.ptr[row] = r;
        }
    });
}
