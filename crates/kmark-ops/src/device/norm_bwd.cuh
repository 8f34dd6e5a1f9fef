// Backward of RMSNorm and LayerNorm. Blocks walk over rows, those that come next on their way into shared memory, and
// sum dw (and dbias) of their columns as they go; a last kernel adds the blocks' sums. Rows that are too long for that
// get dx and the sums from two kernels that read them twice.
#pragma once
#include "column_sums.cuh"
#include "mma.cuh"
#include "norm_gradient.cuh"

// `sums`: 1 for dw alone, 2 with dbias. `walks`: whether rows are short enough for the first way.
template <bool centred, int sums, bool walks> struct NormBwd {
    static constexpr i64 vectors = ceil_div(N * sizeof(x_t), 16);
    // With sums of dbias there are no registers for rows that are turned, nor with the means of short ones; before Hopper, compilers
    // find them for long ones alone.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    static constexpr int shortest = 257;
#else
    static constexpr int shortest = centred ? 33 : 8;
#endif
    static constexpr bool turned = rows_behind<x_t>(MEMORY, N) && sums == 1 && vectors >= shortest;
    static constexpr bool aligned = rows_aligned<x_t>(MEMORY, N) || turned;
    static constexpr Start start = turned ? Start::behind : Start::aligned;
    static constexpr int wide = 16 / sizeof(x_t), step = aligned ? wide : 1;
    using P = Parts<sums, N>;

    // A row as one thread sees it.
    template <class L> struct Input : RowNorm<centred> {
        Row<L, x_t> x;
        Row<L, dout_t> dout;
        x_t x_last; // of a row that is turned
        dout_t dout_last;

        // What copies of 16 bytes do not bring.
        template <class A> __device__ __forceinline__ void beside(const A& a, i64 row) {
            this->norm_of(a, row);
            if (turned && L::Team::lane() == 0) x_last = a.x.row(row)[N - 1], dout_last = a.dout.row(row)[N - 1];
        }
        // mean(xh * g), and mean(g) if the norm is centred.
        template <class W> __device__ __forceinline__ void means(acc_t (&of)[1 + centred], const W& w, int slot) const {
            of[0] = of[centred] = 0;
            L::template each_of<L::resident ? L::count : 2>([&](int k, int column) {
                if constexpr (L::resident && !W::resident) one_at_a_time();
                this->add_to(of, x.at(k, column), dout.at(k, column), w.at(k, column)); // dout is 0 beyond the row
            });
            team_all<Add, typename L::Team>(of, (acc_t)0, slot);
#pragma unroll
            for (int i = 0; i < 1 + centred; i++) of[i] /= (acc_t)N;
        }
        // Access k of dx.
        template <class W, class F> __device__ __forceinline__ Vec<dx_t, L::step>
        dx_at(int k, int column, const W& w, const acc_t (&means)[1 + centred], F also) const {
            return this->gradient(x.at(k, column), dout.at(k, column), w.at(k, column), means, also);
        }
    };

    // ---- Walking: blocks of 512 threads, as many to a row as it has vectors, or an equal part of that. Rows that are
    // not aligned cannot be copied in 16 bytes; there the threads load them, and for longer rows all 512 do.
    static constexpr int threads = 512;
    static constexpr i64 shares = ceil_div(vectors, threads);
    static constexpr i64 warps = aligned || shares == 1 ? ceil_div(ceil_div(vectors, shares), 32) : threads / 32;
    using WalkTeam = Team<vectors <= 32 ? up_to_pow2(vectors) : (int)warps * 32, threads>;
    using Walk = Layout<WalkTeam, N, step, true, start>;
    static constexpr int count = Walk::count, blocks = shares == 1 ? 2 : 1; // blocks per multiprocessor
    static constexpr int stages = aligned ? 6 / count : 1, stage_bytes = 2 * count * threads * 16; // 96 KB in all
    // w stays in registers if sums and row leave room.
    static constexpr i64 held_bytes = (i64)count * step * (sums * sizeof(acc_t) + 2 * sizeof(x_t) + sizeof(w_t));
    static constexpr bool hold_w = held_bytes <= 4 * (blocks == 2 ? 28 : turned ? 56 : 64);

    // This thread's part of x (which = 0) or dout (1) in a stage.
    DEVICE u8* slot(u8* shared, int stage, int which, int k) {
        return shared + stage * stage_bytes + ((which * count + k) * threads + (int)threadIdx.x) * 16;
    }
    // Starts copying a row into a stage; rows that do not exist become 0.
    template <class A> DEVICE void fetch(const A& a, u8* shared, int stage, i64 row) {
        bool exists = WalkTeam::index() < WalkTeam::rows && row < a.m;
        Walk::each([&](int k, int column) {
            copy_async16(slot(shared, stage, 0, k), a.x.row(exists ? row : 0) + column, exists);
            copy_async16(slot(shared, stage, 1, k), a.dout.row(exists ? row : 0) + column, exists);
        });
    }
    template <class E> DEVICE void fetched(Row<Walk, E>& row, u8* shared, int stage, int which, E last) {
        Walk::each([&](int k, int column) {
            auto v = load<step>(reinterpret_cast<const E*>(slot(shared, stage, which, k)));
#pragma unroll
            for (int i = 0; i < step; i++)
                if (!Walk::has(k, column + i)) v.v[i] = E{}; // came from the gap behind the row
            if (turned && k == 0 && column < 0) v.v[0] = last;
            row.set(k, v);
        });
    }

    template <class A> DEVICE void walk(const A& a) {
        extern __shared__ __align__(16) u8 shared[];
        acc_t sum[sums][count][step];
#pragma unroll
        for (int k = 0; k < sums * count * step; k++) sum[k / (count * step)][k / step % count][k % step] = 0;
        Weights<Walk, w_t, hold_w> w(a.w.ptr);
        i64 first = (i64)blockIdx.x * WalkTeam::rows, stride = (i64)gridDim.x * WalkTeam::rows;
        auto some = [&](i64 row) { return row < a.m ? row : a.m - 1; };
        Input<Walk> now, next;
        if constexpr (aligned) {
#pragma unroll
            for (int stage = 0; stage < stages; stage++)
                fetch(a, shared, stage, first + stage * stride + WalkTeam::index()), copy_commit();
            next.beside(a, some(first + WalkTeam::index()));
        }
        for (int stage = 0, turn = 0; first < a.m; first += stride, turn ^= 1) {
            i64 row = first + WalkTeam::index();
            if constexpr (aligned) {
                copy_wait<stages - 1>();
                fetched(now.x, shared, stage, 0, next.x_last);
                fetched(now.dout, shared, stage, 1, next.dout_last);
                now.mean = next.mean, now.r = next.r;
                next.beside(a, some(row + stride));
            } else {
                now.x = Row<Walk, x_t>(a.x.row(some(row)));
                now.dout = Row<Walk, dout_t>(a.dout.row(some(row)));
                now.norm_of(a, some(row));
            }
            acc_t means[1 + centred];
            now.means(means, w, turn);
            if constexpr (aligned) { // the stage has been read
                fetch(a, shared, stage, row + stages * stride), copy_commit();
                stage = stage + 1 < stages ? stage + 1 : 0;
            }
            now.x.convert_again();
            now.dout.convert_again();
            if (WalkTeam::index() >= WalkTeam::rows || row >= a.m) continue;
            Walk::each([&](int k, int column) {
                auto dx = now.dx_at(k, column, w, means, [&](int i, acc_t d, acc_t xh) {
                    sum[0][k][i] += d * xh;
                    if constexpr (sums > 1) sum[1][k][i] += d;
                });
                Walk::put(a.dx.row(row), k, column, dx);
            });
        }
        if constexpr (aligned) copy_wait<0>();
        acc_t* all = reinterpret_cast<acc_t*>(shared);
#pragma unroll
        for (int s = 0; s < sums; s++) put_part<Walk>(sum[s], P::at(a.workspace, blockIdx.x, s), all);
        if (blockIdx.x == 0 && threadIdx.x == 0) P::count(a.workspace) = gridDim.x;
    }

    // ---- Two passes: a block for each row, then a block for some columns of some rows. Rows are not held.
    using Long = Layout<Team<1024, 1024>, N, step, false, start>;

    template <class A> DEVICE void row(const A& a) {
        Input<Long> now;
        now.x.row = a.x.row(blockIdx.x), now.dout.row = a.dout.row(blockIdx.x);
        now.norm_of(a, blockIdx.x);
        Weights<Long, w_t, false> w(a.w.ptr);
        acc_t means[1 + centred];
        now.means(means, w, 0);
        Long::each([&](int k, int column) {
            auto dx = now.dx_at(k, column, w, means, [](int, acc_t, acc_t) {});
            Long::put(a.dx.row(blockIdx.x), k, column, dx);
        });
    }

    // Block (x, y) of 128 threads: tile x of the columns, part y of the rows; 16 bytes of a row to a thread.
    template <class A> DEVICE void columns(const A& a) {
        constexpr int accesses = wide / step;
        acc_t sum[sums][accesses][step];
#pragma unroll
        for (int k = 0; k < sums * wide; k++) sum[k / wide][k / step % accesses][k % step] = 0;
        i64 begin = a.m * blockIdx.y / gridDim.y, end = a.m * (blockIdx.y + 1) / gridDim.y;
        auto column = [&](int k) { return ((i64)blockIdx.x * wide * 128) + (k * 128 + (int)threadIdx.x) * step - turned; };
#pragma unroll 4
        for (i64 row = begin; row < end; row++) {
            RowNorm<centred> now;
            now.norm_of(a, row);
#pragma unroll
            for (int k = 0; k < accesses; k++) {
                if (column(k) + turned >= N) continue;
                int which = turned ? 0 : Long::count - 1; // the access that may stick out
                auto vx = unpack(Long::take(a.x.row(row), which, (int)column(k)));
                auto vd = unpack(Long::take(a.dout.row(row), which, (int)column(k)));
#pragma unroll
                for (int i = 0; i < step; i++) {
                    sum[0][k][i] += up(vd.v[i]) * now.hat(vx.v[i]);
                    if constexpr (sums > 1) sum[1][k][i] += up(vd.v[i]);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < sums * wide; k++) {
            int s = k / wide, access = k / step % accesses, i = k % step;
            if (column(access) + turned + i < N) P::at(a.workspace, blockIdx.y, s)[Long::place((int)column(access) + i)] = sum[s][access][i];
        }
        if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) P::count(a.workspace) = gridDim.y;
    }
};
