// Attention as the oracle sees it, in f64: random q and k, the output with what its slack is made of. The same as in
// truth/attention.rs, which explains it.
#pragma once
#include "attention_fma.cuh"
#include "attention_rounding.cuh"
#include "judge.cuh"

// ---- Inputs --------------------------------------------------------------------------------------------------------

constexpr double QUERY_MEAN = 0.25;

// Element `index` of q, in a row of kind `slot`.
DEVICE double query_value(u64 key, u64 index, u32 slot) {
    return __dmul_rn(__dadd_rn(QUERY_MEAN, normal(key, index)), row_scale(slot));
}

// The first key of a sequence, its last one and some between attract every query.
DEVICE bool is_loud(i64 position, i64 len) { return position == 0 || position + 1 == len || position % 37 == 5; }

// Element `index` of k. `width` is the row length.
DEVICE double key_value(u64 key, u64 index, bool loud, i64 width, double scale) {
    double value = normal(key, index), mean = 4.0 / (QUERY_MEAN * (double)width * scale);
    return loud ? __dadd_rn(value, mean < 1.5 ? mean : 1.5) : value;
}

// The largest norm of the rows of a head; all threads get it.
template <class T> DEVICE double longest_row(Head<const T> rows, int count, int d) {
    double longest2 = 0.0;
    for (int j = threadIdx.x / 32; j < count; j += blockDim.x / 32) {
        double sum = 0.0;
        for (int x = threadIdx.x % 32; x < d; x += 32) {
            double v = wide(rows.row(j)[x]);
            sum = fma(v, v, sum);
        }
        longest2 = fmax(longest2, warp_all<Add>(sum));
    }
    return sqrt(block_max(longest2));
}

// A sum of products of two rows, over a warp.
template <class F> DEVICE double row_sum(int d, F term) {
    double sum = 0.0;
    for (int x = threadIdx.x % 32; x < d; x += 32) sum += term(x);
    return warp_all<Add>(sum);
}

// ---- Slack ---------------------------------------------------------------------------------------------------------

constexpr int TRUTH_ROWS = 4, TRUTH_COLS = 4, TRUTH_BLOCK = TRUTH_ROWS * WARPS, TRUTH_WIDTH = TRUTH_COLS * 32;
constexpr int FEW_KEYS = 64;

// Sums over keys: p * v, p * v^2, (p * v)^2; and p^2 * v and p^2, which only what is rounded on the way asks for.
template <bool ROUNDS> struct TruthSums {
    double value[TRUTH_ROWS][TRUTH_COLS], pv2[TRUTH_ROWS][TRUTH_COLS], p2v2[TRUTH_ROWS][TRUTH_COLS];
    double p2v[TRUTH_ROWS][TRUTH_COLS], p2[TRUTH_ROWS];

    __device__ TruthSums() {
        #pragma unroll
        for (int r = 0; r < TRUTH_ROWS; r++) {
            p2[r] = 0.0;
            #pragma unroll
            for (int c = 0; c < TRUTH_COLS; c++) value[r][c] = pv2[r][c] = p2v2[r][c] = p2v[r][c] = 0.0;
        }
    }
    __device__ __forceinline__ void rescale(int r, double by) {
        p2[r] *= by * by;
        #pragma unroll
        for (int c = 0; c < TRUTH_COLS; c++) {
            value[r][c] *= by, pv2[r][c] *= by, p2v2[r][c] *= by * by;
            if (ROUNDS) p2v[r][c] *= by * by;
        }
    }
    __device__ __forceinline__ void add(const double (&p)[TRUTH_ROWS], const double (&v)[TRUTH_COLS]) {
        #pragma unroll
        for (int r = 0; r < TRUTH_ROWS; r++) {
            if (ROUNDS) p2[r] = fma(p[r], p[r], p2[r]);
            #pragma unroll
            for (int c = 0; c < TRUTH_COLS; c++) {
                double term = p[r] * v[c];
                value[r][c] += term;
                pv2[r][c] = fma(term, v[c], pv2[r][c]);
                p2v2[r][c] = fma(term, term, p2v2[r][c]);
                if (ROUNDS) p2v[r][c] = fma(p[r], term, p2v[r][c]);
            }
        }
    }
};

// Puts TRUTH_BLOCK queries from `first` on of one head, columns from `col` on. put_o(i, x, expect, slack, region, loose)
// gets every element, put_lse(i, expect, slack, region) every query. `longest` is the largest norm of a key of the head.
template <class T, class PutO, class PutLse>
DEVICE void judge_queries(void* memory, Sequence seq, Head<const T> q, Head<const T> k, Head<const T> v, int first, int d,
                          int col, double longest, PutO put_o, PutLse put_lse) {
    Softmax<double, TRUTH_ROWS> softmax;
    TruthSums<sizeof(T) == 2> sums;
    double scale = logit_scale(d), u = unit<acc_t>(), key_rms = longest / sqrt((double)d);
    attend(softmax, sums, Shared<double, TRUTH_ROWS, TRUTH_COLS>(memory), seq, q, k, v, first, scale, d, col);
    #pragma unroll
    for (int r = 0; r < TRUTH_ROWS; r++) {
        int i = first + (int)threadIdx.x / 32 * TRUTH_ROWS + r;
        if (i >= seq.queries) continue; // the same in all lanes
        int keys = seq.high(i) - seq.low(i), region = keys > FEW_KEYS;
        double norm = sqrt(row_sum(d, [&](int x) { double e = wide(q.row(i)[x]); return e * e; }));
        double off = sum_slack(d) * scale * norm * longest + 4.0 * u * softmax.largest[r];
        double total = softmax.total[r], inverse = 1.0 / total, inverse2 = inverse * inverse;
        #pragma unroll
        for (int c = 0; c < TRUTH_COLS; c++) {
            int x = col + (int)threadIdx.x % 32 + 32 * c;
            if (x >= d) continue;
            Column<T> column{sums.value[r][c] / total, sums.pv2[r][c] * inverse, sums.p2v2[r][c] * inverse2,
                             sums.p2v[r][c] * inverse2, sums.p2[r] * inverse2, (double)keys, key_rms,
                             scale * norm * key_rms, 0.0, 0.0};
            double slack = column.weights() + sum_slack(keys) * sqrt(column.pv2) + off * column.deviation();
            if (keys > 0) put_o(i, x, column.o, slack, region, column.on_the_way());
            else put_o(i, x, 0.0, 0.0, region, 0.0);
        }
        if (col > 0 || threadIdx.x % 32 > 0) continue;
        double lse = softmax.high[r] + log(total);
        if (keys > 0) put_lse(i, lse, off + sum_slack(keys) + 4.0 * u * (1.0 + fabs(lse)), region);
        else put_lse(i, -infinity(), 0.0, region);
    }
}
