// 128x128 tiles on the tensor cores, operands copied ahead through a ring of stages in shared memory.
// kmark: only dtype=f16,bf16,f8e4m3,f8e5m2,f32
// kmark: require size<4||tf32
// kmark: kernel gemm_mma grid=ceil(m,128)*ceil(n,128) block=256 shared=98304
#include "product_mma.cuh"

constexpr bool ACROSS_A = LAYOUT == LAYOUT_tn || LAYOUT == LAYOUT_tt;
constexpr bool ACROSS_B = LAYOUT == LAYOUT_nn || LAYOUT == LAYOUT_tn;
constexpr int RUN = mma_run<a_t, ACROSS_A, ACROSS_B>;

KERNEL __launch_bounds__(MMA_THREADS) gemm_mma(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    TileAt tile(blockIdx.x, tiles(a.m, MMA_TILE), tiles(a.n, MMA_TILE));
    i64 row = (i64)tile.row * MMA_TILE, col = (i64)tile.col * MMA_TILE;
    Panel<a_t> rows = panel<ACROSS_A>(a.a, row, a.m, MMA_TILE, RUN);
    Panel<b_t> cols = panel<ACROSS_B>(a.b, col, a.n, MMA_TILE, RUN);
    BlockScales scales{};
    if (SCALE == SCALE_block) scales = {a.a_scale.row(row), a.b_scale.row(col / SCALE_BLOCK), (int)a.a_scale.pitch};
    bool whole = a.d.aligned(2 * sizeof(d_t));
    auto put = [&](int r, int c, float (&v)[2]) {
        if (r >= rows.count) return;
        #pragma unroll
        for (int e = 0; e < 2; e++) {
            if (c + e >= cols.count) continue;
            if (SCALE == SCALE_tensor) v[e] *= a.a_scale.ptr[0] * a.b_scale.ptr[0];
            if (SCALE == SCALE_row) v[e] *= a.a_scale.ptr[row + r] * a.b_scale.ptr[col + c + e];
            if (BIAS) v[e] += up(a.bias.ptr[col + c + e]);
        }
        put_run(a.d.row(row + r) + col + c, cols.count - c, whole, v);
    };
    mma_product<ACROSS_A, ACROSS_B, SCALE == SCALE_block>(rows, cols, a.k, scales, shared, put);
}
