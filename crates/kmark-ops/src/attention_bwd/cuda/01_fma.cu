// The gradients of attention in f32 or f64 with plain multiply-adds: one kernel for dq, one for dk and dv, each makes p and
// ds again; no sum is shared between blocks.
// kmark: only dtype=f32,f64
// kmark: require d <= 256
// kmark: constants d
// kmark: workspace b*hq*sq*size
// kmark: kernel row_deltas grid=ceil(b*hq*sq,8) block=256
// kmark: kernel dq_fma grid=ceil(sq,size==8?16:32)*hq*b block=128 shared=(max(size==8?80*34:96*36,512*ceil(d,32))+64*(size==8?16:32))*size
// kmark: kernel dkdv_fma grid=ceil(sk,size==8?16:32)*hkv*b block=128 shared=(max(size==8?80*34:96*36,512*ceil(d,32))+128*(size==8?16:32))*size
#include "attention_fma.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;
constexpr int COLS = (D + 31) / 32;
using Tiles = Shared<acc_t, FMA_ROWS, COLS>;
using Grads = OutputSums<acc_t, FMA_ROWS, COLS>;
using Pairs = acc_t[FMA_ROWS][2];

// delta = sum(dout * o) of every query; a warp each.
KERNEL row_deltas(const __grid_constant__ Args a) {
    i64 n = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (n >= a.b * a.hq * a.sq) return;
    i64 head = n / a.sq % a.hq, b = n / a.sq / a.hq, i = n % a.sq;
    const o_t* o = dense_head(a.o, HEADS_FIRST, b, a.hq, a.sq, head).row(i);
    const dout_t* dout = dense_head(a.dout, HEADS_FIRST, b, a.hq, a.sq, head).row(i);
    acc_t sum = 0;
    #pragma unroll
    for (int x = threadIdx.x % 32; x < D; x += 32) sum = fused(up(dout[x]), up(o[x]), sum);
    sum = warp_all<Add>(sum);
    if (threadIdx.x % 32 == 0) ((acc_t*)a.workspace)[n] = sum;
}

// s becomes p, and dp becomes ds without the scale.
DEVICE void weigh(acc_t& s, acc_t& dp, bool seen, acc_t lse, acc_t delta, acc_t scale) {
    s = seen ? exponential(s * scale - lse) : acc_t(0);
    dp = seen ? s * (dp - delta) : acc_t(0);
}

DEVICE void add_weighted(Grads& sums, Tiles mem, int table, const Pairs& weights, Head<const q_t> rows, int first, int end) {
    __syncwarp(); // the last tile's weights have been read
    put_weights(mem.weights(table), weights);
    each_other(mem, rows, first, end, 0, (int)D, [&](int n, const acc_t (&x)[COLS]) {
        acc_t w[FMA_ROWS];
        get_weights(w, mem.weights(table), n);
        sums.add(w, x);
    });
}

KERNEL __launch_bounds__(128, 2) dq_fma(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    Tiles mem(shared);
    Sequence seq{(int)a.sq, (int)a.sk};
    i64 tiles = (a.sq + FMA_BLOCK - 1) / FMA_BLOCK, head = blockIdx.x / tiles % a.hq, b = blockIdx.x / tiles / a.hq;
    // Late queries see more keys under a causal mask: they start first.
    int first = (int)(tiles - 1 - blockIdx.x % tiles) * FMA_BLOCK, own = first + (int)threadIdx.x / 32 * FMA_ROWS;
    i64 kv_head = head / (a.hq / a.hkv);
    Head<const q_t> q = dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head);
    Head<const dout_t> dout = dense_head(a.dout, HEADS_FIRST, b, a.hq, a.sq, head);
    Head<const k_t> k = dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Head<const v_t> v = dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    const lse_t* lse = a.lse.row(b * a.hq + head);
    const acc_t* delta = (const acc_t*)a.workspace + (b * a.hq + head) * a.sq;
    acc_t scale = (acc_t)logit_scale(D);
    Grads dq;
    #pragma unroll 1
    for (int key = seq.low(first), end = seq.high(min(first + FMA_BLOCK, seq.queries) - 1); key < end; key += OTHERS) {
        Pairs s, dp;
        products(s, mem, q, first, seq.queries, k, key, end, (int)D);
        products(dp, mem, dout, first, seq.queries, v, key, end, (int)D);
        #pragma unroll
        for (int r = 0; r < FMA_ROWS; r++) {
            int i = min(own + r, seq.queries - 1);
            acc_t row_lse = lse[i], row_delta = delta[i];
            #pragma unroll
            for (int c = 0; c < 2; c++) {
                bool seen = seq.sees(own + r, key + (int)threadIdx.x % 32 + 32 * c);
                weigh(s[r][c], dp[r][c], seen, row_lse, row_delta, scale);
            }
        }
        add_weighted(dq, mem, 0, dp, k, key, end);
    }
    Head<dq_t> out = dense_out(a.dq, HEADS_FIRST, b, a.hq, a.sq, head);
    #pragma unroll
    for (int r = 0; r < FMA_ROWS; r++) if (own + r < seq.queries) dq.write(out.row(own + r), r, scale, (int)D);
}

KERNEL __launch_bounds__(128, 2) dkdv_fma(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    Tiles mem(shared);
    Sequence seq{(int)a.sq, (int)a.sk};
    i64 tiles = (a.sk + FMA_BLOCK - 1) / FMA_BLOCK, kv_head = blockIdx.x / tiles % a.hkv, b = blockIdx.x / tiles / a.hkv;
    int first = (int)(blockIdx.x % tiles) * FMA_BLOCK, own = first + (int)threadIdx.x / 32 * FMA_ROWS;
    int begin = seq.first(first), end = seq.last(min(first + FMA_BLOCK, seq.keys) - 1);
    Head<const k_t> k = dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Head<const v_t> v = dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    acc_t scale = (acc_t)logit_scale(D);
    Grads dk, dv;
    i64 group = a.hq / a.hkv;
    #pragma unroll 1
    for (i64 head = kv_head * group; head < (kv_head + 1) * group; head++) {
        Head<const q_t> q = dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head);
        Head<const dout_t> dout = dense_head(a.dout, HEADS_FIRST, b, a.hq, a.sq, head);
        const lse_t* lse = a.lse.row(b * a.hq + head);
        const acc_t* delta = (const acc_t*)a.workspace + (b * a.hq + head) * a.sq;
        #pragma unroll 1
        for (int query = begin; query < end; query += OTHERS) {
            Pairs s, dp;
            products(s, mem, k, first, seq.keys, q, query, end, (int)D);
            products(dp, mem, v, first, seq.keys, dout, query, end, (int)D);
            #pragma unroll
            for (int c = 0; c < 2; c++) {
                int i = query + (int)threadIdx.x % 32 + 32 * c, held = min(i, seq.queries - 1);
                acc_t row_lse = lse[held], row_delta = delta[held];
                #pragma unroll
                for (int r = 0; r < FMA_ROWS; r++) weigh(s[r][c], dp[r][c], seq.sees(i, own + r), row_lse, row_delta, scale);
            }
            add_weighted(dv, mem, 0, s, dout, query, end);
            add_weighted(dk, mem, 1, dp, q, query, end);
        }
    }
    Head<dk_t> dk_out = dense_out(a.dk, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Head<dv_t> dv_out = dense_out(a.dv, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    #pragma unroll
    for (int r = 0; r < FMA_ROWS; r++) {
        if (own + r >= seq.keys) continue;
        dk.write(dk_out.row(own + r), r, scale, (int)D);
        dv.write(dv_out.row(own + r), r, acc_t(1), (int)D);
    }
}
