// A row in the registers of a block, a short one in those of a warp or less: maximum, sum and result in one pass.
// Threads weigh with their own maximum and exchange both, once. A row that is too long is read twice.
// Where there are few rows, more threads share one. A row of more than 32 KB is split over a cluster of blocks, which
// exchange their sums, while a later row comes into L2.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let MID = m*ROW<=sms*131072
// kmark: let LARGE = 2*m*ROW>8*l2&&ROW<=524288
// kmark: let TURNED = memory.unaligned&&ROW%16==0&&ROW>=128
// kmark: let CUT = ROW%16>0&&(size>3?ROW>=(FEW?8192:2048):(memory.unaligned||ROW%8>0)&&ROW>(FEW?8192:2048))
// kmark: let ACCESS = CUT||TURNED?16:memory.unaligned?size:ROW%16==0?16:ROW%8==0?8:ROW%4==0?4:size
// kmark: let FITS = ceil(ROW,ACCESS)
// kmark: let LANES = FITS<=2?FITS:FITS<=4?4:FITS<=8||ACCESS==16&&ROW<=512?8:FITS<=16||ACCESS==16&&ROW<=1024?16:32
// kmark: let WHOLE = ROW>2048||ROW>=1024&&m<=sms
// kmark: let BATCH = WHOLE?0:1
// kmark: let WIDEST = max_cluster>1&&max_shared>=200000?16:max_cluster
// kmark: let BLOCKS = ROW<=32768?1:min(WIDEST,FEW?(ROW<131072?8:16):ROW<=65536?4:ROW<=262144?8:16)
// kmark: let SHARE = ROW<=2048?(ACCESS<16?4:16):size>2&&!FEW?(ROW<=8192?64:128):ROW<=16384||ROW<=32768&&MID?32:ROW>262144?128:64
// kmark: let THREADS = WHOLE?min(1024,ceil(ROW,BLOCKS*SHARE*32)*32):128
// kmark: let FIT = WHOLE?max(1,(SHARE==128?768:1024)/THREADS):1
// kmark: let AHEAD = ROW>32768&&ROW<=524288&&SHARE<128&&!MID?8388608/ROW:0
// kmark: kernel y_rows grid=WHOLE?m*BLOCKS:ceil(m,THREADS/LANES*BATCH) block=THREADS cluster=BLOCKS
#include "rows.cuh"

using Rows = RowKernel<x_t, N, 1, THREADS, BLOCKS, LANES, BATCH, false, LARGE != 0, start_of(CUT, TURNED)>;
using L = Rows::Layout;

KERNEL __launch_bounds__(THREADS, FIT) y_rows(const __grid_constant__ Args a) {
    // Weights are computed once where there are registers for them: they take the place of elements of the same type.
    constexpr bool keep = L::resident && (is<x_t, acc_t> || L::count * L::step <= 32);
    auto load = [&](i64 row) {
        Row<L, x_t> x(a.x.row(row), down<x_t>(minus_infinity<acc_t>()));
        Rows::fetch_later<AHEAD>(a.x, row);
        return x;
    };
    Rows::each(a.m, load, [&](Row<L, x_t>& x, i64 row, bool live) {
        acc_t top = no_maximum<acc_t>(), sum[1] = {0}, kept[keep ? L::count : 1][L::step];
        if constexpr (L::resident) {
            top = largest(x);
        } else {
            x.each([&](int k, int column) {
                auto v = x.at(k, column);
                acc_t old = top;
#pragma unroll
                for (int i = 0; i < L::step; i++) top = Max::of(top, (acc_t)up(v.v[i]));
                if (top > old) sum[0] *= Exp<x_t>(top).again(Exp<x_t>(old));
#pragma unroll
                for (int i = 0; i < L::step; i++) sum[0] += Exp<x_t>(top)(up(v.v[i]));
            });
        }
        Exp<x_t> mine(top);
        if constexpr (L::resident) {
            x.each([&](int k, int column) {
                auto v = x.at(k, column);
#pragma unroll
                for (int i = 0; i < L::step; i++) {
                    acc_t e = mine(up(v.v[i]));
                    sum[0] += e;
                    if (keep) kept[k][i] = e;
                }
            });
        }
        team_weigh<x_t, L::Team>(top, sum, 0);
        Exp<x_t> weight(top);
        acc_t scale = (keep ? weight.again(mine) : acc_t(1)) * inverse_near(sum[0]);
        if (!live) return;
        x.convert_again();
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
            Vec<y_t, L::step> y;
#pragma unroll
            for (int i = 0; i < L::step; i++) y.v[i] = down<y_t>((keep ? kept[k][i] : weight(up(v.v[i]))) * scale);
            L::put(a.y.row(row), k, column, y);
        });
    });
}
