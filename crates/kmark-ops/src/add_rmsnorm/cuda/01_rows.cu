// Two rows in the registers of a block, short ones in those of a warp or less: one pass over memory. The rounded sum
// takes the place of x there, and is stored before its mean square is known; an exact one is added up twice instead.
// Where there are few rows, they and their weights are asked for together, and more threads share one. A long row is
// split over a cluster of blocks, which exchange their sums, while later rows come into L2.
// kmark: constants n
// kmark: let ROW = n*size
// kmark: let FEW = m*ROW<=sms*32768
// kmark: let MID = m*ROW<=sms*131072
// kmark: let LARGE = 4*m*ROW>8*l2&&ROW<=524288
// kmark: let TURNED = memory.unaligned&&ROW%16==0&&ROW>=128
// kmark: let CUT = ROW%16>0&&(size>3?ROW>=(FEW?32768:2048):(memory.unaligned||ROW%8>0)&&ROW>(m<=sms?12288:FEW?8192:2048))
// kmark: let ACCESS = CUT||TURNED?16:memory.unaligned?size:ROW%16==0?16:ROW%8==0?8:ROW%4==0?4:size
// kmark: let FITS = ceil(ROW,ACCESS)
// kmark: let LANES = FITS<=2?FITS:FITS<=4?4:FITS<=8||ACCESS==16&&ROW*2<=512?8:FITS<=16||ACCESS==16&&ROW*2<=1024?16:32
// kmark: let WHOLE = ROW>2048||ROW>=1024&&m<=sms*4
// kmark: let BATCH = WHOLE?0:FEW||ROW>768?1:2
// kmark: let WIDEST = max_cluster>1&&max_shared>=200000?16:max_cluster
// kmark: let BLOCKS = ROW<=32768?1:min(WIDEST,ROW<131072||ROW==131072&&!FEW?8:16)
// kmark: let SHARE = ROW<=2048?(ACCESS<16?4:16):ROW<=32768?(FEW||ROW<8192||ACCESS<16?32:64):FEW&&ROW<=524288?32:64
// kmark: let EARLY = MID||ROW>32768
// kmark: let THREADS = WHOLE?min(1024,ceil(ROW,BLOCKS*SHARE*32)*32):128
// kmark: let FIT = WHOLE&&(ROW<=32768||ROW>262144&&sum.rounded)?max(1,(CUT&&(size<4||ROW>32768)?640:1024)/THREADS):1
// kmark: let UNEVEN = FITS%(BLOCKS*THREADS)>0
// kmark: let AHEAD = ROW>32768&&ROW<=524288&&!MID&&(UNEVEN||ROW>262144)?8388608/(2*ROW):0
// kmark: kernel add_rows grid=WHOLE?m*BLOCKS:ceil(m,THREADS/LANES*BATCH) block=THREADS cluster=BLOCKS
#include "rows.cuh"

// Converting f16 takes registers that weights of the longest rows would need.
constexpr bool with_weights = EARLY && !(is<x_t, f16> && ROW > 262144);
using Rows = RowKernel<x_t, N, 2, THREADS, BLOCKS, LANES, BATCH, with_weights, LARGE != 0, start_of(CUT, TURNED)>;
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

struct Held {
    Row<L, x_t> x;
    Row<L, residual_t> residual;
};

KERNEL __launch_bounds__(THREADS, FIT) add_rows(const __grid_constant__ Args a) {
    auto y = y_of(a);
    auto z = z_of(a);
    Rows::Weights<w_t> weights(a.w.ptr);
    auto load = [&](i64 row) {
        Held held{Row<L, x_t>(a.x.row(row)), Row<L, residual_t>(a.residual.row(row))};
        Rows::fetch_later<AHEAD>(a.x, row), Rows::fetch_later<AHEAD>(a.residual, row);
        return held;
    };
    Rows::each(a.m, load, [&](Held& held, i64 row, bool live) {
        Row<L, x_t>& x = held.x;
        Row<L, residual_t>& residual = held.residual;
        acc_t squares = 0;
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
            auto r = residual.at(k, column);
            acc_t sums[L::step];
#pragma unroll
            for (int i = 0; i < L::step; i++) sums[i] = up(v.v[i]) + up(r.v[i]);
            v = unpack(round_all<x_t>(sums));
#pragma unroll
            for (int i = 0; i < L::step; i++) {
                acc_t sum = rounds ? (acc_t)up(v.v[i]) : sums[i];
                squares += sum * sum;
            }
            if (live && early) L::put(z.row(row), k, column, v);
            if constexpr (L::resident && rounds) x.set(k, v);
        });
        acc_t r = inverse_root(team_sum<L::Team>(squares, 0) * (acc_t)(1.0 / N) + (acc_t)EPS);
        if (!live) return;
        if constexpr (!L::resident && rounds) x.row = z.row(row); // this thread reads what it wrote
        x.convert_again();
        if constexpr (!rounds) residual.convert_again();
        x.each([&](int k, int column) {
            auto v = x.at(k, column);
            auto w = weights.at(k, column);
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
