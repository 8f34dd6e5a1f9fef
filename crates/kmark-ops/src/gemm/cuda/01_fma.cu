// Tiles of 128x256, or of 64x64 or 64x32 where those would leave multiprocessors idle, with multiply-adds: operands through shared
// memory, the next step's under way.
// kmark: only dtype=f32,f64
// kmark: let F64 = size==8
// Tiles of 128x256 take eight times as long as those of 64x64, less a tenth.
// kmark: let LARGE = !F64&&ceil(ceil(m,128)*ceil(n,256),sms)*80<=ceil(ceil(m,64)*ceil(n,64),sms)*11
// Those of 64x32 read more for each product: by estimate they take six tenths of the time of 64x64.
// kmark: let HALF = !F64&&!LARGE&&ceil(ceil(m,64)*ceil(n,32),sms)*6<ceil(ceil(m,64)*ceil(n,64),sms)*10
// kmark: let SIDE = F64?4:8
// kmark: let COLS = LARGE?16:HALF?4:SIDE
// kmark: let DOWN = F64||LARGE?16:8
// kmark: let ACROSS = DOWN
// kmark: let SLICES = F64||LARGE?1:4
// kmark: let DEPTH = HALF?32:16
// kmark: let ROWS = DOWN*SIDE
// kmark: let WIDTH = ACROSS*COLS
// kmark: let BLOCKS = LARGE?1:2
// kmark: kernel gemm_fma grid=ceil(m,ROWS)*ceil(n,WIDTH) block=DOWN*ACROSS*SLICES shared=2*DEPTH*((ROWS+WIDTH)*size+32)
#include "product_fma.cuh"

constexpr bool ACROSS_A = LAYOUT == LAYOUT_tn || LAYOUT == LAYOUT_tt, ACROSS_B = LAYOUT == LAYOUT_nn || LAYOUT == LAYOUT_tn;
constexpr int RUN = fma_run<a_t>;

KERNEL __launch_bounds__(FMA_THREADS, BLOCKS) gemm_fma(const __grid_constant__ Args a) {
    TileAt tile(blockIdx.x, tiles(a.m, FMA_ROWS), tiles(a.n, FMA_COLS));
    i64 row = (i64)tile.row * FMA_ROWS, col = (i64)tile.col * FMA_COLS;
    Panel<a_t> rows = panel<ACROSS_A>(a.a, row, a.m, FMA_ROWS, RUN);
    Panel<b_t> cols = panel<ACROSS_B>(a.b, col, a.n, FMA_COLS, RUN);
    bool whole = a.d.aligned(RUN * sizeof(d_t));
    fma_product<ACROSS_A, ACROSS_B>(rows, cols, a.k, [&](int r, int c, a_t (&v)[RUN]) {
        if (r >= rows.count) return;
        #pragma unroll
        for (int e = 0; BIAS && e < RUN; e++)
            if (c + e < cols.count) v[e] += up(a.bias.ptr[col + c + e]);
        put_run(a.d.row(row + r) + col + c, cols.count - c, whole, v);
    });
}
