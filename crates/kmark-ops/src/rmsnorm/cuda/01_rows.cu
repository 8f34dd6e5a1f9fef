// A row in the registers of a block, a short one in those of a warp or less: one pass over memory and one sum.
// Where there are few rows, they and their weights are asked for together, and more threads share one. A long row is
// split over a cluster of blocks, which exchange their sums, while a later row comes into L2.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let MID = m*ROW<=sms*131072
// kmark: let LARGE = 2*m*ROW>8*l2&&ROW<=524288
// kmark: let TURNED = memory.unaligned&&ROW%16==0&&ROW>=128&&(ROW<=32768||max_cluster>1)
// kmark: let CUT = (ROW%16>0||memory.unaligned&&ROW>32768&&!TURNED)&&(size>3?ROW>=(FEW?32768:2048):(memory.unaligned||ROW%8>0)&&ROW>(m<=sms?16384:FEW?8192:4096))
// kmark: let ACCESS = CUT||TURNED?16:memory.unaligned?size:ROW%16==0?16:ROW%8==0?8:ROW%4==0?4:size
// kmark: let FITS = ceil(ROW,ACCESS)
// kmark: let LANES = FITS<=2?FITS:FITS<=4?4:FITS<=8||ACCESS==16&&ROW<=512?8:FITS<=16||ACCESS==16&&ROW<=1024?16:32
// kmark: let WHOLE = ROW>2048||ROW>=1024&&m<=sms*4
// kmark: let BATCH = WHOLE?0:FEW||ROW>768?1:2
// kmark: let WIDEST = max_cluster>1&&max_shared>=200000?16:max_cluster
// kmark: let BLOCKS = ROW<=32768?1:min(WIDEST,ROW>=131072&&(FEW||m*8<=sms)?16:MID||ROW>65536?8:1)
// kmark: let SHARE = ROW<=2048?16:ROW<=32768?(FEW||ROW<8192||ROW<=16384&&!MID?32:64):!FEW&&(ROW>131072||!MID&&ROW<=65536)?128:64
// kmark: let EARLY = SHARE<128&&(ROW>32768||MID)
// kmark: let THREADS = WHOLE?min(1024,ceil(ROW,BLOCKS*SHARE*32)*32):128
// How many threads an SM is to have registers for. A row that is cut may need a third vector of a thread.
// kmark: let FULL = SHARE==32&&ACCESS==16&&!MID&&ROW+CUT*(16-size)<=THREADS*32&&max_shared>=200000?2048:CUT&&size<4||(CUT||TURNED)&&ROW>32768?640:1024
// kmark: let FIT = WHOLE?max(1,FULL/THREADS):1
// kmark: let AHEAD = ROW>32768&&ROW<=524288&&!MID?8388608/ROW:0
// kmark: kernel rms_rows grid=WHOLE?m*BLOCKS:ceil(m,THREADS/LANES*BATCH) block=THREADS cluster=BLOCKS
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 1, THREADS, BLOCKS, LANES, BATCH, EARLY != 0, LARGE != 0, start_of(CUT, TURNED)>;
using L = Rows::Layout;

KERNEL __launch_bounds__(THREADS, FIT) rms_rows(const __grid_constant__ Args a) {
    Rows::Weights<w_t> weights(a.w.ptr);
    auto load = [&](i64 row) {
        Row<L, x_t> x(a.x.row(row));
        Rows::fetch_later<AHEAD>(a.x, row);
        return x;
    };
    Rows::each(a.m, load, [&](Row<L, x_t>& x, i64 row, bool live) {
        acc_t squares = 0;
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
#pragma unroll
            for (int i = 0; i < L::step; i++) squares += up(v.v[i]) * up(v.v[i]);
        });
        acc_t r = inverse_root(team_sum<L::Team>(squares, 0) * (acc_t)(1.0 / N) + (acc_t)EPS);
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
