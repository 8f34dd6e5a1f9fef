// Tiles of 128x256, or smaller ones where those would not fill the GPU, with multiply-adds: operands through shared memory, the
// next step's under way.
// kmark: only dtype=f32,f64
// kmark: let SIDE = size==8||ceil(m,128)*ceil(n,128)<sms?4:8
// kmark: let WIDE = SIDE==8&&ceil(ceil(m,128)*ceil(n,256),sms)*20<=ceil(ceil(m,128)*ceil(n,128),sms)*11?2:1
// kmark: let ROWS = 16*SIDE
// kmark: kernel gemm_fma grid=ceil(m,ROWS)*ceil(n,ROWS*WIDE) block=256 shared=2*16*(ROWS*(1+WIDE)*size+32)
#include "product_fma.cuh"

constexpr bool ACROSS_A = LAYOUT == LAYOUT_tn || LAYOUT == LAYOUT_tt, ACROSS_B = LAYOUT == LAYOUT_nn || LAYOUT == LAYOUT_tn;
constexpr int RUN = fma_run<a_t>;

KERNEL __launch_bounds__(FMA_THREADS, FMA_BLOCKS) gemm_fma(const __grid_constant__ Args a) {
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
