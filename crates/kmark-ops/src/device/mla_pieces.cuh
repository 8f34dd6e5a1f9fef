// Ragged sequences for blocks that stay: who takes which blocks of keys, found out by each from the lengths alone, and what
// becomes of sequences that several share. Best is a whole number of sequences for every part, then a whole number of parts for
// every sequence. Where that leaves some with too much, sequences lie one after another on a line, each with OVERHEAD to spare
// for what beginning and ending one costs, and the line is cut into PARTS. The file says OVERHEAD, LEAST (length of a part, at
// least), TILES (of 64 query rows, each with blocks of its own), PARTS, and what `mla_shared.cuh` wants.
#pragma once
#include "hopper/copy.cuh"
#include "mla_shared.cuh"

constexpr int SHARING = 4; // what sharing a sequence costs, in blocks of keys

DEVICE int blocks_of(int keys) { return (keys + 63) / 64; }
DEVICE int cost_of(int keys) { return blocks_of(keys) + OVERHEAD; }
DEVICE int parts_of(int keys, int size) { return max((blocks_of(keys) + size - 1) / size, 1); }

// Who this is, computed where it is needed: registers are for the loop over keys.
DEVICE int thread_here() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}
DEVICE int block_here() {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}
DEVICE int part_here() { return block_here() / TILES; }
DEVICE int tile_here() { return block_here() % TILES; }

// The last sequence of a part and where it begins. One warp; all its lanes get it.
DEVICE Plan plan_part(const Args& a) {
    const int part = part_here(), lane = threadIdx.x % 32, count = (int)a.b, group = (count + PARTS - 1) / PARTS;
    int all = 0, most = 0; // of whole sequences, `group` for every part
    #pragma unroll 1
    for (int first = lane * group; first < count; first += 32 * group) {
        int sum = 0;
        #pragma unroll 1
        for (int s = first; s < min(first + group, count); s++) sum += cost_of(a.lengths.ptr[s]);
        all += sum, most = max(most, sum);
    }
    all = __reduce_add_sync(~0u, all), most = __reduce_max_sync(~0u, most);
    const int each = max((all + PARTS - 1) / PARTS, LEAST);
    if (most <= each + SHARING) {
        int first = part * group, last = min(first + group, count) - 1;
        if (first > last) return Plan{};
        return Plan{each, 1, last, a.lengths.ptr[last], first, 1};
    }
    // Whole numbers of parts need a little more room than the line.
    int size = 0;
    #pragma unroll 1
    for (int more = 0; count <= PARTS && size == 0 && more <= 1 + each / 16; more++) {
        int parts = 0;
        #pragma unroll 1
        for (int s = lane; s < count; s += 32) parts += parts_of(a.lengths.ptr[s], each + more);
        parts = __reduce_add_sync(~0u, parts);
        if (parts <= PARTS) {
            size = each + more;
            if (part >= parts) return Plan{};
        }
    }
    // The sequence that holds point `at` of the line, or to which part `at` belongs.
    const int at = size ? part : min((part + 1) * each, all) - 1;
    for (int s = lane, before = 0;; s += 32) {
        int keys = s < count ? a.lengths.ptr[s] : 0, own = s < count ? size ? parts_of(keys, size) : cost_of(keys) : 0, sum = own;
        #pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int left = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += left;
        }
        u32 beyond = __ballot_sync(~0u, before + sum > at);
        if (beyond) {
            int found = __ffs(beyond) - 1;
            auto of_found = [&](int v) { return __shfl_sync(~0u, v, found); };
            const int last = of_found(s), begin = before + of_found(sum - own), shares = size ? of_found(own) : 0;
            return Plan{each, size || part * each < all, last, of_found(keys), shares == 1 ? last : begin, shares};
        }
        before += __shfl_sync(~0u, sum, 31);
    }
}

// Three warps of every block bring the page table, or its beginning, to the L2 cache while the plan is made.
DEVICE void fetch_pages(const Args& a) {
    const i64 at = ((i64)blockIdx.x * 96 + threadIdx.x - 288) * 32;
    if (at < (a.page_table.rows - 1) * a.page_table.pitch + a.page_table.cols)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.page_table.ptr + at) : "memory");
}

// Blocks `first` to `end` of sequence s, whose place is `at` (see `Plan`).
struct Piece {
    int s, keys, first, end, at;
};

// Parts `from` to `to` share a sequence. Of more than two those from `joins` on put it together.
struct Sharers {
    int from, to, joins;
    __device__ __forceinline__ int count() const { return to - from + 1; }
};

DEVICE Sharers sharers_of(const Plan& plan, const Piece& p, int part) {
    if (plan.shares == 1) return {part, part, part};
    if (plan.shares > 1) return {p.at, p.at + plan.shares - 1, p.at};
    const int zero = p.at + OVERHEAD / 2, from = zero / plan.each;
    return {from, (zero + max(blocks_of(p.keys) - 1, 0)) / plan.each, from + 1};
}

// The same number in all lanes, and the compiler knows it: it needs no register of every thread.
DEVICE int uniform(int v) { return __reduce_max_sync(~0u, v); }

// On the line from the last sequence of the part to the first: what others wait for, the beginning of a sequence, comes first,
// and what may have to wait for others, the end of one, last. A sequence without keys is a piece of no blocks.
template <class F> DEVICE void each_piece(const Args& a, const Plan& plan, F body) {
    if (!plan.any) return;
    for (int s = plan.last, at = plan.at, keys = plan.keys;;) {
        const int count = blocks_of(keys), shares = plan.shares;
        int first = 0, end = count;
        bool has = true;
        if (shares > 1) {
            const int share = part_here() - at;
            first = count * share / shares, end = count * (share + 1) / shares;
        } else if (shares == 0) {
            const int zero = at + OVERHEAD / 2 - part_here() * plan.each; // from where the part begins
            first = min(max(-zero, 0), count), end = min(max(plan.each - zero, 0), count);
            has = count > 0 ? first < end : zero >= 0 && zero < plan.each;
        }
        if (__any_sync(~0u, has)) body(Piece{uniform(s), uniform(keys), uniform(first), uniform(end), uniform(at)});
        if (s == 0 || (plan.shares == 0 ? at <= part_here() * plan.each : plan.shares > 1 || s == at)) return;
        keys = a.lengths.ptr[--s];
        if (plan.shares == 0) at -= cost_of(keys);
    }
}

// ---- Parts of results ----------------------------------------------------------------------------------------------

// A part has room for two: a sequence that it ends, and, behind those of all parts, one that it begins.
constexpr int PART_FLOATS = 64 * 512 + 128, NEXT_PART = TILES * PART_FLOATS;
DEVICE float* part_at(const Args& a, int part, bool begins, int tile) {
    constexpr int COUNTERS = (PARTS * TILES * 4 + 255) / 256 * 256;
    return (float*)(a.workspace + COUNTERS) + (i64)((begins ? PARTS + part : part) * TILES + tile) * PART_FLOATS;
}
DEVICE u32* counter_of(const Args& a, int from, int tile) { return (u32*)a.workspace + from * TILES + tile; }

// The sums of a warpgroup as they lie in registers, then a maximum and a sum for each of 64 rows.
DEVICE void put_part(float* to, int rows, const float (&o)[128], int w, const float (&top)[2], const float (&sum)[2]) {
    int thread = thread_here() % 128, lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    if (thread / 32 * 16 >= rows) return;
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

// A counter turns over when all who add to a sequence (`puts` parts) and all who wait for them have come, so that it is zero again.
struct Meeting {
    u32* counter;
    u32 puts, all;
};

// What both warpgroups have put is there for others.
DEVICE void part_done(const Meeting& m) {
    both_groups();
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(m.counter), "r"(m.all - 1) : "memory");
}

// Waits until all parts are there. All blocks run at once: no more are launched than there are multiprocessors.
DEVICE void await_parts(const Meeting& m) {
    if (threadIdx.x == 0) {
        u32 seen = 0;
        while (seen < m.puts) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(m.counter) : "memory");
        asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(m.counter), "r"(m.all - 1) : "memory");
    }
    both_groups();
}

// A maximum as something that can be subtracted.
DEVICE float anchor(float top) { return top == lowest() ? 0.0f : top; }

// Adds the other part of a sequence that two share.
DEVICE void add_part(const float* from, int rows, float (&o)[128], int w, float (&top)[2], float (&sum)[2]) {
    int thread = thread_here() % 128, row = thread / 32 * 16 + thread % 32 / 4;
    if (thread / 32 * 16 >= rows) return;
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

// Of a sequence that more than two share: some of its columns, in units of eight. What a thread adds up it copies for itself, all
// that finds room in the `bytes` from `scratch` on before it waits for any. Both warpgroups.
DEVICE void combine(const Args& a, int s, const Sharers& p, int part, int tile, int rows, u8* scratch, int bytes) {
    constexpr int UNIT = 512; // floats of 64 rows
    const int thread = thread_here(), sharers = p.count(), row = thread % 64, quarter = thread / 64;
    Vec<float, 2>* stats = (Vec<float, 2>*)scratch; // of each part and row its maximum, later its weight, and its sum
    float *tops = (float*)(stats + sharers * 64), *sums = tops + 256, *slots = sums + 256;
    // Where parts lie, in floats: those behind the first evenly. Loops stay loops here, for code that runs once waits for every line of it.
    const float* parts = part_at(a, 0, false, tile);
    const int begin = (PARTS + p.from) * NEXT_PART, rest = p.from * NEXT_PART;
    auto behind = [&](int i, int lies) { return (i ? lies : rest) + NEXT_PART; };
    #pragma unroll 1
    for (int i = quarter; i < sharers; i += 4) copy_later<8>(stats + i * 64 + row, parts + (i ? rest + i * NEXT_PART : begin) + 64 * 512 + row * 2);
    copies_begun();

    const int of = thread % 128, r = of / 32 * 16 + of % 32 / 4; // two neighbours of two rows, as they lay in a thread's registers
    const int each = 63 / (p.to - p.joins + 1) + 1, first_unit = (part - p.joins) * each, end = min(first_unit + each, 64);
    const int room = (bytes - (sharers * 128 + 512) * 4) / (UNIT * 4), units = sharers * each <= room ? each : 1, deep = min(room, sharers);
    float inverse[2];
    Vec<float, 4> all{};
    #pragma unroll 1
    for (int unit = first_unit, first = 0;;) {
        const int last = min(first + deep, sharers), here = min(units, end - unit);
        #pragma unroll 1
        for (int u = thread / 128; u < here; u += 2) {
            const float* from = parts + (unit + u) * UNIT + of * 4;
            float* to = slots + u * UNIT + of * 4;
            #pragma unroll 1
            for (int i = first, lies = i ? rest + i * NEXT_PART : begin; i < last; lies = behind(i++, lies), to += units * UNIT) copy_later<16>(to, from + lies);
        }
        copies_begun();
        if (unit == first_unit && first == 0) {
            copies_there<1>();
            float top = lowest(), sum = 0.0f;
            #pragma unroll 1
            for (int i = quarter; i < sharers; i += 4) top = fmaxf(top, stats[i * 64 + row].v[0]);
            tops[thread] = top;
            both_groups();
            top = fmaxf(fmaxf(tops[row], tops[row + 64]), fmaxf(tops[row + 128], tops[row + 192]));
            #pragma unroll 1
            for (int i = quarter; i < sharers; i += 4) {
                float& weight = stats[i * 64 + row].v[0];
                weight = exp2_fast(weight - anchor(top)), sum += weight * stats[i * 64 + row].v[1];
            }
            sums[thread] = sum;
            both_groups();
            auto sum_of = [&](int r) { return sums[r] + sums[r + 64] + sums[r + 128] + sums[r + 192]; };
            if (part == p.joins && quarter == 0 && row < rows) put_lse(a, s, tile * 64 + row, top, sum_of(row));
            inverse[0] = inverse_of(sum_of(r)), inverse[1] = inverse_of(sum_of(r + 8));
        }
        copies_there<0>();
        #pragma unroll 1
        for (int u = thread / 128; u < here; u += 2) {
            const float* from = slots + u * UNIT + of * 4;
            #pragma unroll 4
            for (int i = first; i < last; i++, from += units * UNIT) {
                const Vec<float, 4> more = load<4>(from);
                const float weight[2] = {stats[i * 64 + r].v[0], stats[i * 64 + r + 8].v[0]};
                #pragma unroll
                for (int e = 0; e < 4; e++) all.v[e] += weight[e / 2] * more.v[e];
            }
            if (last < sharers) break; // one unit at a time
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                if (r + 8 * h < rows)
                    *(u32*)&a.o.at(row_of(a, s, tile * 64 + r + 8 * h), (unit + u) * 8 + of % 4 * 2) = two<o_t>(all.v[2 * h] * inverse[h], all.v[2 * h + 1] * inverse[h]);
            }
            all = Vec<float, 4>{};
        }
        first = last < sharers ? last : 0;
        if (first == 0 && (unit += units) >= end) return;
    }
}
