// The truth of attention over gathered keys (paged caches, lists of blocks) in f64: inputs with the CPU's bits, and one
// block per few queries that share their keys. Formulas are those of truth/attention.rs.
#pragma once
#include "attention_rounding.cuh"

// ---- Inputs --------------------------------------------------------------------------------------------------------

enum Kind { KIND_PLAIN, KIND_LOUD, KIND_UNUSED };

DEVICE Kind kind_of(i64 position, i64 len) {
    if (position >= len) return KIND_UNUSED;
    return position == 0 || position + 1 == len || position % 37 == 5 ? KIND_LOUD : KIND_PLAIN;
}

constexpr double QUERY_MEAN = 0.25;

DEVICE double loud_mean(i64 width, double scale) { return fmin(4.0 / (QUERY_MEAN * (double)width * scale), 1.5); }

// The thread's element of a grid over all elements.
DEVICE i64 element() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// One element of q per thread.
template <class T> DEVICE void fill_query(const Tensor<T>& q, u64 seed, i64 heads) {
    u64 key = fill_key(seed, "q");
    i64 index = element(), row = index / q.cols;
    if (row >= q.rows) return;
    double v = QUERY_MEAN + normal(key, index);
    q.at(row, index % q.cols) = down<T>(v * row_scale(row_slot(row / heads + row % heads, seed)));
}

// One element of k.
template <class T> DEVICE void put_key(const Tensor<T>& k, u64 key, i64 row, i64 col, double scale, Kind kind) {
    double v = normal(key, row * k.cols + col), loud = loud_mean(k.cols, scale);
    if (kind == KIND_LOUD) v += loud;
    if (kind == KIND_UNUSED) v += 4.0 * loud;
    k.at(row, col) = down<T>(v);
}

// One element of v.
template <class T> DEVICE void put_value(const Tensor<T>& v, u64 key, i64 row, i64 col, Kind kind) {
    double x = normal(key, row * v.cols + col);
    v.at(row, col) = down<T>(kind == KIND_UNUSED ? x * 100.0 : x);
}

// A place in a sequence of a paged cache.
struct Spot {
    bool used;
    i64 row, col; // of the cache
    Kind kind;
};

// The thread's spot, of a grid over all sequences, positions up to the longest, heads and columns. What no thread has
// is unused: behind a sequence's last key, or in a page of nobody.
template <class Table, class Lengths>
DEVICE Spot spot_of(const Table& table, const Lengths& lengths, i64 b, i64 longest, i64 page, i64 heads, i64 cols) {
    i64 index = element(), col = index % cols;
    i64 head = index / cols % heads, position = index / cols / heads % longest, s = index / cols / heads / longest;
    if (s >= b || position >= lengths.at(0, s)) return Spot{false, 0, 0, KIND_UNUSED};
    i64 row = ((i64)table.at(s, position / page) * page + position % page) * heads + head;
    return Spot{true, row, col, kind_of(position, lengths.at(0, s))};
}

// ---- Forward -------------------------------------------------------------------------------------------------------

constexpr int BLOCK_ROWS = 8, TILE_KEYS = 32, TILE_DIMS = 64, BLOCK_THREADS = 256;
constexpr i64 FEW_KEYS = 64;

// What is known of a query when all its keys have been seen.
struct Seen {
    double highest, total, p2, largest, norm, longest;
};

// Judges up to BLOCK_ROWS rows of o, columns blockIdx.y * BLOCK_THREADS and on, and their lse. `at` says which:
// rows (how many), keys (of the sequence), key_row(j), q_row(r), visible(r) (the first keys that row r sees),
// lse_row(r) and lse_col(r). Warp r is row r of the logits; a thread is one column of some rows of the output.
template <class At, class Qs, class Ks, class Vs, class O, class L>
DEVICE void judge_attention(const At& at, const Qs& q, const Ks& k, const Vs& v, i64 dk, i64 dv, double scale,
                            const Gate<O>& o_gate, const Gate<L>& lse_gate) {
    __shared__ double qs[BLOCK_ROWS][TILE_DIMS + 1], ks[TILE_KEYS][TILE_DIMS + 1];
    __shared__ double p[TILE_KEYS][BLOCK_ROWS], norm2[BLOCK_ROWS][TILE_KEYS], shrink[BLOCK_ROWS];
    __shared__ i64 key_rows[TILE_KEYS];
    __shared__ Seen seen[BLOCK_ROWS];
    const double infinity = double_of(0x7ff0000000000000ull);
    const int thread = threadIdx.x, r = thread / TILE_KEYS, j = thread % TILE_KEYS;
    const i64 sees = r < at.rows ? at.visible(r) : 0;

    // Columns of the output: narrow ones leave threads for several rows at once.
    const i64 first = (i64)blockIdx.y * BLOCK_THREADS;
    const int width = (int)(dv - first < BLOCK_THREADS ? dv - first : BLOCK_THREADS);
    const int step = BLOCK_THREADS / width, row0 = thread / width;
    const i64 column = first + thread % width;
    const int mine = row0 < step ? (BLOCK_ROWS - row0 + step - 1) / step : 0; // rows row0, row0 + step, ...

    double o[BLOCK_ROWS], pv2[BLOCK_ROWS], p2v2[BLOCK_ROWS], p2v[BLOCK_ROWS];
#pragma unroll
    for (int i = 0; i < BLOCK_ROWS; i++) o[i] = pv2[i] = p2v2[i] = p2v[i] = 0.0;

    double highest = -infinity, total = 0.0, p2 = 0.0, largest = 0.0, longest2 = 0.0, q2 = 0.0;
    if (r < at.rows) {
        for (i64 d = j; d < dk; d += 32) {
            double x = wide(q.at(at.q_row(r), d));
            q2 = fma(x, x, q2);
        }
    }
    q2 = warp_all<Add>(q2);

    for (i64 start = 0; start < at.keys; start += TILE_KEYS) {
        const int count = (int)(at.keys - start < TILE_KEYS ? at.keys - start : TILE_KEYS);
        __syncthreads(); // the last tile is done with
        if (thread < count) key_rows[thread] = at.key_row(start + thread);

        // Logits, TILE_DIMS at a time. Each warp also squares its part of every key.
        double product = 0.0, square = 0.0;
        for (i64 d0 = 0; d0 < dk; d0 += TILE_DIMS) {
            __syncthreads();
            for (int i = thread; i < TILE_KEYS * TILE_DIMS; i += BLOCK_THREADS) {
                int key = i / TILE_DIMS, d = i % TILE_DIMS;
                ks[key][d] = key < count && d0 + d < dk ? wide(k.at(key_rows[key], d0 + d)) : 0.0;
            }
            for (int i = thread; i < BLOCK_ROWS * TILE_DIMS; i += BLOCK_THREADS) {
                int row = i / TILE_DIMS, d = i % TILE_DIMS;
                qs[row][d] = row < at.rows && d0 + d < dk ? wide(q.at(at.q_row(row), d0 + d)) : 0.0;
            }
            __syncthreads();
#pragma unroll 8
            for (int d = 0; d < TILE_DIMS; d++) product = fma(qs[r][d], ks[j][d], product);
            constexpr int PART = TILE_DIMS / BLOCK_ROWS;
#pragma unroll
            for (int d = 0; d < PART; d++) square = fma(ks[j][r * PART + d], ks[j][r * PART + d], square);
        }
        norm2[r][j] = square;

        // Softmax of row r, carried along.
        const double logit = scale * product;
        const bool visible = start + j < sees;
        const double raised = fmax(highest, warp_all<Max>(visible ? logit : -infinity));
        const double weight = visible ? exp(logit - raised) : 0.0;
        const double old = raised > -infinity ? exp(highest - raised) : 1.0;
        largest = fmax(largest, warp_all<Max>(visible ? fabs(logit) : 0.0));
        total = total * old + warp_all<Add>(weight);
        p2 = p2 * old * old + warp_all<Add>(weight * weight);
        highest = raised;
        p[j][r] = weight;
        if (j == 0) shrink[r] = old;
        __syncthreads();

        double sum = 0.0;
        for (int i = 0; i < BLOCK_ROWS; i++) sum += norm2[i][j];
        longest2 = fmax(longest2, sum);

        // Output and what its slack needs.
#pragma unroll
        for (int i = 0; i < BLOCK_ROWS; i++) {
            if (i >= mine) break;
            double c = shrink[row0 + i * step];
            o[i] *= c, pv2[i] *= c, p2v2[i] *= c * c, p2v[i] *= c * c;
        }
        if (mine > 0) {
#pragma unroll 4
            for (int key = 0; key < count; key++) {
                const double x = wide(v.at(key_rows[key], column));
#pragma unroll
                for (int i = 0; i < BLOCK_ROWS; i++) {
                    if (i >= mine) break;
                    const double weight = p[key][row0 + i * step], pv = weight * x;
                    o[i] += pv;
                    pv2[i] = fma(pv, x, pv2[i]);
                    p2v2[i] = fma(pv, pv, p2v2[i]);
                    p2v[i] = fma(weight, pv, p2v[i]);
                }
            }
        }
    }
    longest2 = warp_all<Max>(longest2);
    if (j == 0) seen[r] = Seen{highest, total, p2, largest, sqrt(q2), sqrt(longest2)};
    __syncthreads();

    Judge<O> judge(o_gate);
    Judge<L> lse_judge(lse_gate);
#pragma unroll
    for (int i = 0; i < BLOCK_ROWS; i++) {
        const int row = row0 + i * step;
        if (i >= mine || row >= at.rows) break;
        const i64 keys = at.visible(row);
        const int region = keys > FEW_KEYS;
        const Seen s = seen[row];
        double expect = 0.0, slack = 0.0, loose = 0.0, lse = -infinity, lse_slack = 0.0;
        if (keys > 0) {
            const double u = unit<acc_t>();
            const double off = sum_slack((double)dk) * scale * s.norm * s.longest + 4.0 * u * s.largest;
            const double inverse = 1.0 / s.total, inverse2 = inverse * inverse, key_rms = s.longest / sqrt((double)dk);
            // Values that are columns of the keys know the errors of the weights.
            const double own = (const void*)k.ptr == (const void*)v.ptr ? fabs(wide(q.at(at.q_row(row), column))) : 0.0;
            const Column<O> c{o[i] / s.total, pv2[i] * inverse, p2v2[i] * inverse2, p2v[i] * inverse2, s.p2 * inverse2,
                              (double)keys, key_rms, scale * s.norm * key_rms, s.norm > 0.0 ? own / s.norm : 0.0,
                              scale * own};
            expect = c.o;
            slack = c.weights() + sum_slack((double)keys) * sqrt(c.pv2) + off * c.deviation();
            loose = c.on_the_way();
            lse = s.highest + log(s.total);
            lse_slack = off + sum_slack((double)keys) + 4.0 * u * (1.0 + fabs(lse));
        }
        judge.put(at.q_row(row), column, expect, slack, region, loose);
        if (lse_gate.out != nullptr && column == 0) {
            lse_judge.put(at.lse_row(row), at.lse_col(row), lse, lse_slack, region);
        }
    }
    judge.finish();
    if (lse_gate.out != nullptr) lse_judge.finish();
}
