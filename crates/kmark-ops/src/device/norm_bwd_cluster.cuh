// Backward of RMSNorm and LayerNorm for long rows, on Hopper: clusters walk over rows, of which every block has the same
// columns, so that it can sum dw (and dbias) of them in registers. Bulk copies bring the next rows meanwhile. What a block
// knows of a row's means it tells the others one row ahead: while that is under way, it makes dx of the row before.
#pragma once
#include "alike.cuh"
#include "column_sums.cuh"
#include "hopper/bulk.cuh"
#include "norm_gradient.cuh"

// `sums`: 1 for dw alone, 2 with dbias. Rows that are not whole vectors are walked over with those that start alike (alike.cuh);
// those that start one element behind a vector are turned (spans.cuh): the last element stands before the first.
template <bool centred, int sums, int blocks, int stages> struct NormBwdCluster {
    static constexpr int values = 1 + centred, step = 16 / sizeof(x_t), warps = 16, threads = warps * 32;
    static constexpr bool behind = rows_behind<x_t>(MEMORY, N), alike = N % step != 0;
    static constexpr int vectors = (int)(N / step), share = (int)ceil_div(vectors, blocks * 8) * 8; // copies of whole lines are faster
    static constexpr int count = (int)ceil_div(share, threads); // vectors of a row to a thread
    static constexpr bool hold_w = count * step * (int)(sums * sizeof(acc_t) + sizeof(w_t)) <= 256;
    static_assert(stages >= 3, "a row that is told of has been asked for in an earlier turn");
    using P = Parts<sums, N>;
    using L = Alike<Team<threads, threads>, N, step>;
    using Turned = Layout<Team<threads, threads>, N, step, false, behind ? Start::behind : Start::aligned>;
    using X = Pack<x_t, step>;
    using W = Pack<w_t, step>;

    struct Stage {
        static constexpr int more = alike || behind ? 8 : 0; // copies begin late; the vector with the last element of rows that are turned
        X x[share + more];
        Pack<dout_t, step> dout[share + more];
    };
    // What is known of a row beside its vectors: an element at an end, if it is this thread's.
    struct Beside : RowNorm<centred> {
        Vec<x_t, 1> x;
        Vec<dout_t, 1> dout;
    };
    // Who tells of row i + 4 has heard of row i + 2 from all, and they told of that when they had heard of row i: its place is
    // free again.
    static constexpr int places = 4, parts = blocks * warps;
    struct Shared {
        u64 full[stages], empty[stages], told[places];
        acc_t known[places][values][parts];
    };
    // A row that comes after `number` others of this cluster.
    struct Turn {
        int number;
        __device__ __forceinline__ int stage() const { return number % stages; }
        __device__ __forceinline__ int stage_phase() const { return number / stages % 2; }
        __device__ __forceinline__ int place() const { return number % places; }
        __device__ __forceinline__ int place_phase() const { return number / places % 2; }
    };

    // Lines of memory come to lines of shared memory: by how many vectors a copy begins late.
    template <class E> DEVICE int late(const E* from) { return alike ? (int)((u64)from / 16 % 8) : 0; }

    // One thread asks for the block's share of a row, once the one that was there has been read.
    template <class A> DEVICE void ask(const A& a, Stage* ring, Shared& s, i64 row, Turn turn, int start, int mine) {
        if (row >= a.m || threadIdx.x >= 32) return;
        if (elected()) {
            Stage& to = ring[turn.stage()];
            u64* full = &s.full[turn.stage()];
            if (turn.number >= stages) barrier_wait(&s.empty[turn.stage()], Turn{turn.number - stages}.stage_phase());
            const bool first = behind && cluster_rank() == 0;
            barrier_expect(full, 32 * (mine + first));
            const x_t* x = a.x.row(row) + start;
            const dout_t* dout = a.dout.row(row) + start;
            bulk_load(to.x + late(x), x, 16 * mine, full);
            bulk_load(to.dout + late(dout), dout, 16 * mine, full);
            if (first) bulk_load(to.x + share, x + N, 16, full), bulk_load(to.dout + share, dout + N, 16, full);
        }
    }

    // Vector `at` of a row in shared memory; a thread's `k`-th.
    template <class E> DEVICE Vec<E, step> vector(const Pack<E, step>* row, int k, int at, bool turns) {
        if constexpr (!behind) return unpack(row[at]);
        Pack<E, step> p = row[at];
        if (k == 0 && turns) put_first(p, *reinterpret_cast<const E*>(row + share));
        return unpack(p);
    }

    // A thread has vectors threadIdx.x, threadIdx.x + threads, … of the block's `mine`.
    template <class F> DEVICE void each(int mine, F f) {
#pragma unroll
        for (int k = 0; k < count; k++) {
            int at = k * threads + (int)threadIdx.x;
            if ((k + 1) * threads <= share - 8 * blocks || at < mine) f(k, at);
        }
    }

    template <class A> DEVICE void walk(const A& a) {
        extern __shared__ __align__(128) u8 bytes[];
        __shared__ Shared s;
        Stage* ring = reinterpret_cast<Stage*>(bytes);
        int rank = cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        i64 row = blockIdx.x / blocks, stride = gridDim.x / blocks;
        const L like = alike ? L(a.x.row(row)) : L();
        int first = rank * share, mine = min(share, (behind ? vectors : like.whole()) - first);
        const bool turns = behind && rank == 0 && threadIdx.x == 0; // it has the row's first vector
        int end = alike && rank == blocks - 1 && warp == warps - 1 ? like.end(lane) : -1; // the last block has least to do
        if (threadIdx.x == 0) {
            for (int i = 0; i < stages; i++) barrier_init(&s.full[i], 1), barrier_init(&s.empty[i], warps);
            for (int i = 0; i < places; i++) barrier_init(&s.told[i], 1);
            barrier_fence_init();
        }
        cluster_meet();
        const int start = (behind ? -1 : like.lead) + first * step; // the block's first column
        for (int i = 0; i < stages; i++) ask(a, ring, s, row + i * stride, Turn{i}, start, mine);

        acc_t sum[sums][count][step];
#pragma unroll
        for (int k = 0; k < sums * count * step; k++) sum[k / (count * step)][k / step % count][k % step] = 0;
        W held[hold_w ? count : 1];
        acc_t end_sum[sums];
#pragma unroll
        for (int s = 0; s < sums; s++) end_sum[s] = 0;
        auto column = [&](int at) { return start + at * step; };
        auto load_w = [&](int at) {
            if constexpr (alike) return L::beside(a.w.ptr, column(at));
            else if constexpr (behind) return Turned::take_behind(a.w.ptr, column(at));
            else return load_pack<step>(a.w.ptr + column(at));
        };
        if constexpr (hold_w) each(mine, [&](int k, int at) { held[k] = load_w(at); });
        auto w = [&](int k, int at) {
            if constexpr (hold_w) return unpack(held[k]);
            else return unpack(load_w(at));
        };

        Vec<w_t, 1> end_w{};
        if (end >= 0) end_w.v[0] = a.w.ptr[end];

        auto tell = [&](Turn turn, i64 at_row, const Beside& row) {
            const Stage& in = ring[turn.stage()];
            const int x = late(a.x.row(at_row) + start), dout = late(a.dout.row(at_row) + start);
            barrier_wait(&s.full[turn.stage()], turn.stage_phase());
            acc_t of[values];
            of[0] = of[centred] = 0;
            each(mine, [&](int k, int at) {
                row.add_to(of, vector(in.x, k, x + at, turns), vector(in.dout, k, dout + at, turns), w(k, at));
            });
            if (end >= 0) row.add_to(of, row.x, row.dout, end_w);
            lanes_all<Add, 32>(of);
            u64* told = &s.told[turn.place()];
            if (threadIdx.x == 0) barrier_expect(told, parts * values * (int)sizeof(acc_t));
            if (lane < blocks) {
#pragma unroll
                for (int i = 0; i < values; i++) send_to_block(&s.known[turn.place()][i][rank * warps + warp], of[i], told, lane);
            }
        };
        auto hear = [&](Turn turn, acc_t (&means)[values]) {
            barrier_wait(&s.told[turn.place()], turn.place_phase());
#pragma unroll
            for (int i = 0; i < values; i++) {
                means[i] = 0;
#pragma unroll
                for (int part = 0; part < parts; part += 32) means[i] += s.known[turn.place()][i][part + lane];
            }
            lanes_all<Add, 32>(means);
#pragma unroll
            for (int i = 0; i < values; i++) means[i] *= (acc_t)(1.0 / N);
        };
        auto beside = [&](i64 row) {
            Beside of;
            i64 from = row < a.m ? row : a.m - 1;
            of.norm_of(a, from);
            if (end >= 0) of.x.v[0] = a.x.row(from)[end], of.dout.v[0] = a.dout.row(from)[end];
            return of;
        };

        Beside now = beside(row), next = beside(row + stride);
        tell(Turn{0}, row, now);
        for (Turn turn{0}; row < a.m; row += stride, turn.number++) {
            Beside later = beside(row + 2 * stride);
            if (row + stride < a.m) tell(Turn{turn.number + 1}, row + stride, next);
            if (turn.number > 0) ask(a, ring, s, row + (stages - 1) * stride, Turn{turn.number - 1 + stages}, start, mine);
            acc_t means[values];
            hear(turn, means);
            const Stage& in = ring[turn.stage()];
            const int x = late(a.x.row(row) + start), dout = late(a.dout.row(row) + start);
            each(mine, [&](int k, int at) {
                auto add = [&](int i, acc_t d, acc_t xh) {
                    sum[0][k][i] += d * xh;
                    if constexpr (sums > 1) sum[1][k][i] += d;
                };
                auto dx = now.gradient(vector(in.x, k, x + at, turns), vector(in.dout, k, dout + at, turns), w(k, at), means, add);
                if (k == 0 && turns) store_first(a.dx.row(row), (int)N, pack(dx));
                else if constexpr (alike || behind) store_once<step>(a.dx.row(row) + column(at), pack(dx));
                else store<step>(a.dx.row(row) + column(at), dx);
            });
            if (end >= 0) {
                auto dx = now.gradient(now.x, now.dout, end_w, means, [&](int, acc_t d, acc_t xh) {
                    end_sum[0] += d * xh;
                    if constexpr (sums > 1) end_sum[1] += d;
                });
                a.dx.row(row)[end] = dx.v[0];
            }
            __syncwarp(); // all that was read has been needed for dx: no fence
            if (lane == 0) barrier_arrive(&s.empty[turn.stage()]);
            now = next, next = later;
        }
#pragma unroll
        for (int which = 0; which < sums; which++) {
            acc_t* to = P::at(a.workspace, blockIdx.x / blocks, which);
            each(mine, [&](int k, int at) {
                Vec<acc_t, step> v;
#pragma unroll
                for (int i = 0; i < step; i++) {
                    v.v[i] = sum[which][k][i];
                    if (alike) to[column(at) + i] = v.v[i];
                }
                if constexpr (!alike) store<step>(to + column(at) + behind, v); // the last one's sum before the first's
            });
            if (end >= 0) to[end] = end_sum[which];
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) P::count(a.workspace) = stride;
        cluster_meet(); // nobody leaves while others tell it something
    }

    // The column of which the sum stands at a place of the workspace.
    DEVICE i64 column(i64 at) { return !behind ? at : at == 0 ? N - 1 : at - 1; }
};

// Block of 256: the sums of 1024 columns over few parts.
template <int sums, i64 columns, class F> DEVICE void add_few_parts(u8* workspace, F put) {
    using P = Parts<sums, columns>;
    int parts = (int)P::count(workspace);
    i64 column = ((i64)blockIdx.x * 256 + threadIdx.x) * 4;
    if (column >= columns) return;
#pragma unroll
    for (int s = 0; s < sums; s++) {
        acc_t sum[4] = {};
#pragma unroll 8
        for (int part = 0; part < parts; part++) {
            Vec<acc_t, 4> v = load<4>(P::at(workspace, part, s) + column); // parts have room for whole vectors
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i] += v.v[i];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (column + i < columns) put(s, column + i, sum[i]);
    }
}
