// Each group's product in f64, 64x64 elements per block; padding rows are nobody's.
// kmark: derive a_scale derive_a grid=ceil(a_scale.rows*a_scale.cols,256) block=256
// kmark: derive b_scale derive_b grid=ceil(b_scale.rows*b_scale.cols,256) block=256
// kmark: workspace 16*g
// kmark: kernel no_rows grid=ceil(g,256) block=256
// kmark: kernel find_rows grid=ceil(a.rows,256) block=256
// kmark: kernel judge_groups grid=g*ceil(m,64)*ceil(n,64) block=256
// kmark: kernel judge_padding grid=a.rows block=128
#include "product_truth.cuh"

constexpr bool SCALED = sizeof(a_t) == 1;

// Args is a template's parameter wherever scales are named: only 8-bit cases have them.
template <class T> DEVICE void derive(const Tensor<T>& scale, u64 key) {
    i64 i = blockIdx.x * 256ll + threadIdx.x;
    if (i < scale.rows * scale.cols) ((float*)scale.ptr)[i] = down<float>(derived_scale(key, i / scale.cols, i % scale.cols));
}
template <class A> DEVICE void derive_both(const A& a, bool of_a) {
    if constexpr (SCALED) {
        if (of_a) derive(a.a_scale, fill_key(a.seed, "a_scale"));
        else derive(a.b_scale, fill_key(a.seed, "b_scale"));
    }
}
KERNEL derive_a(const __grid_constant__ Args a) { derive_both(a, true); }
KERNEL derive_b(const __grid_constant__ Args a) { derive_both(a, false); }

// First row of each group and the one behind its last.
struct Extent { i64 first, end; };

KERNEL no_rows(const __grid_constant__ Args a) {
    i64 g = blockIdx.x * 256ll + threadIdx.x;
    if (g < a.g) ((Extent*)a.workspace)[g] = Extent{0, 0};
}

KERNEL find_rows(const __grid_constant__ Args a) {
    i64 row = blockIdx.x * 256ll + threadIdx.x;
    Extent* extents = (Extent*)a.workspace;
    if (FORM == FORM_masked) {
        if (row < a.g) extents[row] = Extent{row * a.m, row * a.m + a.count.ptr[row]};
    } else if (row < a.a.rows && a.group.ptr[row] >= 0) {
        int g = a.group.ptr[row];
        if (row == 0 || a.group.ptr[row - 1] != g) extents[g].first = row;
        if (row + 1 == a.a.rows || a.group.ptr[row + 1] != g) extents[g].end = row + 1;
    }
}

template <class A> DEVICE double scale_of_a(const A& a, i64 row, i64 x) {
    if constexpr (SCALED) return wide(a.a_scale.at(row, x / 128));
    else return 1.0;
}
// Blocks of columns start anew in every group.
template <class A> DEVICE double scale_of_b(const A& a, i64 g, i64 col, i64 x) {
    if constexpr (SCALED) return wide(a.b_scale.at(g * ((a.n + 127) / 128) + col / 128, x / 128));
    else return 1.0;
}

KERNEL __launch_bounds__(256) judge_groups(const __grid_constant__ Args a) {
    i64 across = (a.n + TRUTH_TILE - 1) / TRUTH_TILE, deep = (a.m + TRUTH_TILE - 1) / TRUTH_TILE;
    i64 g = blockIdx.x / (across * deep), in_group = blockIdx.x % (across * deep);
    Extent extent = ((const Extent*)a.workspace)[g];
    i64 row = extent.first + in_group / across * TRUTH_TILE, col = in_group % across * TRUTH_TILE;
    Judge<d_t> judge(a.d_gate);
    if (row < extent.end) {
        auto of_a = [&](int v, i64 x) {
            i64 i = row + v;
            return i < extent.end ? wide(a.a.at(i, x)) * scale_of_a(a, i, x) : 0.0;
        };
        auto of_b = [&](int v, i64 x) {
            i64 j = col + v;
            return j < a.n ? wide(a.b.at(g * a.n + j, x)) * scale_of_b(a, g, j, x) : 0.0;
        };
        TruthTile tile;
        tile.multiply<false, false>(a.k, of_a, of_b);
        ProductSlack off = product_slack<a_t, d_t>(a.k, SCALED);
        double u = unit<acc_t>();
        for (int r = 0; r < 4; r++) {
            for (int c = 0; c < 4; c++) {
                i64 i = row + tile.row(r), j = col + tile.col(c);
                if (i >= extent.end || j >= a.n) continue;
                double d = tile.sum[r][c], size = tile.norm_b[c] * tile.norm_a[r];
                judge.put(i, j, d, off.tight(d, size) + 4.0 * u * fabs(d), 0, off.loose(d, size));
            }
        }
    }
    judge.finish();
}

KERNEL judge_padding(const __grid_constant__ Args a) {
    i64 row = blockIdx.x;
    bool padding = FORM == FORM_masked ? row % a.m >= a.count.ptr[row / a.m] : a.group.ptr[row] < 0;
    Judge<d_t> judge(a.d_gate);
    for (i64 col = threadIdx.x; padding && col < a.n; col += blockDim.x) judge.put(row, col, 0.0, double_of(0x7ff0000000000000ull));
    judge.finish();
}
