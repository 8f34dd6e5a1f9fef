// 128x128 tiles with multiply-adds, one group after the other where a tile has rows of several.
// kmark: only dtype=f32
// kmark: let SIDE = 8
// kmark: let COLS = 16
// kmark: let DOWN = 16
// kmark: let ACROSS = 8
// kmark: let SLICES = 1
// kmark: let DEPTH = 8
// kmark: let BLOCKS = 2
// kmark: kernel grouped_fma grid=(count.cols>0?g*ceil(m,128):ceil(a.rows,128))*ceil(n,128) block=DOWN*ACROSS shared=2*DEPTH*(256*size+32)
#include "product_fma.cuh"
#include "product_groups.cuh"

constexpr int TILE = FMA_ROWS, RUN = fma_run<a_t>;

KERNEL __launch_bounds__(FMA_THREADS, RESIDENT) grouped_fma(const __grid_constant__ Args a) {
    TileAt tile(blockIdx.x, row_tiles(a, TILE), tiles(a.n, TILE));
    i64 col = (i64)tile.col * TILE;
    bool whole = a.d.aligned(RUN * sizeof(d_t));
    each_group(a, tile.row, TILE, [&](i64 g, i64 first, i64 end) {
        Panel<a_t> rows = panel<false>(a.a, first, end, TILE, RUN);
        Panel<b_t> cols = panel<false>(a.b, g * a.n + col, (g + 1) * a.n, TILE, RUN);
        fma_product<false, false>(rows, cols, a.k, [&](int r, int c, a_t (&v)[RUN]) {
            if (r < rows.count) put_run(a.d.row(first + r) + col + c, cols.count - c, whole, v);
        });
    });
}
