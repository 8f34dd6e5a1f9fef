// Rows of y and dy in the registers of a block, short ones in those of a warp or less: one pass over memory, one sum.
// Where there are few rows, more threads share one. A row of more than 32 KB is split over a cluster of blocks, which
// exchange their sums.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let MID = m*ROW<=sms*131072
// kmark: let LARGE = 3*m*ROW>8*l2&&ROW<=524288
// kmark: let TURNED = memory.unaligned&&ROW%16==0&&ROW>=128
// kmark: let CUT = ROW%16>0&&(size>3?ROW>=(FEW?8192:2048):(memory.unaligned||ROW%8>0)&&ROW>(m<=sms?12288:FEW?8192:4096))
// kmark: let ACCESS = CUT||TURNED?16:memory.unaligned?size:ROW%16==0?16:ROW%8==0?8:ROW%4==0?4:size
// kmark: let FITS = ceil(ROW,ACCESS)
// kmark: let LANES = FITS<=2?FITS:FITS<=4?4:FITS<=8||ACCESS==16&&ROW*2<=512?8:FITS<=16||ACCESS==16&&ROW*2<=1024?16:32
// kmark: let WHOLE = ROW>2048||ROW>=1024&&m<=sms*4
// kmark: let BATCH = WHOLE?0:FEW?1:2
// kmark: let WIDEST = max_cluster>1&&max_shared>=200000?16:max_cluster
// kmark: let BLOCKS = ROW<=32768?1:min(WIDEST,ROW<131072||ROW==131072&&!FEW?8:16)
// kmark: let SHARE = ROW<=2048?(ACCESS<16?4:16):ROW<=32768&&(FEW||ROW<8192)?32:64
// kmark: let THREADS = WHOLE?min(1024,ceil(ROW,BLOCKS*SHARE*32)*32):128
// kmark: let FIT = WHOLE?max(1,(CUT&&(size<4||ROW>32768)?640:1024)/THREADS):1
// kmark: kernel dx_rows grid=WHOLE?m*BLOCKS:ceil(m,THREADS/LANES*BATCH) block=THREADS cluster=BLOCKS
#include "rows.cuh"

using Rows = RowKernel<y_t, N, 2, THREADS, BLOCKS, LANES, BATCH, CUT != 0, LARGE != 0, start_of(CUT, TURNED)>;
using L = Rows::Layout;
using Held = TwoRows<L, y_t, dy_t>;

KERNEL __launch_bounds__(THREADS, FIT) dx_rows(const __grid_constant__ Args a) {
    auto load = [&](i64 row) { return Held(a.y, a.dy, row); };
    Rows::each(a.m, load, [&](Held& held, i64 row, bool live) {
        Row<L, y_t>& y = held.first;
        Row<L, dy_t>& dy = held.second;
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
