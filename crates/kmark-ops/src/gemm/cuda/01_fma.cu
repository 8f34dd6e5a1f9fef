// Tiles of 128x128 or 64x64 with multiply-adds: operands through shared memory, the next step's under way. Where tiles are too few, each is
// multiplied in parts of k, and the block that comes last adds them up; or sets of threads have parts of each step.
// kmark: only dtype=f32,f64
// kmark: let F64 = size==8
//
// What they cost, in clocks of an H200: what a k of T tiles takes where a multiprocessor has up to two of them at once, or six. Parts leave
// their sums in memory. Fitted to 357 times of forms of 21 shapes, 2 to 3 % off in the mean; what it chooses is the fastest of each.
// kmark: let MANY(R,C) = ceil(m,R)*ceil(n,C)
// kmark: let TWOS(T,ONE,TWO) = T/(2*sms)*TWO+(T%(2*sms)==0?0:T%(2*sms)<=sms?ONE:TWO)
// kmark: let SIXES(T) = T/(6*sms)*275+(T%(6*sms)==0?0:T%(6*sms)<=2*sms?127:T%(6*sms)<=4*sms?187:275)
// kmark: let L_TIME(P) = 3700+TWOS(MANY(128,128)*P,270,352)*ceil(k,P)+(P>1)*(16300+1200*P+58*P*MANY(128,128))
// kmark: let M_TIME(P) = 7100+SIXES(MANY(64,64)*P)*ceil(k,P)+(P>1)*(10000+340*P+12*P*MANY(64,64))
// kmark: let S_TIME(P) = 8700+TWOS(MANY(64,64)*P,82,104)*ceil(k,P)+(P>1)*(900+270*P+32*P*MANY(64,64))
// kmark: let MOST = F64?1:max(1,min(16,k/64))
// kmark: let L_PARTS = least(P,1,MOST,1,L_TIME(P))
// kmark: let M_PARTS = least(P,1,MOST,1,M_TIME(P))
// kmark: let S_PARTS = least(P,1,MOST,1,S_TIME(P))
// kmark: let LARGE = !F64&&L_TIME(L_PARTS)<=min(M_TIME(M_PARTS),S_TIME(S_PARTS))
// kmark: let SLICED = F64||!LARGE&&S_TIME(S_PARTS)<M_TIME(M_PARTS)
// kmark: let PARTS = LARGE?L_PARTS:SLICED?S_PARTS:M_PARTS
// kmark: let SIDE = F64?4:8
// kmark: let COLS = LARGE?16:SIDE
// kmark: let DOWN = F64||LARGE?16:8
// kmark: let ACROSS = F64?16:8
// kmark: let SLICES = SLICED&&!F64?4:1
// kmark: let DEPTH = LARGE?8:16
// kmark: let BLOCKS = LARGE||SLICED?2:6
// kmark: let ROWS = DOWN*SIDE
// kmark: let WIDTH = ACROSS*COLS
// kmark: let TILES = MANY(ROWS,WIDTH)
// A counter for each tile, then the parts' sums.
// kmark: let COUNTERS = ceil(TILES,4)*16
// kmark: workspace PARTS>1?COUNTERS+TILES*PARTS*ROWS*WIDTH*size:0 zeroed
// kmark: kernel gemm_fma grid=TILES*PARTS block=DOWN*ACROSS*SLICES shared=2*DEPTH*((ROWS+WIDTH)*size+32)
#include "last.cuh"
#include "product_fma.cuh"

constexpr bool ACROSS_A = LAYOUT == LAYOUT_tn || LAYOUT == LAYOUT_tt, ACROSS_B = LAYOUT == LAYOUT_nn || LAYOUT == LAYOUT_tn;
constexpr int RUN = fma_run<a_t>, SUMS = FMA_ROWS * FMA_COLS;

KERNEL __launch_bounds__(FMA_THREADS, RESIDENT) gemm_fma(const __grid_constant__ Args a) {
    const u32 id = blockIdx.x % (u32)TILES, part = blockIdx.x / (u32)TILES;
    TileAt tile(id, tiles(a.m, FMA_ROWS), tiles(a.n, FMA_COLS));
    i64 row = (i64)tile.row * FMA_ROWS, col = (i64)tile.col * FMA_COLS;
    Panel<a_t> rows = panel<ACROSS_A>(a.a, row, a.m, FMA_ROWS, RUN);
    Panel<b_t> cols = panel<ACROSS_B>(a.b, col, a.n, FMA_COLS, RUN);
    bool whole = a.d.aligned(RUN * sizeof(d_t));
    auto put = [&](int r, int c, a_t (&v)[RUN]) {
        if (r >= rows.count) return;
        #pragma unroll
        for (int e = 0; BIAS && e < RUN; e++)
            if (c + e < cols.count) v[e] += up(a.bias.ptr[col + c + e]);
        put_run(a.d.row(row + r) + col + c, cols.count - c, whole, v);
    };
    if constexpr (PARTS == 1) {
        fma_product<ACROSS_A, ACROSS_B>(rows, cols, a.k, put);
    } else {
        u32 steps = tiles(a.k, DEPTH);
        i64 first = (i64)(steps * part / PARTS) * DEPTH, next = (i64)(steps * (part + 1) / PARTS) * DEPTH;
        rows.at += ACROSS_A ? first * rows.pitch : first, cols.at += ACROSS_B ? first * cols.pitch : first;
        a_t* sums = (a_t*)(a.workspace + COUNTERS) + (i64)id * PARTS * SUMS;
        fma_product<ACROSS_A, ACROSS_B>(rows, cols, (next < a.k ? next : a.k) - first, [&](int r, int c, a_t (&v)[RUN]) {
            put_run(sums + part * SUMS + r * FMA_COLS + c, RUN, true, v);
        });
        if (!last_of((u32*)a.workspace + id, PARTS)) return;
        #pragma unroll 1
        for (int i = threadIdx.x * RUN; i < SUMS; i += FMA_THREADS * RUN) {
            a_t v[RUN] = {};
            #pragma unroll
            for (int p = 0; p < PARTS; p++) {
                Vec<a_t, RUN> more = load<RUN>(sums + p * SUMS + i);
                #pragma unroll
                for (int e = 0; e < RUN; e++) v[e] += more.v[e];
            }
            put(i / FMA_COLS, i % FMA_COLS, v);
        }
    }
}
