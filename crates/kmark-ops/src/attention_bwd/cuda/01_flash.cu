// The gradients of attention on mma.sync: a kernel for dk and dv, one for dq, each makes p and ds again in registers
// (dk and dv from transposed logits, so that no weight passes through shared memory); no sum is shared between blocks.
// kmark: only dtype=f16,bf16
// kmark: require d <= 256
// kmark: constants d
// kmark: workspace b*hq*sq*8
// kmark: kernel query_stats grid=ceil(b*hq*sq,8) block=256
// kmark: kernel dkdv_flash grid=ceil(sk,d<=64?128:64)*hkv*b*(d>128?2:1) block=128 shared=(d<=64?352:d<=128?320:176)*(ceil(d,16)*16+8)*2+1024
// kmark: kernel dq_flash grid=ceil(sq,d<=128?128:64)*hq*b block=128 shared=(d<=64?448:d<=128?352:176)*(ceil(d,16)*16+8)*2+1024
#include "attention_mma.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;

// Weights p and ds are rounded to 16 bits. Those of f16 are made larger, so that a p of 1/100000 is not subnormal.
constexpr float GAIN_BITS = is<q_t, f16> ? 4.0f : 0.0f, GAIN = is<q_t, f16> ? 16.0f : 1.0f;

// What a query brings to all its pairs: p = 2^(logit - lse), ds = p * (dp - delta).
struct alignas(8) Stats {
    float lse, delta;
};

// A warp per query.
KERNEL query_stats(const __grid_constant__ Args a) {
    i64 n = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (n >= a.b * a.hq * a.sq) return;
    i64 head = n / a.sq % a.hq, b = n / a.sq / a.hq, i = n % a.sq;
    const o_t* o = dense_head(a.o, HEADS_FIRST, b, a.hq, a.sq, head).row(i);
    const dout_t* dout = dense_head(a.dout, HEADS_FIRST, b, a.hq, a.sq, head).row(i);
    int lane = threadIdx.x % 32;
    float sum = 0.0f;
    if (in_vectors(a.o) && in_vectors(a.dout)) {
        if (lane * 8 < D) {
            Vec<o_t, 8> x = load<8>(o + lane * 8);
            Vec<dout_t, 8> y = load<8>(dout + lane * 8);
            #pragma unroll
            for (int e = 0; e < 8; e++) sum = fmaf(up(x.v[e]), up(y.v[e]), sum);
        }
    } else {
        for (int x = lane; x < D; x += 32) sum = fmaf(up(dout[x]), up(o[x]), sum);
    }
    sum = warp_all<Add>(sum);
    float lse = a.lse.at(b * a.hq + head, i);
    // A query that sees nothing weighs nothing.
    lse = lse == (float)-infinity() ? (float)infinity() : lse * (float)LOG2_E - GAIN_BITS;
    if (lane == 0) ((Stats*)a.workspace)[n] = Stats{lse, sum};
}

// A block owns rows of one side: keys, whose gradients are dk and dv, or queries, whose gradient is dq. It meets the other
// side's rows OTHERS at a time.
template <bool KEYS, bool DS, bool P, int TILES, int OTHERS> struct Side {
    static constexpr int OWN = WARPS * TILES * 16; // rows of a block, TILES * 16 of them a warp's
    using Pairs = Sums<TILES, OTHERS>;
    using Grads = Sums<TILES, DP>;

    q_t *own1, *own2, *other1, *other2; // k, v, q and dout of the tiles, or q, dout, k and v; two tiles in other1
    Stats* stats;                       // of the tile's queries, two tiles as well; or of the block's
    Sequence seq;
    bool vectors;

    __device__ __forceinline__ Side(void* memory, Sequence s, bool in_vectors) : seq(s), vectors(in_vectors) {
        own1 = (q_t*)memory;
        own2 = own1 + OWN * PITCH;
        other1 = own2 + OWN * PITCH;
        other2 = other1 + 2 * OTHERS * PITCH;
        stats = (Stats*)(other2 + OTHERS * PITCH);
    }

    // Whether the warp's rows `own` .. `own_last` and the tile at `other` have any pair that is seen, and any that is not.
    __device__ __forceinline__ void look(int own, int own_last, int other, bool& some, bool& edge) const {
        int last = other + OTHERS - 1;
        int low = (KEYS ? own - last : other - own_last) - seq.shift();
        int high = (KEYS ? own_last - other : last - own) - seq.shift();
        some = own <= own_last && (!BOUND_HIGH || low <= DIFF_HIGH) && (!BOUND_LOW || high >= DIFF_LOW);
        edge = (BOUND_HIGH && high > DIFF_HIGH) || (BOUND_LOW && low < DIFF_LOW) || (!KEYS && last >= seq.keys);
    }

    // Products become p. `stats` are those of the tile's queries, or of the warp's.
    __device__ __forceinline__ void weigh(Pairs& s, const Stats* stats, int own, int other, bool edge, float scale) const {
        int lane = threadIdx.x % 32;
        each(stats, [&](Stats x, int t, int n, int e) { s.v[t][n][e] = power2(fmaf(s.v[t][n][e], scale, -x.lse)); });
        if (!edge) return;
        // Queries that are not there have an infinite lse; keys that are not there have gradients that nobody writes.
        int mine = own + lane / 4, theirs = other + lane % 4 * 2, diff = (KEYS ? mine - theirs : theirs - mine) - seq.shift();
        #pragma unroll
        for (int t = 0; t < TILES; t++) {
            #pragma unroll
            for (int n = 0; n < OTHERS / 8; n++) {
                #pragma unroll
                for (int e = 0; e < 4; e++) {
                    int r = t * 16 + e / 2 * 8, c = n * 8 + e % 2, here = diff + (KEYS ? r - c : c - r);
                    bool seen = (!BOUND_LOW || here >= DIFF_LOW) && (!BOUND_HIGH || here <= DIFF_HIGH);
                    if (!seen || (!KEYS && theirs + c >= seq.keys)) s.v[t][n][e] = 0.0f;
                }
            }
        }
    }

    // dp becomes ds.
    __device__ __forceinline__ void differ(Pairs& dp, const Pairs& p, const Stats* stats) const {
        each(stats, [&](Stats x, int t, int n, int e) { dp.v[t][n][e] = p.v[t][n][e] * (dp.v[t][n][e] - x.delta); });
    }

    // Calls f(stats of its query, t, n, e) for each element of this lane's pairs.
    template <class F> __device__ __forceinline__ void each(const Stats* stats, F f) const {
        int lane = threadIdx.x % 32;
        if constexpr (KEYS) {
            #pragma unroll
            for (int n = 0; n < OTHERS / 8; n++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                    Stats x = stats[n * 8 + lane % 4 * 2 + e];
                    #pragma unroll
                    for (int t = 0; t < TILES; t++) f(x, t, n, e), f(x, t, n, e + 2);
                }
            }
        } else {
            #pragma unroll
            for (int t = 0; t < TILES; t++) {
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    Stats x = stats[t * 16 + h * 8 + lane / 4];
                    #pragma unroll
                    for (int n = 0; n < OTHERS / 8; n++) f(x, t, n, 2 * h), f(x, t, n, 2 * h + 1);
                }
            }
        }
    }
};

// How much registers and shared memory hold, by head size: rows of a warp in tiles of 16, rows of the other side.
constexpr int KEY_TILES = DP <= 64 ? 2 : 1, KEY_OTHERS = DP <= 64 ? 32 : DP <= 112 ? 64 : DP <= 128 ? 48 : 16;
constexpr int QUERY_TILES = DP <= 128 ? 2 : 1, QUERY_OTHERS = DP <= 64 ? 64 : DP <= 96 || DP == 128 ? 32 : 16;

// dk (DS) and dv (P) of a tile of keys, over all queries of all heads of the group.
template <bool DS, bool P> DEVICE void key_gradients(const Args& a, u8* memory, int n) {
    using Own = Side<true, DS, P, KEY_TILES, KEY_OTHERS>;
    constexpr int OTHERS = KEY_OTHERS;
    int tiles = (int)((a.sk + Own::OWN - 1) / Own::OWN), group = (int)(a.hq / a.hkv);
    int kv_head = n / tiles % (int)a.hkv, b = n / tiles / (int)a.hkv;
    bool vectors = in_vectors(a.q) && in_vectors(a.k) && in_vectors(a.v) && in_vectors(a.dout);
    Own my(memory, Sequence{(int)a.sq, (int)a.sk}, vectors);
    Sequence seq = my.seq;
    int first = n % tiles * Own::OWN, offset = (int)threadIdx.x / 32 * KEY_TILES * 16, own = first + offset;
    int own_last = min(own + KEY_TILES * 16, seq.keys) - 1;
    int begin = seq.first(first), end = seq.last(min(first + Own::OWN, seq.keys) - 1);
    float scale = (float)(logit_scale(D) * LOG2_E);
    typename Own::Pairs s, dp;
    typename Own::Grads dk, dv;
    if (DS) dk.clear();
    if (P) dv.clear();

    // Into half `turn` of the room: queries `i` .. of head `head`, and what goes with them.
    auto load_q = [&](int turn, int head, int i) {
        Head<const q_t> q = dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head);
        load_tile<OTHERS>(my.other1 + turn * OTHERS * PITCH, q, i, seq.queries, vectors);
    };
    auto load_dout = [&](int head, int i) {
        load_tile<OTHERS>(my.other2, dense_head(a.dout, HEADS_FIRST, b, a.hq, a.sq, head), i, seq.queries, vectors);
    };
    auto stats_of = [&](int head, int i) {
        i += threadIdx.x;
        if (threadIdx.x >= OTHERS || i >= seq.queries) return Stats{(float)infinity(), 0.0f};
        return ((const Stats*)a.workspace)[(b * a.hq + head) * a.sq + i];
    };
    auto put_stats = [&](int turn, Stats stats) {
        if (threadIdx.x < OTHERS) my.stats[turn * OTHERS + threadIdx.x] = stats;
    };

    load_tile<Own::OWN>(my.own1, dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head), first, seq.keys, vectors);
    if (DS) load_tile<Own::OWN>(my.own2, dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head), first, seq.keys, vectors);
    int head = kv_head * group, stop = begin < end ? head + group : head, query = begin, turn = 0;
    if (head < stop) {
        load_q(0, head, query);
        load_dout(head, query);
        put_stats(0, stats_of(head, query));
    }
    copy_commit();
    #pragma unroll 1
    while (head < stop) {
        const q_t* q = my.other1 + turn * OTHERS * PITCH;
        const Stats* stats = my.stats + turn * OTHERS;
        bool some, edge, last = query + OTHERS >= end;
        my.look(own, own_last, query, some, edge);
        int now = query;
        query = last ? begin : query + OTHERS;
        head += last;
        turn ^= 1;
        copy_wait<0>();
        __syncthreads(); // this tile is here, the last one's queries have been used
        if (head < stop) load_q(turn, head, query);
        copy_commit();
        Stats next = head < stop ? stats_of(head, query) : Stats{0.0f, 0.0f};
        if (some) rows_times_rows(s, my.own1 + offset * PITCH, q);
        put_stats(turn, next);
        if (some) {
            my.weigh(s, stats, own, now, edge, scale);
            if (DS) rows_times_rows(dp, my.own2 + offset * PITCH, my.other2);
            if (P) weights_times_rows(dv, s, my.other2);
        }
        __syncthreads(); // dout has been used
        if (head < stop) load_dout(head, query);
        copy_commit();
        if (DS && some) {
            my.differ(dp, s, stats);
            weights_times_rows(dk, dp, q);
        }
    }
    copy_wait<0>();
    __syncthreads(); // no copy is under way where the outputs go
    float by = (float)logit_scale(D) / GAIN;
    if (DS) {
        write_rows(dense_out(a.dk, HEADS_FIRST, b, a.hkv, a.sk, kv_head), own, seq.keys, dk, my.own1 + offset * PITCH,
                   in_vectors(a.dk), [&](int, int) { return by; });
    }
    if (P) {
        write_rows(dense_out(a.dv, HEADS_FIRST, b, a.hkv, a.sk, kv_head), own, seq.keys, dv, my.own2 + offset * PITCH,
                   in_vectors(a.dv), [&](int, int) { return 1.0f / GAIN; });
    }
}

KERNEL __launch_bounds__(128, 2) dkdv_flash(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    if constexpr (DP <= 128) {
        key_gradients<true, true>(a, shared, blockIdx.x);
    } else if (blockIdx.x % 2 == 0) { // both would not fit into the registers
        key_gradients<true, false>(a, shared, blockIdx.x / 2);
    } else {
        key_gradients<false, true>(a, shared, blockIdx.x / 2);
    }
}

KERNEL __launch_bounds__(128, 2) dq_flash(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    using Own = Side<false, true, false, QUERY_TILES, QUERY_OTHERS>;
    constexpr int OTHERS = QUERY_OTHERS;
    i64 tiles = (a.sq + Own::OWN - 1) / Own::OWN, head = blockIdx.x / tiles % a.hq, b = blockIdx.x / tiles / a.hq;
    i64 kv_head = head / (a.hq / a.hkv);
    bool vectors = in_vectors(a.q) && in_vectors(a.k) && in_vectors(a.v) && in_vectors(a.dout);
    Own my(shared, Sequence{(int)a.sq, (int)a.sk}, vectors);
    Sequence seq = my.seq;
    // Late queries see more keys under a causal mask: they start first.
    int first = (int)(tiles - 1 - blockIdx.x % tiles) * Own::OWN, offset = (int)threadIdx.x / 32 * QUERY_TILES * 16;
    int own = first + offset, own_last = min(own + QUERY_TILES * 16, seq.queries) - 1;
    int begin = seq.low(first), end = seq.high(min(first + Own::OWN, seq.queries) - 1);
    Head<const k_t> k = dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Head<const v_t> v = dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    float scale = (float)(logit_scale(D) * LOG2_E);
    for (int r = threadIdx.x; r < Own::OWN; r += THREADS) {
        Stats none{(float)infinity(), 0.0f};
        my.stats[r] = first + r < seq.queries ? ((const Stats*)a.workspace)[(b * a.hq + head) * a.sq + first + r] : none;
    }
    Own::Pairs s, dp;
    Own::Grads dq;
    dq.clear();
    load_tile<Own::OWN>(my.own1, dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head), first, seq.queries, vectors);
    load_tile<Own::OWN>(my.own2, dense_head(a.dout, HEADS_FIRST, b, a.hq, a.sq, head), first, seq.queries, vectors);
    if (begin < end) {
        load_tile<OTHERS>(my.other1, k, begin, seq.keys, vectors);
        load_tile<OTHERS>(my.other2, v, begin, seq.keys, vectors);
    }
    copy_commit();
    int turn = 0;
    #pragma unroll 1
    for (int other = begin; other < end; other += OTHERS, turn ^= 1) {
        const k_t* keys = my.other1 + turn * OTHERS * PITCH;
        bool some, edge;
        my.look(own, own_last, other, some, edge);
        copy_wait<0>();
        __syncthreads(); // this tile is here, the last one's keys have been used
        if (other + OTHERS < end) load_tile<OTHERS>(my.other1 + (turn ^ 1) * OTHERS * PITCH, k, other + OTHERS, seq.keys, vectors);
        copy_commit();
        if (some) {
            rows_times_rows(s, my.own1 + offset * PITCH, keys);
            my.weigh(s, my.stats + offset, own, other, edge, scale);
            rows_times_rows(dp, my.own2 + offset * PITCH, my.other2);
        }
        __syncthreads(); // the values have been used
        if (other + OTHERS < end) load_tile<OTHERS>(my.other2, v, other + OTHERS, seq.keys, vectors);
        copy_commit();
        if (some) {
            my.differ(dp, s, my.stats + offset);
            weights_times_rows(dq, dp, keys);
        }
    }
    copy_wait<0>();
    __syncthreads(); // no copy is under way where the output goes
    float by = (float)logit_scale(D) / GAIN;
    write_rows(dense_out(a.dq, HEADS_FIRST, b, a.hq, a.sq, head), own, seq.queries, dq, my.own1 + offset * PITCH,
               in_vectors(a.dq), [&](int, int) { return by; });
}
