// The gate on the card: an oracle kernel puts what it expects of every element of an output, this file compares. The
// same rule as in kmark-core's gate.rs, which explains it; a test holds one against the other.
#pragma once

enum { PLACES = 1024 };

// A region held against one grade's bound.
struct Score {
    u64 beyond;    // elements beyond what is allowed
    u64 worst;     // bits of the largest ratio of error to what is allowed
    double slack2;
};

// Sums of one region of one output, spread over slots so that blocks do not wait for each other.
struct Tally {
    u64 seen;      // elements put, those that are nobody's business included
    u64 elements;  // elements compared
    double err2, twin2, expect2, allowed2, allowed4;
    Score tight, loose;
};

// Elements beyond a bound, by their places, while they are few.
struct Excess { u64 count; u64 places[PLACES]; };

struct RowTally {
    u64 bad;       // rows that do not add up
    u64 first;     // the lowest of them
};

enum { JUDGE_TALLY, JUDGE_FIND, JUDGE_TELL, JUDGE_DUMP };

// What the host hands over per output. REGIONS and SLOTS come from the prelude.
template <class T> struct Gate {
    const T* out;
    i64 cols, pitch;
    Tally* tallies;      // [SLOTS][REGIONS]
    RowTally* rows;      // of the invariant, if there is one
    u64* index;          // FIND: lowest index whose ratio is `ratio`; TELL: which element
    double* told;        // TELL: got, expected, allowed by the loose grade, row sum, its limit
    Excess* excess;      // one for each grade
    double* expect;      // DUMP: arrays over all elements
    double* slack;
    double* loose;
    u8* region;
    u64 ratio;           // FIND: by the loose grade
    i64 mode, want_region;
};

// How far a value that is off by up to `off` can lie from the twin once it is rounded. Equal elements near the middle
// between two numbers are all rounded the same way, be it the twin's or the other.
template <class T> DEVICE double reach(double expect, double off, double twin) {
    return fmax(off, fmax(fabs(rounded<T>(expect - off) - twin), fabs(rounded<T>(expect + off) - twin)));
}

template <class T> struct Judge {
    const Gate<T>& gate;
    Tally mine[REGIONS];
    // Of the row that is being put, for `row_sum`.
    double got_sum, twin_sum, half2_sum, slack_sum, expect_sum;

    __device__ explicit Judge(const Gate<T>& g) : gate(g), got_sum(0), twin_sum(0), half2_sum(0), slack_sum(0), expect_sum(0) {
        for (int r = 0; r < REGIONS; r++) mine[r] = Tally{0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, {0, 0, 0.0}, {0, 0, 0.0}};
    }

    static __device__ double allowed(double expect, double slack) {
        if (expect == 0.0 && slack == 0.0) return 0.0;
        double flush = fabs(expect) < 1e-37 && !is<T, double> ? 1.1754943508222875e-38 : 0.0;
        return 0.5 * spacing<T>(fabs(expect) + slack) * (1.0 + 1e-9) + slack + flush;
    }

    static __device__ double ratio_of(double err, double may) {
        double ratio = err <= may && may == 0.0 ? 0.0 : err / may;
        return isfinite(ratio) ? ratio : 1e300;
    }

    __device__ void score(Score& s, int grade, u64 index, int region, double err, double may, double slack, bool counts) {
        if (counts) s.slack2 += slack * slack;
        // Dividing is slow, and few elements are worse than all before them.
        if (err <= may && err <= may * double_of(s.worst)) return;
        double ratio = ratio_of(err, may);
        if (ratio > 1.0) {
            s.beyond++;
            Excess& excess = gate.excess[grade];
            // Once there are too many, nobody asks for places.
            if (*(volatile u64*)&excess.count < PLACES) {
                u64 at = atomicAdd(&excess.count, 1ull);
                if (at < PLACES) excess.places[at] = (u64)region << 56 | index;
            }
        }
        if (bits_of(ratio) > s.worst) s.worst = bits_of(ratio);
    }

    // Element (row, col) of the output should be `expect`, off by at most `slack` before its last rounding, and by
    // `loose` more if intermediates are rounded to 16 bits. Every element exactly once. Infinite slack: nobody's business.
    __device__ void put(i64 row, i64 col, double expect, double slack, int region = 0, double loose = 0.0) {
        u64 index = (u64)(row * gate.cols + col);
        if (gate.mode == JUDGE_DUMP) {
            gate.expect[index] = expect;
            gate.slack[index] = slack;
            gate.loose[index] = loose;
            gate.region[index] = (u8)region;
            mine[region].seen++;
            return;
        }
        Tally& t = mine[region];
        t.seen++;
        if (isinf(slack)) return;
        double got = wide(gate.out[row * gate.pitch + col]), twin = rounded<T>(expect), may = allowed(expect, slack);
        double err = got == expect ? 0.0 : got == twin ? fmin(fabs(twin - expect), may) : fabs(got - expect);
        double wide_may = loose > 0.0 ? allowed(expect, slack + loose) : may;
        if (gate.mode == JUDGE_FIND) {
            bool is_it = region == gate.want_region && bits_of(ratio_of(err, wide_may)) == gate.ratio;
            if (is_it) atomicMin(gate.index, index);
            return;
        }
        if (gate.mode == JUDGE_TELL && index == *gate.index) gate.told[0] = got, gate.told[1] = expect, gate.told[2] = wide_may;
        bool finite = isfinite(twin);
        t.elements++;
        if (finite) {
            t.err2 += err * err;
            t.twin2 += (twin - expect) * (twin - expect);
            t.expect2 += expect * expect;
            t.allowed2 += may * may;
            t.allowed4 += may * may * may * may;
        }
        if (gate.mode == JUDGE_TALLY) {
            score(t.tight, 0, index, region, err, may, slack, finite);
            score(t.loose, 1, index, region, err, wide_may, slack + loose, finite);
        }
        got_sum += got;
        twin_sum += twin;
        half2_sum += 0.25 * spacing<T>(expect) * spacing<T>(expect);
        slack_sum += reach<T>(expect, slack + loose, twin);
        expect_sum += expect;
    }

    // The whole block has put row `row` and nothing else since the last call: does it add up to `to`?
    __device__ void row_sum(i64 row, double to) {
        double got = block_sum(got_sum), twin = block_sum(twin_sum), half2 = block_sum(half2_sum);
        double slack = block_sum(slack_sum), expect = block_sum(expect_sum);
        got_sum = twin_sum = half2_sum = slack_sum = expect_sum = 0.0;
        if (threadIdx.x != 0 || gate.mode == JUDGE_DUMP || fabs(expect - to) > 1e-6) return;
        double limit = fabs(twin - to) + slack + 4.0 * sqrt(half2);
        if (fabs(got - to) <= limit) return;
        if (gate.mode == JUDGE_TELL) {
            if ((u64)row == gate.rows->first) gate.told[3] = got, gate.told[4] = limit;
        } else if (gate.mode == JUDGE_TALLY) {
            atomicAdd(&gate.rows->bad, 1ull);
            atomicMin(&gate.rows->first, (u64)row);
        }
    }

    static __device__ Score over_warp(const Score& s) {
        return Score{warp_all<Add>(s.beyond), warp_all<Max>(s.worst), warp_all<Add>(s.slack2)};
    }
    static __device__ void add(Score& to, const Score& s) {
        atomicAdd(&to.beyond, s.beyond);
        atomicMax(&to.worst, s.worst);
        atomicAdd(&to.slack2, s.slack2);
    }

    // Every thread of the block, once, at the end of the kernel.
    __device__ void finish() {
        i64 slot = (blockIdx.x + (i64)blockIdx.y * gridDim.x + (i64)blockIdx.z * gridDim.x * gridDim.y) % SLOTS;
        for (int r = 0; r < REGIONS; r++) {
            Tally t = mine[r];
            t.seen = warp_all<Add>(t.seen);
            if (t.seen == 0) continue; // the same in all lanes
            t.elements = warp_all<Add>(t.elements);
            t.err2 = warp_all<Add>(t.err2);
            t.twin2 = warp_all<Add>(t.twin2);
            t.expect2 = warp_all<Add>(t.expect2);
            t.allowed2 = warp_all<Add>(t.allowed2);
            t.allowed4 = warp_all<Add>(t.allowed4);
            t.tight = over_warp(t.tight);
            t.loose = over_warp(t.loose);
            int lane = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
            if (lane != 0) continue;
            Tally& to = gate.tallies[slot * REGIONS + r];
            atomicAdd(&to.seen, t.seen);
            if (gate.mode != JUDGE_TALLY) continue;
            atomicAdd(&to.elements, t.elements);
            atomicAdd(&to.err2, t.err2);
            atomicAdd(&to.twin2, t.twin2);
            atomicAdd(&to.expect2, t.expect2);
            atomicAdd(&to.allowed2, t.allowed2);
            atomicAdd(&to.allowed4, t.allowed4);
            add(to.tight, t.tight);
            add(to.loose, t.loose);
        }
    }
};

// A property that no element shows alone was broken at `index`.
DEVICE void broken(RowTally* property, u64 index) {
    atomicAdd(&property->bad, 1ull);
    atomicMin(&property->first, index);
}

// Slack of a sum over `terms` terms, as a factor of the sum of magnitudes.
DEVICE double sum_slack(double terms) { return unit<acc_t>() * (8.0 + sqrt(terms)); }
