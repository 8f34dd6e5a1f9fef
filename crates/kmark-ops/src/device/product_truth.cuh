// A product of matrices as the oracle sees it, in f64: the same as in truth/product.rs, which explains it.
#pragma once
#include "kmark.cuh"

// The scale in row `row` and column `col` of a scale tensor.
DEVICE double derived_scale(u64 key, i64 row, i64 col) {
    u32 random = philox(key, (u64)row << 32 | (u64)col).v[0];
    double power = (double)(1 << (2 * row + col) % 5);
    return 0.25 * power * (1.0 + 0.25 * (double)(random >> 8) / 16777216.0);
}

// How far a product over `k` may be off, as factors of the norms of its two vectors. T: the operands' type, O: that of the
// product; in `blocks` scales differ along k; f32 in `tf32` may be multiplied by tensor cores.
struct ProductSlack {
    double chain, lost, parts, in_place, step, unit;
    __device__ double tight(double d, double size) const {
        double walk = 3.0 * sqrt(size * size / 6.0 + d / step * (d / step) / 3.0);
        return fmax(chain * size, unit * (walk + 8.0 * step * size)) + lost * size;
    }
    __device__ double loose(double d, double size) const {
        return parts * size + 6.0 * in_place * sqrt(d * d + step * size * (step * size));
    }
};
template <class T, class O> DEVICE ProductSlack product_slack(i64 k, bool blocks, bool tf32 = false) {
    double root = sqrt((double)k), step = (blocks ? 1.75 : 1.0) / root;
    double chain = unit<acc_t>() * (3.0 + 8.0 / root), cut = sizeof(T) <= 2 ? unit<acc_t>() * root / 8.0 : tf32 ? unit<acc_t>() * root / 4.0 : 0.0;
    double shortened = sizeof(T) == 1 ? step * (1.2e-3 + 2e-2 / sqrt((double)(k > 128 ? k : 128))) : 0.0;
    double in_place = sizeof(T) == 2 && sizeof(O) == 2 ? unit<O>() : 0.0;
    double parts = sizeof(T) == 1 && sizeof(O) == 2 ? step * (4.0 * unit<O>() + 3e-4 * root) : 0.0;
    return ProductSlack{chain, shortened + cut, parts, in_place, step, unit<acc_t>()};
}

constexpr int TRUTH_TILE = 64, TRUTH_DEPTH = 16, TRUTH_THREADS = 256;

// 64x64 elements, 4x4 per thread, and the norms of their vectors.
struct TruthTile {
    double sum[4][4], norm_a[4], norm_b[4];

    // In the tile, of this thread's rows and columns.
    static __device__ int row(int i) { return threadIdx.x / 16 + 16 * i; }
    static __device__ int col(int j) { return threadIdx.x % 16 + 16 * j; }

    // a(v, x) and b(v, x): element x of vector v of the tile, with its scale; 0 beyond the edges. ACROSS: neighbours in
    // memory are of different vectors. Neighbouring threads read neighbours.
    template <bool ACROSS_A, bool ACROSS_B, class A, class B> __device__ void multiply(i64 k, A a, B b) {
        // Columns: 64 vectors of a, 64 of b, and one so that stores along k hit different banks.
        __shared__ double tile[TRUTH_DEPTH][2 * TRUTH_TILE + 1];
        __shared__ double norms[2 * TRUTH_TILE];
        double own = 0.0;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) sum[i][j] = 0.0;
        for (i64 start = 0; start < k; start += TRUTH_DEPTH) {
            __syncthreads();
            #pragma unroll
            for (int p = 0; p < 4; p++) {
                int t = threadIdx.x;
                int va = ACROSS_A ? t % 64 : t / 16 + 16 * p, xa = ACROSS_A ? t / 64 + 4 * p : t % 16;
                int vb = ACROSS_B ? t % 64 : t / 16 + 16 * p, xb = ACROSS_B ? t / 64 + 4 * p : t % 16;
                tile[xa][va] = start + xa < k ? a(va, start + xa) : 0.0;
                tile[xb][TRUTH_TILE + vb] = start + xb < k ? b(vb, start + xb) : 0.0;
            }
            __syncthreads();
            // Parts of a sum first: their roundings are small.
            double part[4][4] = {};
            #pragma unroll
            for (int x = 0; x < TRUTH_DEPTH; x++) {
                double va[4], vb[4];
                for (int i = 0; i < 4; i++) va[i] = tile[x][row(i)], vb[i] = tile[x][TRUTH_TILE + col(i)];
                for (int i = 0; i < 4; i++)
                    for (int j = 0; j < 4; j++) part[i][j] = fma(va[i], vb[j], part[i][j]);
            }
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += part[i][j];
            if (threadIdx.x < 2 * TRUTH_TILE) {
                for (int x = 0; x < TRUTH_DEPTH; x++) own = fma(tile[x][threadIdx.x], tile[x][threadIdx.x], own);
            }
        }
        if (threadIdx.x < 2 * TRUTH_TILE) norms[threadIdx.x] = sqrt(own);
        __syncthreads();
        for (int i = 0; i < 4; i++) norm_a[i] = norms[row(i)], norm_b[i] = norms[TRUTH_TILE + col(i)];
    }
};
