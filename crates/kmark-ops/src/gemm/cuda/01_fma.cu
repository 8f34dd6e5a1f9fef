// Tiles of 128x128 (f32) or 64x64 (f64) with multiply-adds: operands through shared memory, the next step's under way.
// kmark: only dtype=f32,f64
// kmark: kernel gemm_fma grid=ceil(m,512/size)*ceil(n,512/size) block=256
#include "product_fma.cuh"

constexpr bool ACROSS_A = LAYOUT == LAYOUT_tn || LAYOUT == LAYOUT_tt, ACROSS_B = LAYOUT == LAYOUT_nn || LAYOUT == LAYOUT_tn;
constexpr int TILE = fma_tile<a_t>, RUN = fma_run<a_t>;

KERNEL __launch_bounds__(FMA_THREADS, fma_blocks<a_t>) gemm_fma(const __grid_constant__ Args a) {
    TileAt tile(blockIdx.x, tiles(a.m, TILE), tiles(a.n, TILE));
    i64 row = (i64)tile.row * TILE, col = (i64)tile.col * TILE;
    Panel<a_t> rows = panel<ACROSS_A>(a.a, row, a.m, TILE, RUN);
    Panel<b_t> cols = panel<ACROSS_B>(a.b, col, a.n, TILE, RUN);
    bool whole = a.d.aligned(RUN * sizeof(d_t));
    fma_product<ACROSS_A, ACROSS_B>(rows, cols, a.k, [&](int r, int c, a_t (&v)[RUN]) {
        if (r >= rows.count) return;
        #pragma unroll
        for (int e = 0; BIAS && e < RUN; e++)
            if (c + e < cols.count) v[e] += up(a.bias.ptr[col + c + e]);
        put_run(a.d.row(row + r) + col + c, cols.count - c, whole, v);
    });
}
