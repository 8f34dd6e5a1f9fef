// The product in f64, 64x64 elements per block, and the scales of 8-bit operands.
// kmark: derive a_scale derive_a grid=ceil(a_scale.rows*a_scale.cols,256) block=256
// kmark: derive b_scale derive_b grid=ceil(b_scale.rows*b_scale.cols,256) block=256
// kmark: kernel judge_product grid=ceil(m,64)*ceil(n,64) block=256
#include "product_truth.cuh"

constexpr bool ACROSS_A = LAYOUT == LAYOUT_tn || LAYOUT == LAYOUT_tt, ACROSS_B = LAYOUT == LAYOUT_nn || LAYOUT == LAYOUT_tn;

// A vector of scales has one in each row.
template <class T> DEVICE void derive(const Tensor<T>& scale, u64 key) {
    i64 i = blockIdx.x * 256ll + threadIdx.x, width = SCALE == SCALE_block ? scale.cols : 1;
    if (i < scale.rows * scale.cols) ((float*)scale.ptr)[i] = down<float>(derived_scale(key, i / width, i % width));
}
KERNEL derive_a(const __grid_constant__ Args a) { derive(a.a_scale, fill_key(a.seed, "a_scale")); }
KERNEL derive_b(const __grid_constant__ Args a) { derive(a.b_scale, fill_key(a.seed, "b_scale")); }

// The scale of element x of vector v; `span` vectors share one where scales are per block.
template <class T> DEVICE double scale_of(const Tensor<T>& scale, i64 v, i64 x, int span) {
    if (SCALE == SCALE_tensor) return wide(scale.ptr[0]);
    if (SCALE == SCALE_row) return wide(scale.ptr[v]);
    return wide(scale.at(v / span, x / 128));
}

KERNEL __launch_bounds__(256) judge_product(const __grid_constant__ Args a) {
    i64 across = (a.n + TRUTH_TILE - 1) / TRUTH_TILE;
    i64 row = blockIdx.x / across * TRUTH_TILE, col = blockIdx.x % across * TRUTH_TILE;
    auto of_a = [&](int v, i64 x) {
        i64 i = row + v;
        if (i >= a.m) return 0.0;
        double value = wide(ACROSS_A ? a.a.at(x, i) : a.a.at(i, x));
        return SCALE == SCALE_none ? value : value * scale_of(a.a_scale, i, x, 1);
    };
    auto of_b = [&](int v, i64 x) {
        i64 j = col + v;
        if (j >= a.n) return 0.0;
        double value = wide(ACROSS_B ? a.b.at(x, j) : a.b.at(j, x));
        return SCALE == SCALE_none ? value : value * scale_of(a.b_scale, j, x, 128);
    };
    TruthTile tile;
    tile.multiply<ACROSS_A, ACROSS_B>(a.k, of_a, of_b);

    Judge<d_t> judge(a.d_gate);
    ProductSlack off = product_slack<a_t, d_t>(a.k, SCALE == SCALE_block, TF32);
    double u = unit<acc_t>();
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 4; c++) {
            i64 i = row + tile.row(r), j = col + tile.col(c);
            if (i >= a.m || j >= a.n) continue;
            double d = tile.sum[r][c], bias = BIAS ? wide(a.bias.ptr[j]) : 0.0;
            // Scales multiplied, the product scaled and the bias added: each rounds in the accumulator.
            double after = u * (4.0 * fabs(d) + 2.0 * fabs(bias));
            double size = tile.norm_b[c] * tile.norm_a[r];
            judge.put(i, j, d + bias, off.tight(d, size) + after, 0, off.loose(d, size));
        }
    }
    judge.finish();
}
