// The gradients of attention in f64, each in a kernel of its own: 16 rows of it per block, every pair's p and ds again
// from q, k, v, dout and lse. The slack follows truth/attention/backward.rs.
// kmark: derive q derive_q grid=ceil(q.rows,8) block=256
// kmark: derive k derive_k grid=ceil(k.rows,8) block=256
// kmark: derive o derive_o grid=ceil(sq,16)*hq*b*ceil(d,128) block=128 shared=29952
// kmark: derive lse derive_lse grid=ceil(sq,16)*hq*b block=128 shared=29952
// kmark: workspace (b*hkv*2+b*hq*sq*5)*8
// kmark: kernel longest_rows grid=b*hkv block=256
// kmark: kernel query_facts grid=ceil(b*hq*sq,8) block=256
// kmark: kernel judge_dq grid=ceil(sq,16)*hq*b*ceil(d,128) block=128 shared=54528
// kmark: kernel judge_dk grid=ceil(sk,16)*hkv*b*ceil(d,128) block=128 shared=54528
// kmark: kernel judge_dv grid=ceil(sk,16)*hkv*b*ceil(d,128) block=128 shared=54528
#include "attention_dense.cuh"
#include "loose_truth.cuh"

// ---- The forward's outputs -----------------------------------------------------------------------------------------

KERNEL __launch_bounds__(128) derive_o(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    i64 tiles = (a.sq + TRUTH_BLOCK - 1) / TRUTH_BLOCK, parts = (a.d + TRUTH_WIDTH - 1) / TRUTH_WIDTH, n = blockIdx.x;
    int first = (int)(n % tiles) * TRUTH_BLOCK, col = (int)(n / tiles % parts) * TRUTH_WIDTH;
    i64 head = n / tiles / parts % a.hq, b = n / tiles / parts / a.hq, kv_head = head / (a.hq / a.hkv);
    Softmax<double, TRUTH_ROWS> softmax;
    OutputSums<double, TRUTH_ROWS, TRUTH_COLS> sums;
    attend(softmax, sums, Shared<double, TRUTH_ROWS, TRUTH_COLS>(shared), Sequence{(int)a.sq, (int)a.sk},
           dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head), dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head),
           dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head), first, logit_scale(a.d), (int)a.d, col);
    for (int r = 0; r < TRUTH_ROWS; r++) {
        int i = first + (int)threadIdx.x / 32 * TRUTH_ROWS + r;
        if (i >= a.sq) continue;
        o_t* row = a.o.row(dense_row(b, a.hq, a.sq, head, i));
        for (int c = 0; c < TRUTH_COLS; c++) {
            int x = col + (int)threadIdx.x % 32 + 32 * c;
            if (x < a.d) row[x] = down<o_t>(softmax.total[r] > 0.0 ? sums.value[r][c] / softmax.total[r] : 0.0);
        }
    }
}

struct NoSums {};

KERNEL __launch_bounds__(128) derive_lse(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    i64 tiles = (a.sq + TRUTH_BLOCK - 1) / TRUTH_BLOCK, n = blockIdx.x;
    i64 head = n / tiles % a.hq, b = n / tiles / a.hq, kv_head = head / (a.hq / a.hkv);
    int first = (int)(n % tiles) * TRUTH_BLOCK;
    Softmax<double, TRUTH_ROWS> softmax;
    NoSums none;
    Head<const k_t> k = dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    attend(softmax, none, Shared<double, TRUTH_ROWS, 0>(shared), Sequence{(int)a.sq, (int)a.sk},
           dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head), k, k, first, logit_scale(a.d), (int)a.d, 0);
    for (int r = 0; r < TRUTH_ROWS; r++) {
        int i = first + (int)threadIdx.x / 32 * TRUTH_ROWS + r;
        if (i >= a.sq || threadIdx.x % 32 != 0) continue;
        double lse = softmax.total[r] > 0.0 ? softmax.high[r] + log(softmax.total[r]) : -infinity();
        a.lse.at(b * a.hq + head, i) = down<lse_t>(lse);
    }
}

// ---- The gradients -------------------------------------------------------------------------------------------------

// What a query brings to all its pairs.
struct Facts {
    double delta, delta_size, delta2, q_norm, dout_norm;
};

DEVICE double* longest_k(const Args& a) { return (double*)a.workspace; }
DEVICE double* longest_v(const Args& a) { return (double*)a.workspace + a.b * a.hkv; }
DEVICE Facts* all_facts(const Args& a) { return (Facts*)(a.workspace + a.b * a.hkv * 2 * sizeof(double)); }

KERNEL longest_rows(const __grid_constant__ Args a) {
    i64 b = blockIdx.x / a.hkv, head = blockIdx.x % a.hkv;
    double k = longest_row(dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, head), (int)a.sk, (int)a.d);
    double v = longest_row(dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, head), (int)a.sk, (int)a.d);
    if (threadIdx.x == 0) longest_k(a)[blockIdx.x] = k, longest_v(a)[blockIdx.x] = v;
}

KERNEL query_facts(const __grid_constant__ Args a) {
    i64 n = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (n >= a.b * a.hq * a.sq) return;
    i64 row = dense_row(n / a.sq / a.hq, a.hq, a.sq, n / a.sq % a.hq, n % a.sq);
    Facts f;
    f.delta = row_sum((int)a.d, [&](int x) { return wide(a.dout.at(row, x)) * wide(a.o.at(row, x)); });
    f.delta_size = row_sum((int)a.d, [&](int x) { return fabs(wide(a.dout.at(row, x)) * wide(a.o.at(row, x))); });
    double squares = row_sum((int)a.d, [&](int x) { double e = wide(a.dout.at(row, x)) * wide(a.o.at(row, x)); return e * e; });
    f.delta2 = fmax(squares, f.delta * f.delta);
    f.q_norm = sqrt(row_sum((int)a.d, [&](int x) { return wide(a.q.at(row, x)) * wide(a.q.at(row, x)); }));
    f.dout_norm = sqrt(row_sum((int)a.d, [&](int x) { return wide(a.dout.at(row, x)) * wide(a.dout.at(row, x)); }));
    if (threadIdx.x % 32 == 0) all_facts(a)[n] = f;
}

// What pairs weigh, as tables in shared memory: the weight, how far the accumulator's roundings may move it, and squares
// of what roundings to 16 bits may, those of the weights and those on the way.
enum Table { WEIGHT, OFF, TIGHT2, LOOSE2, TABLES };

// Sums over pairs: weight * x, off * |x|, and both squares times x^2.
struct GradientSums {
    double value[TRUTH_ROWS][TRUTH_COLS], off[TRUTH_ROWS][TRUTH_COLS];
    double tight2[TRUTH_ROWS][TRUTH_COLS], loose2[TRUTH_ROWS][TRUTH_COLS];

    __device__ GradientSums() {
        #pragma unroll
        for (int r = 0; r < TRUTH_ROWS; r++) {
            #pragma unroll
            for (int c = 0; c < TRUTH_COLS; c++) value[r][c] = off[r][c] = tight2[r][c] = loose2[r][c] = 0.0;
        }
    }
    __device__ __forceinline__ void add(const double (&w)[TABLES][TRUTH_ROWS], const double (&x)[TRUTH_COLS]) {
        #pragma unroll
        for (int c = 0; c < TRUTH_COLS; c++) {
            double size = fabs(x[c]), square = x[c] * x[c];
            #pragma unroll
            for (int r = 0; r < TRUTH_ROWS; r++) {
                value[r][c] = fma(w[WEIGHT][r], x[c], value[r][c]);
                off[r][c] = fma(w[OFF][r], size, off[r][c]);
                tight2[r][c] = fma(w[TIGHT2][r], square, tight2[r][c]);
                loose2[r][c] = fma(w[LOOSE2][r], square, loose2[r][c]);
            }
        }
    }
};

enum Gradient { DQ, DK, DV };

// A block's rows of gradient WHICH. For dq they are queries of a head, and the other side are its keys; for dk and dv
// they are keys, and the other side are the queries of all heads of the group.
template <Gradient WHICH, class T> DEVICE void judge_gradient(const Args& a, u8* memory, const Gate<T>& gate) {
    constexpr bool QUERIES = WHICH == DQ;
    Shared<double, TRUTH_ROWS, TRUTH_COLS> mem(memory);
    Sequence seq{(int)a.sq, (int)a.sk};
    i64 len = QUERIES ? a.sq : a.sk, heads = QUERIES ? a.hq : a.hkv, group = a.hq / a.hkv, n = blockIdx.x;
    i64 tiles = (len + TRUTH_BLOCK - 1) / TRUTH_BLOCK, parts = (a.d + TRUTH_WIDTH - 1) / TRUTH_WIDTH;
    int first = (int)(n % tiles) * TRUTH_BLOCK, col = (int)(n / tiles % parts) * TRUTH_WIDTH, d = (int)a.d;
    i64 own_head = n / tiles / parts % heads, b = n / tiles / parts / heads, kv_head = QUERIES ? own_head / group : own_head;
    int last = min(first + TRUTH_BLOCK, (int)len) - 1, own = first + (int)threadIdx.x / 32 * TRUTH_ROWS;
    int begin = QUERIES ? seq.low(first) : seq.first(first), end = QUERIES ? seq.high(last) : seq.last(last);
    Head<const k_t> k = dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Head<const v_t> v = dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    double scale = logit_scale(a.d), u = unit<acc_t>(), row_slack = sum_slack((double)a.d);
    double k_size = longest_k(a)[b * a.hkv + kv_head], v_size = longest_v(a)[b * a.hkv + kv_head];
    double w_unit = weight_unit<T>(), tiny = weight_tiny<T>(), tiny_ds = tiny * fmax(1.0 / scale, 1.0);
    GradientSums sums;
    for (i64 head = QUERIES ? own_head : kv_head * group, stop = QUERIES ? head + 1 : head + group; head < stop; head++) {
        Head<const q_t> q = dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head);
        Head<const dout_t> dout = dense_head(a.dout, HEADS_FIRST, b, a.hq, a.sq, head);
        for (int other = begin; other < end; other += OTHERS) {
            double s[TRUTH_ROWS][2], dp[TRUTH_ROWS][2], off[TRUTH_ROWS][2], tight2[TRUTH_ROWS][2], loose2[TRUTH_ROWS][2];
            products(s, mem, QUERIES ? q : k, first, (int)len, QUERIES ? k : q, other, end, d);
            if (WHICH != DV) products(dp, mem, QUERIES ? dout : v, first, (int)len, QUERIES ? v : dout, other, end, d);
            #pragma unroll
            for (int r = 0; r < TRUTH_ROWS; r++) {
                #pragma unroll
                for (int c = 0; c < 2; c++) {
                    int mine = own + r, theirs = other + (int)threadIdx.x % 32 + 32 * c;
                    int i = QUERIES ? mine : theirs, j = QUERIES ? theirs : mine;
                    double weight = 0.0, weight_off = 0.0, t2 = 0.0, l2 = 0.0;
                    if (seq.sees(i, j)) {
                        Facts f = all_facts(a)[(b * a.hq + head) * a.sq + i];
                        double lse = wide(a.lse.at(b * a.hq + head, i)), logit = scale * s[r][c], p = exp(logit - lse);
                        double rest = 4.0 * u * (fabs(logit) + fabs(lse) + 1.0);
                        double p_off = p * (row_slack * scale * f.q_norm * k_size + rest) + least<acc_t>();
                        // A gradient of a key is a sum over all queries of all heads of its group.
                        double terms = QUERIES ? seq.high(i) - seq.low(i) : (double)(a.sq * group);
                        double spread = scale * f.q_norm * k_size / sqrt((double)d), up2 = w_unit * p * (w_unit * p);
                        double equal2 = is_narrow<T>(spread) ? SIGMAS_EQUAL / SIGMAS * (SIGMAS_EQUAL / SIGMAS) : 1.0;
                        if (WHICH == DV) {
                            weight = p;
                            weight_off = p_off + sum_slack(terms) * p;
                            t2 = up2 * equal2 + tiny * tiny;
                            l2 = up2 * (1.0 + spread * spread) + tiny * tiny;
                        } else {
                            double inner = dp[r][c] - f.delta;
                            weight = p * inner;
                            weight_off = p_off * fabs(inner) + p * row_slack * (f.dout_norm * v_size + f.delta_size) + least<acc_t>();
                            weight_off += sum_slack(terms) * fabs(weight);
                            double uds2 = w_unit * weight * (w_unit * weight);
                            double below = tiny * tiny * inner * inner + tiny_ds * tiny_ds;
                            t2 = uds2 * (1.0 + equal2) + below;
                            l2 = uds2 * (2.0 + spread * spread) + up2 * (dp[r][c] * dp[r][c] + f.delta2) + below;
                        }
                    }
                    s[r][c] = weight;
                    off[r][c] = weight_off;
                    tight2[r][c] = t2;
                    loose2[r][c] = l2;
                }
            }
            __syncwarp(); // the last tile's weights have been read
            put_weights(mem.weights(WEIGHT), s);
            put_weights(mem.weights(OFF), off);
            put_weights(mem.weights(TIGHT2), tight2);
            put_weights(mem.weights(LOOSE2), loose2);
            each_other(mem, WHICH == DQ ? k : WHICH == DK ? q : dout, other, end, col, d,
                       [&](int m, const double (&x)[TRUTH_COLS]) {
                double w[TABLES][TRUTH_ROWS];
                #pragma unroll
                for (int t = 0; t < TABLES; t++) get_weights(w[t], mem.weights(t), m);
                sums.add(w, x);
            });
        }
    }
    Judge<T> judge(gate);
    double by = WHICH == DV ? 1.0 : scale;
    #pragma unroll
    for (int r = 0; r < TRUTH_ROWS; r++) {
        #pragma unroll
        for (int c = 0; c < TRUTH_COLS; c++) {
            int x = col + (int)threadIdx.x % 32 + 32 * c;
            if (own + r >= len || x >= d) continue;
            double slack = by * (SIGMAS * sqrt(sums.tight2[r][c]) + sums.off[r][c]);
            double loose = by * SIGMAS * sqrt(sums.loose2[r][c]) + tiny * (double)group;
            judge.put(dense_row(b, heads, len, own_head, own + r), x, by * sums.value[r][c], slack, 0, loose);
        }
    }
    judge.finish();
}

KERNEL __launch_bounds__(128, 2) judge_dq(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    judge_gradient<DQ>(a, shared, a.dq_gate);
}

KERNEL __launch_bounds__(128, 2) judge_dk(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    judge_gradient<DK>(a, shared, a.dk_gate);
}

KERNEL __launch_bounds__(128, 2) judge_dv(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    judge_gradient<DV>(a, shared, a.dv_gate);
}
