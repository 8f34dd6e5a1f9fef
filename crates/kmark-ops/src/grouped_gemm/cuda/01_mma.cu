// 128x128 tiles on the tensor cores, one group after the other where a tile has rows of several.
// kmark: only dtype=f16,bf16,f8e4m3
// kmark: kernel grouped_mma grid=(count.cols>0?g*ceil(m,128):ceil(a.rows,128))*ceil(n,128) block=256 shared=98304
#include "product_groups.cuh"
#include "product_mma.cuh"

constexpr bool SCALED = sizeof(a_t) == 1;
constexpr int RUN = mma_run<a_t, false, false>;

// Only 8-bit cases have scales, so Args is a template's parameter here.
template <class A> DEVICE BlockScales scales_of(const A& a, i64 row, i64 g, i64 col) {
    if constexpr (SCALED) {
        i64 b_row = g * tiles(a.n, SCALE_BLOCK) + col / SCALE_BLOCK;
        return BlockScales{a.a_scale.row(row), a.b_scale.row(b_row), (int)a.a_scale.pitch};
    } else {
        return BlockScales{};
    }
}

KERNEL __launch_bounds__(MMA_THREADS) grouped_mma(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    TileAt tile(blockIdx.x, row_tiles(a, MMA_TILE), tiles(a.n, MMA_TILE));
    int col = tile.col * MMA_TILE;
    // Rows and columns as int: what lives through the product costs registers there.
    each_group(a, tile.row, MMA_TILE, [&](int g, int first, int end) {
        Panel<a_t> rows = panel<false>(a.a, first, end, MMA_TILE, RUN);
        Panel<b_t> cols = panel<false>(a.b, (i64)g * a.n + col, (i64)(g + 1) * a.n, MMA_TILE, RUN);
        BlockScales scales = scales_of(a, first, g, col);
        mma_product<false, false, SCALED>(rows, cols, a.k, scales, shared, [&](int r, int c, float (&v)[2]) {
            if (r < rows.count) put_run(a.d.row(first + r) + col + c, cols.count - c, a.d.aligned(2 * sizeof(d_t)), v);
        });
    });
}
