// A paged decode's keys in equal shares for blocks that stay: who takes which tiles of 16 keys, found out by each warp from
// the lengths alone, and what becomes of queries whose keys several blocks share. Every sequence and tile of its queries (a
// pair) lies on a line, one after another, with OVERHEAD to spare for what beginning and ending it costs; the line is cut
// into PARTS. The file says OVERHEAD, LEAST (length of a part, at least), PARTS, PAIRS (of a sequence), ROWS (queries of a
// pair, at most) and PART (floats of a result).
#pragma once
#include "decode.cuh"
#include "last.cuh"

DEVICE int tiles_of(int keys) { return (keys + 15) / 16; }
DEVICE int cost_of(int keys) { return tiles_of(keys) + OVERHEAD; }

// Tiles `first` to `end` of a pair, which parts `from` to `to` share.
struct Piece {
    int s, pair, keys, first, end, from, to;
    __device__ __forceinline__ int sharers() const { return to - from + 1; }
};

// The pieces of a part, one after another. A sequence without keys is a piece of no tiles.
struct Walk {
    const int* lengths;
    int count, each, begin, stop; // sequences; length of a part; this part of the line
    int s, pair, keys, at;        // the next pair, and where it begins

    // One whole warp; all its lanes get the same.
    __device__ __forceinline__ Walk(const Args& a, int part) : lengths(a.lengths.ptr), count((int)a.b) {
        const int lane = threadIdx.x % 32;
        int all = 0, before = 0;
        for (int i = lane; i < count; i += 32) all += cost_of(lengths[i]) * (int)PAIRS;
        all = warp_all<Add>(all);
        each = max((all + (int)PARTS - 1) / (int)PARTS, (int)LEAST);
        begin = part * each, stop = min(begin + each, all);
        s = pair = keys = at = 0;
        if (begin >= all) {
            at = stop;
            return;
        }
        for (int first = 0;; first += 32) {
            const int i = first + lane, length = i < count ? lengths[i] : 0;
            const int own = i < count ? cost_of(length) * (int)PAIRS : 0;
            int sum = own;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const int left = __shfl_up_sync(0xffffffffu, sum, step);
                if (lane >= step) sum += left;
            }
            const u32 beyond = __ballot_sync(0xffffffffu, before + sum > begin);
            if (beyond) {
                const int found = __ffs((int)beyond) - 1;
                keys = __shfl_sync(0xffffffffu, length, found);
                before += __shfl_sync(0xffffffffu, sum - own, found);
                s = first + found;
                break;
            }
            before += __shfl_sync(0xffffffffu, sum, 31);
        }
        pair = (begin - before) / cost_of(keys), at = before + pair * cost_of(keys);
    }

    __device__ __forceinline__ bool next(Piece& p) {
        while (at < stop) {
            const int tiles = tiles_of(keys), zero = at + (int)OVERHEAD / 2, end = begin + each;
            const int low = min(max(begin - zero, 0), tiles), high = min(max(end - zero, 0), tiles);
            const bool has = tiles > 0 ? low < high : zero >= begin && zero < end;
            p = Piece{s, pair, keys, low, high, zero / each, (zero + max(tiles - 1, 0)) / each};
            at += cost_of(keys);
            if (++pair == (int)PAIRS) pair = 0, s++, keys = s < count ? lengths[s] : 0;
            if (has) return true;
        }
        return false;
    }
};

// ---- Parts of results ----------------------------------------------------------------------------------------------

// A part has room for two: a pair that others began, and one that it begins and others go on with.
DEVICE float* part_at(const Args& a, int part, bool begins) {
    constexpr int COUNTERS = ((int)PARTS * 4 + 255) / 256 * 256;
    return reinterpret_cast<float*>(a.workspace + COUNTERS) + (i64)(part * 2 + begins) * PART;
}
// Behind the values: the maximum and the sum of each row.
DEVICE float* stats_at(float* part, int row) { return part + ROWS * D + row * 2; }

// The whole block, when it has put its part: whether all others had put theirs.
DEVICE bool last_of(const Args& a, const Piece& p) { return last_of(reinterpret_cast<u32*>(a.workspace) + p.from, p.sharers()); }

// A warp puts a row together: put(col, four values) for every fourth column, then end(top, sum).
template <class Put, class End> DEVICE void combine_row(const Args& a, const Piece& p, int row, Put put, End end) {
    const int lane = threadIdx.x % 32, sharers = p.sharers();
    const auto from = [&](int i) { return part_at(a, p.from + i, i == 0); };
    float top = lowest<float>(), sum = 0.0f;
    for (int i = lane; i < sharers; i += 32) top = Max::of(top, *stats_at(from(i), row));
    top = warp_all<Max>(top);
    const float base = anchor(top);
    for (int i = lane; i < sharers; i += 32) {
        const Vec<float, 2> stats = load<2>(stats_at(from(i), row));
        sum += raise(stats.v[0] - base) * stats.v[1];
    }
    sum = warp_all<Add>(sum);
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    for (int col = lane * 4; col < D; col += 128) {
        Vec<float, 4> all{{0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll 8
        for (int i = 0; i < sharers; i++) {
            const float weight = raise(*stats_at(from(i), row) - base);
            const Vec<float, 4> more = load<4>(from(i) + row * D + col);
#pragma unroll
            for (int e = 0; e < 4; e++) all.v[e] += weight * more.v[e];
        }
#pragma unroll
        for (int e = 0; e < 4; e++) all.v[e] *= inverse;
        put(col, all);
    }
    if (lane == 0) end(top, sum);
}
