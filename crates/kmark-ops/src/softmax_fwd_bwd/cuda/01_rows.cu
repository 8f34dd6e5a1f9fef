// Rows of x and dy in the registers of a block, short ones in those of a warp or less: maximum, then the sums of
// weights and of weighted dy together, then the result, in one pass over memory. Too long rows are read twice.
// Where there are few rows, more threads share one. A row of more than 32 KB is split over a cluster of blocks, which
// exchange their sums, while later rows come into L2.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let MID = m*ROW<=sms*131072
// kmark: let LARGE = 3*m*ROW>8*l2&&ROW<=524288
// kmark: let TURNED = memory.unaligned&&ROW%16==0&&ROW>=128
// kmark: let CUT = ROW%16>0&&(size>3?ROW>=(FEW?8192:2048):(memory.unaligned||ROW%8>0)&&ROW>8192)
// kmark: let ACCESS = CUT||TURNED?16:memory.unaligned?size:ROW%16==0?16:ROW%8==0?8:ROW%4==0?4:size
// kmark: let FITS = ceil(ROW,ACCESS)
// kmark: let LANES = FITS<=2?FITS:FITS<=4?4:FITS<=8||ACCESS==16&&ROW*2<=512?8:FITS<=16||ACCESS==16&&ROW*2<=1024?16:32
// kmark: let WHOLE = ROW>2048||ROW>=1024&&m<=sms
// kmark: let BATCH = WHOLE?0:FEW||ROW<=1024?1:2
// kmark: let WIDEST = max_cluster>1&&max_shared>=200000?16:max_cluster
// kmark: let BLOCKS = ROW<=32768?1:min(WIDEST,FEW?(ROW<131072?8:16):size>2&&ROW<=65536?4:ROW<=262144?8:16)
// kmark: let SHARE = ROW<=2048?(ACCESS<16?4:16):ROW<=32768?(FEW||ROW<=8192||ROW>24576&&!MID?32:64):FEW&&ROW<=262144?32:64
// kmark: let THREADS = WHOLE?min(1024,ceil(ROW,BLOCKS*SHARE*32)*32):128
// kmark: let FIT = WHOLE&&!FEW&&ROW>65536&&SHARE==64?max(1,1024/THREADS):1
// kmark: let UNEVEN = FITS%(BLOCKS*THREADS)>0
// kmark: let AHEAD = ROW>32768&&ROW<=524288&&!MID&&(UNEVEN||ROW>262144)?8388608/(2*ROW):0
// kmark: kernel dx_rows grid=WHOLE?m*BLOCKS:ceil(m,THREADS/LANES*BATCH) block=THREADS cluster=BLOCKS
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 2, THREADS, BLOCKS, LANES, BATCH, CUT != 0, LARGE != 0, start_of(CUT, TURNED)>;
using L = Rows::Layout;
using Held = TwoRows<L, x_t, dy_t>;

KERNEL __launch_bounds__(THREADS, FIT) dx_rows(const __grid_constant__ Args a) {
    // Weights are computed once where there are registers for them: they take the place of elements of the same type.
    constexpr bool keep = L::resident && (is<x_t, acc_t> || L::count * L::step <= (FEW || ROW <= 32768 ? 32 : 0));
    auto load = [&](i64 row) {
        Held held(a.x, a.dy, row, down<x_t>(minus_infinity<acc_t>()));
        Rows::fetch_later<AHEAD>(a.x, row), Rows::fetch_later<AHEAD>(a.dy, row);
        return held;
    };
    Rows::each(a.m, load, [&](Held& held, i64 row, bool live) {
        Row<L, x_t>& x = held.first;
        Row<L, dy_t>& dy = held.second;
        acc_t top = no_maximum<acc_t>(), sums[2] = {0, 0}, kept[keep ? L::count : 1][L::step];
        if constexpr (L::resident) {
            top = largest(x);
        } else {
            x.each([&](int k, int column) {
                auto v = x.at(k, column);
                auto d = dy.at(k, column);
                acc_t old = top;
#pragma unroll
                for (int i = 0; i < L::step; i++) top = Max::of(top, (acc_t)up(v.v[i]));
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
            });
        }
        Exp<x_t> mine(top);
        if constexpr (L::resident) {
            x.each([&](int k, int column) {
                auto v = x.at(k, column);
                auto d = dy.at(k, column);
#pragma unroll
                for (int i = 0; i < L::step; i++) {
                    acc_t e = mine(up(v.v[i]));
                    sums[0] += e;
                    sums[1] += e * up(d.v[i]);
                    if (keep) kept[k][i] = e;
                }
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
                acc_t e = keep ? kept[k][i] : weight(up(v.v[i]));
                dx.v[i] = down<dx_t>(e * scale * (up(d.v[i]) - dot));
            }
            L::put(a.dx.row(row), k, column, dx);
        });
    });
}
