// A scale per row, where a row is too long for a block, or rows are few: it stays in the registers of a cluster of blocks,
// which exchange their maxima, while a later row comes into L2. So it is read once, and by many multiprocessors.
// kmark: arch sm_90a
// kmark: only granularity=row
// kmark: constants n
// kmark: let ROW = n*size
// kmark: require ROW%16==0&&(!memory.unaligned||ROW<=2097152)&&(ROW>65536||ROW>=16384&&m<=sms)
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let MID = m*ROW<=sms*131072
// kmark: let LARGE = m*n*(size+1)>8*l2&&ROW<=524288
// kmark: let BLOCKS = FEW?(ROW<131072?8:16):ROW<=262144?8:16
// kmark: let SHARE = ROW>262144&&!MID?128:64
// kmark: let THREADS = min(1024,ceil(ROW,BLOCKS*SHARE*32)*32)
// kmark: let FIT = max(1,(SHARE==128?640:1024)/THREADS)
// kmark: let AHEAD = ROW<=524288&&!MID?8388608/ROW:0
// kmark: kernel quantise grid=m*BLOCKS block=THREADS cluster=BLOCKS
#include "fp8.cuh"
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 1, THREADS, BLOCKS, 32, 0, false, LARGE != 0, start_of(false, MEMORY == MEMORY_unaligned)>;
using L = Rows::Layout;
constexpr int BEHIND = L::turned; // x is one element behind, q is not

KERNEL __launch_bounds__(THREADS, FIT) quantise(const __grid_constant__ Args a) {
    auto load = [&](i64 row) {
        Row<L, x_t> x;
        if constexpr (BEHIND) L::each([&](int k, int column) { x.held[k] = load_behind<L::step, LARGE != 0>(a.x.row(row) + column + BEHIND); });
        else x = Row<L, x_t>(a.x.row(row));
        Rows::fetch_later<AHEAD>(a.x, row);
        return x;
    };
    Rows::each(a.m, load, [&](Row<L, x_t>& x, i64 row, bool) {
        float amax[1] = {0.0f};
        L::each([&](int k, int column) { amax[0] = largest_of(pack(x.at(k, column)), amax[0]); });
        team_all<Max, L::Team>(amax, 0.0f, 0);
        Scale s = scale_of<q_t, POW2>(amax[0], CLAMP);
        if (L::Team::lane() == 0) a.scale.ptr[row] = s.scale;
        x.convert_again();
        q_t* q = a.q.row(row);
        L::each([&](int k, int column) { store_once<L::step>(q + column + BEHIND, quantised<q_t>(pack(x.at(k, column)), s.inverse)); });
    });
}
