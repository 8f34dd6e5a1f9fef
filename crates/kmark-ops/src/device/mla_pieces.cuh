// Ragged sequences in equal shares for blocks that stay: who takes which blocks of keys, found out by each from the lengths
// alone, and what becomes of sequences that several share. Sequences lie one after another on a line, each with OVERHEAD to
// spare for what beginning and ending one costs; the line is cut into PARTS. The file says OVERHEAD, LEAST (length of a part, at
// least), TILES (of 64 query rows, each with blocks of its own), PARTS, and what `mla_shared.cuh` wants.
#pragma once
#include "mla_shared.cuh"

DEVICE int blocks_of(int keys) { return (keys + 63) / 64; }
DEVICE int cost_of(int keys) { return blocks_of(keys) + OVERHEAD; }

// The last sequence of a part and where it begins. One warp; all its lanes get it.
DEVICE Plan plan_part(const Args& a, int part) {
    int lane = threadIdx.x % 32, all = 0, count = (int)a.b;
    for (int s = lane; s < count; s += 32) all += cost_of(a.lengths.ptr[s]);
    all = warp_all<Add>(all);
    int each = max((all + PARTS - 1) / PARTS, LEAST), before = 0;
    int last = min((part + 1) * each, all) - 1;
    for (int s = lane;; s += 32) {
        int keys = s < count ? a.lengths.ptr[s] : 0, own = s < count ? cost_of(keys) : 0, sum = own;
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int left = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += left;
        }
        u32 beyond = __ballot_sync(~0u, before + sum > last);
        if (beyond) {
            int found = __ffs(beyond) - 1;
            auto of_found = [&](int v) { return __shfl_sync(~0u, v, found); };
            return Plan{each, part * each < all, of_found(s), of_found(keys), before + of_found(sum - own)};
        }
        before += __shfl_sync(~0u, sum, 31);
    }
}

// Blocks `first` to `end` of sequence s, which parts `from` to `to` share.
struct Piece {
    int s, keys, first, end, from, to;
    __device__ __forceinline__ int sharers() const { return to - from + 1; }
};

// From the last sequence of the part to the first: what others wait for, the beginning of a sequence, comes first, and what may
// have to wait for others, the end of one, last. A sequence without keys is a piece of no blocks.
template <class F> DEVICE void each_piece(const Args& a, const Plan& plan, int part, F body) {
    if (!plan.any) return;
    int begin = part * plan.each, s = plan.last, at = plan.at, keys = plan.keys;
    while (true) {
        int before = s > 0 ? a.lengths.ptr[s - 1] : 0; // on its way while the piece is worked on
        int count = blocks_of(keys), zero = at + OVERHEAD / 2;
        int first = min(max(begin - zero, 0), count), end = min(max(begin + plan.each - zero, 0), count);
        bool has = count > 0 ? first < end : zero >= begin && zero < begin + plan.each;
        if (has) body(Piece{s, keys, first, end, zero / plan.each, (zero + max(count - 1, 0)) / plan.each});
        if (at <= begin || s == 0) return;
        s--, keys = before, at -= cost_of(keys);
    }
}

// ---- Parts of results ----------------------------------------------------------------------------------------------

// A part has room for two: a sequence that it ends, and one that it begins.
constexpr int PART_FLOATS = 64 * 512 + 128;
DEVICE float* part_at(const Args& a, int part, bool begins, int tile) {
    constexpr int COUNTERS = (PARTS * TILES * 4 + 255) / 256 * 256;
    return (float*)(a.workspace + COUNTERS) + ((i64)(part * 2 + begins) * TILES + tile) * PART_FLOATS;
}
DEVICE u32* counter_of(const Args& a, const Piece& p, int tile) { return (u32*)a.workspace + p.from * TILES + tile; }

// The sums of a warpgroup as they lie in registers, then a maximum and a sum for each of 64 rows.
DEVICE void put_part(float* to, const float (&o)[128], int w, const float (&top)[2], const float (&sum)[2]) {
    int thread = threadIdx.x % 128, lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    #pragma unroll
    for (int i = 0; i < 128; i += 4)
        store<4>(to + w * 128 * 128 + i * 128 + thread * 4, Vec<float, 4>{{o[i], o[i + 1], o[i + 2], o[i + 3]}});
    if (w == 0 && lane % 4 == 0) {
        #pragma unroll
        for (int r = 0; r < 2; r++) store<2>(to + 64 * 512 + (row + 8 * r) * 2, Vec<float, 2>{{top[r], sum[r]}});
    }
}

template <int N> DEVICE Vec<float, N> load_fresh(const float* p) {
    Vec<float, N> v;
    if constexpr (N == 4) asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.v[0]), "=f"(v.v[1]), "=f"(v.v[2]), "=f"(v.v[3]) : "l"(p) : "memory");
    else asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(v.v[0]), "=f"(v.v[1]) : "l"(p) : "memory");
    return v;
}

// What both warpgroups have put is there for others.
DEVICE void part_done(u32* counter) {
    both_groups();
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// Waits until `count` parts are there. All blocks run at once: no more are launched than there are multiprocessors. Of those who
// wait the last leaves the counter at zero.
DEVICE void await_parts(u32* counter, u32 count, u32 waiters) {
    if (threadIdx.x == 0) {
        u32 seen = 0;
        while ((seen & 0xffff) < count) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
        if (atomicAdd(counter, 0x10000u) >> 16 == waiters - 1) *counter = 0;
    }
    both_groups();
}

// A maximum as something that can be subtracted.
DEVICE float anchor(float top) { return top == lowest() ? 0.0f : top; }

// Adds the other part of a sequence that two share.
DEVICE void add_part(const float* from, float (&o)[128], int w, float (&top)[2], float (&sum)[2]) {
    int thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4;
    float mine[2], other[2];
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        Vec<float, 2> stats = load_fresh<2>(from + 64 * 512 + (row + 8 * r) * 2);
        float both = fmaxf(top[r], stats.v[0]), base = anchor(both);
        mine[r] = exp2_fast(top[r] - base), other[r] = exp2_fast(stats.v[0] - base);
        sum[r] = sum[r] * mine[r] + stats.v[1] * other[r], top[r] = both;
    }
    #pragma unroll
    for (int i = 0; i < 128; i += 4) {
        Vec<float, 4> more = load_fresh<4>(from + w * 128 * 128 + i * 128 + thread * 4);
        #pragma unroll
        for (int e = 0; e < 4; e++) o[i + e] = o[i + e] * mine[e / 2] + more.v[e] * other[e / 2];
    }
}

// Of a sequence that more than two share: some of its columns, eight at a time, from all parts. Those who do not begin it share
// them. Both warpgroups; `scratch` has room for a weight of every part and row, and for eight rows more.
DEVICE void combine(const Args& a, const Piece& p, int part, int tile, int rows, float* scratch) {
    int thread = threadIdx.x, sharers = p.sharers(), row = thread % 64, quarter = thread / 64;
    float *tops = scratch + sharers * 64, *sums = tops + 256;
    auto from = [&](int i) { return part_at(a, p.from + i, i == 0, tile); };
    float top = lowest(), sum = 0.0f;
    for (int i = quarter; i < sharers; i += 4) top = fmaxf(top, load_fresh<2>(from(i) + 64 * 512 + row * 2).v[0]);
    tops[thread] = top;
    both_groups();
    top = fmaxf(fmaxf(tops[row], tops[row + 64]), fmaxf(tops[row + 128], tops[row + 192]));
    for (int i = quarter; i < sharers; i += 4) {
        Vec<float, 2> stats = load_fresh<2>(from(i) + 64 * 512 + row * 2);
        float weight = exp2_fast(stats.v[0] - anchor(top));
        scratch[i * 64 + row] = weight, sum += weight * stats.v[1];
    }
    sums[thread] = sum;
    both_groups();
    auto sum_of = [&](int r) { return sums[r] + sums[r + 64] + sums[r + 128] + sums[r + 192]; };
    if (part == p.from + 1 && quarter == 0 && row < rows) put_lse(a, p.s, tile * 64 + row, top, sum_of(row));

    // A thread has two neighbours of one row.
    int of = thread / 2, r = of / 32 * 16 + of % 32 / 4 + thread % 2 * 8;
    float inverse = inverse_of(sum_of(r));
    int shares = sharers - 1, share = part - p.from - 1;
    for (int unit = 64 * share / shares; unit < 64 * (share + 1) / shares; unit++) {
        Vec<float, 2> all{{0.0f, 0.0f}};
        #pragma unroll 16
        for (int i = 0; i < sharers; i++) {
            Vec<float, 2> more = load_fresh<2>(from(i) + unit * 512 + thread * 2);
            float weight = scratch[i * 64 + r];
            all.v[0] += weight * more.v[0], all.v[1] += weight * more.v[1];
        }
        if (r < rows)
            *(u32*)&a.o.at(row_of(a, p.s, tile * 64 + r), unit * 8 + of % 4 * 2) = two<o_t>(all.v[0] * inverse, all.v[1] * inverse);
    }
}
