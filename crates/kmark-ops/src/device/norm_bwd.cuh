// Backward of RMSNorm and LayerNorm. Blocks walk over rows, those that come next on their way into shared memory, and
// sum dw (and dbias) of their columns as they go; a last kernel adds the blocks' sums. Rows that are too long for that
// get dx and the sums from two kernels that read them twice.
#pragma once
#include "alike.cuh"
#include "column_sums.cuh"
#include "mma.cuh"
#include "norm_gradient.cuh"

// 4 or 8 bytes to shared memory, at a multiple of as many.
#ifndef KMARK_EMULATE
template <int bytes> DEVICE void copy_async_word(void* to, const void* from) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(bytes) : "memory");
}
#else
template <int bytes> DEVICE void copy_async_word(void* to, const void* from) { memcpy(to, from, bytes); }
#endif

// How a team walks over rows: by vectors, of rows that have whole ones or start alike, or by elements.
template <class T, bool alike, int step, Start start> struct Walks {
    using By = Layout<T, N, step, true, start>;
    DEVICE By like(const x_t*) { return By(); }
};
template <class T, int step, Start start> struct Walks<T, true, step, start> {
    using By = Alike<T, N, step>;
    DEVICE By like(const x_t* row) { return By(row); }
};

// `sums`: 1 for dw alone, 2 with dbias.
template <bool centred, int sums> struct NormBwd {
    static constexpr i64 vectors = ceil_div(N * sizeof(x_t), 16);
    static constexpr int wide = 16 / sizeof(x_t);
    static constexpr bool aligned = rows_aligned<x_t>(MEMORY, N), turned = rows_behind<x_t>(MEMORY, N);
    using P = Parts<sums, N>;

    // A row as one thread sees it.
    template <class L> struct Input : RowNorm<centred> {
        Row<L, x_t> x;
        Row<L, dout_t> dout;

        // Adds to the sums of xh * g and, if the norm is centred, of g. Calls each(f) with f(k, column) for every access.
        template <class W, class F> __device__ __forceinline__ void add_all(acc_t (&of)[1 + centred], const W& w, F each) const {
            each([&](int k, int column) {
                if constexpr (L::resident && !W::resident) one_at_a_time();
                this->add_to(of, x.at(k, column), dout.at(k, column), w.at(k, column)); // dout is 0 beyond the row
            });
        }
        template <class W, class F>
        __device__ __forceinline__ auto dx_at(int k, int column, const W& w, const acc_t (&means)[1 + centred], F also) const {
            return this->gradient(x.at(k, column), dout.at(k, column), w.at(k, column), means, also);
        }
    };
    template <class T> DEVICE void means_of(acc_t (&of)[1 + centred], int slot) {
        team_all<Add, T>(of, (acc_t)0, slot);
#pragma unroll
        for (int i = 0; i < 1 + centred; i++) of[i] *= (acc_t)(1.0 / N);
    }

    // Whether rows are turned on the walk; short ones are not.
    static constexpr bool walks_behind = turned && vectors >= 32;

    // ---- Walking: rows of `across` threads each, which hold what they sum of their columns; copies of 16 bytes bring the next
    // rows. `blocks`: per multiprocessor; `every`: rows that are so many apart start alike. Rows that are not whole vectors are
    // walked over with those that start alike (the longest before Hopper by elements). Rows that start one element behind a vector
    // are turned (spans.cuh): the last element stands before the first, and comes into shared memory beside the vectors. Where the
    // memory of short ones has no vectors, they are read by elements.
    template <int across, int threads, int blocks, int stages, int every> struct Walking {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
        static constexpr bool hopper = false;
#else
        static constexpr bool hopper = true;
#endif
        static constexpr bool whole = aligned && N % wide == 0, behind = walks_behind;
        static constexpr bool alike = !whole && !behind && vectors >= 32 && (hopper || vectors <= 1536);
        static constexpr bool copied = aligned || alike || behind;
        using T = Team<across, threads>;
        using How = Walks<T, alike, copied ? wide : 1, behind ? Start::behind : Start::aligned>;
        using Walk = typename How::By;
        static constexpr int step = Walk::step, count = Walk::count;
        static constexpr int word = sizeof(x_t) > 4 ? sizeof(x_t) : 4; // what can be copied of a last element
        static constexpr int vector_bytes = 2 * (int)ceil_div(vectors, across) * threads * 16;
        static constexpr int stage_bytes = vector_bytes + (behind ? (int)ceil_div(T::rows * 2 * word, 128) * 128 : 0);
        // w stays in registers if sums and row leave room, else in shared memory; before Hopper, compilers find less of it.
        static constexpr int registers = 65536 / (threads * blocks);
        static constexpr int addresses = alike || behind ? registers / (hopper || (behind && T::rows == 1) ? 16 : 8) : 0;
        static constexpr int conditions = !alike && centred && vectors % across != 0 ? 6 : 0;
        static constexpr int room = (hopper && registers > 96 ? registers / 2 : registers * 2 / 5) - addresses - conditions;
        static constexpr i64 held_bytes = (i64)count * step * (sums * sizeof(acc_t) + 2 * sizeof(x_t) + sizeof(w_t));
        static constexpr bool hold_w = held_bytes <= 4 * room;

        struct W {
            static constexpr bool resident = hold_w;
            using Place = Pack<w_t, step>;
            Place held[hold_w ? count : 1];

            // This thread's in shared memory, behind the stages.
            DEVICE Place& own(u8* shared, int k) {
                return reinterpret_cast<Place*>(shared + stages * stage_bytes)[k * threads + (int)threadIdx.x];
            }
            template <class F> __device__ __forceinline__ void load(const w_t* row, u8* shared, F each) {
                each([&](int k, int column) {
                    Place w;
                    if constexpr (alike) w = Walk::beside(row, column);
                    else if constexpr (behind) w = Walk::take_behind(row, column);
                    else w = Walk::take(row, k, column);
                    if constexpr (hold_w) held[k] = w;
                    else own(shared, k) = w;
                });
            }
            __device__ __forceinline__ Vec<w_t, step> at(int k, int) const {
                extern __shared__ __align__(128) u8 shared[];
                if constexpr (hold_w) return unpack(held[k]);
                else return unpack(own(shared, k));
            }
        };
        // What a thread knows of a row beside its vectors: an element at an end, if one is its own.
        struct Beside : RowNorm<centred> {
            Vec<x_t, 1> x;
            Vec<dout_t, 1> dout;

            template <class A> __device__ __forceinline__ void of(const A& a, int row, int end) {
                this->norm_of(a, row);
                if (alike && end >= 0) x.v[0] = a.x.row(row)[end], dout.v[0] = a.dout.row(row)[end];
            }
        };

        // This thread's part of x (which = 0) or dout (1) in the stage that is so many bytes behind the first.
        DEVICE u8* slot(u8* shared, int stage, int which, int k) {
            return shared + stage + ((which * count + k) * threads + (int)threadIdx.x) * 16;
        }
        // Of rows that are turned, the last element of x or dout, behind a stage's vectors.
        DEVICE u8* last(u8* shared, int stage, int which) {
            return shared + stage + vector_bytes + (which * T::rows + T::index()) * word;
        }
        // Starts copying a row into a stage. What is computed of rows that do not exist goes nowhere.
        template <class A, class F> DEVICE void fetch(const A& a, u8* shared, int stage, int row, F each) {
            bool exists = row < (int)a.m;
            if ((alike || behind) && !exists) return; // without registers for another address
            const x_t* x = a.x.row(exists ? row : 0);
            const dout_t* dout = a.dout.row(exists ? row : 0);
            each([&](int k, int column) {
                copy_async16(slot(shared, stage, 0, k), x + column, exists);
                copy_async16(slot(shared, stage, 1, k), dout + column, exists);
            });
            if (behind && T::lane() == 0) {
                copy_async_word<word>(last(shared, stage, 0), x + N - 1);
                copy_async_word<word>(last(shared, stage, 1), dout + N - 1);
            }
        }
        template <class E, class F> DEVICE void fetched(Row<Walk, E>& row, u8* shared, int stage, int which, F each) {
            each([&](int k, int column) {
                if constexpr (behind) {
                    Pack<E, step> p = *reinterpret_cast<const Pack<E, step>*>(slot(shared, stage, which, k));
                    if (k == 0 && column < 0) put_first(p, *reinterpret_cast<const E*>(last(shared, stage, which)));
                    row.held[k] = p;
                } else {
                    auto v = load<step>(reinterpret_cast<const E*>(slot(shared, stage, which, k)));
#pragma unroll
                    for (int i = 0; i < step; i++)
                        if (!Walk::has(k, column + i)) v.v[i] = E{}; // came from the gap behind the row
                    row.set(k, v);
                }
            });
        }

        // `every` blocks have T::rows rows each of as many together.
        DEVICE int first_row(u32 block) { return (int)block / every * T::rows * every + block % every; }

        // Writes what the block summed. Sums that lie across vectors go through shared memory, so that threads beside each other
        // write what lies beside each other; of rows that are turned, sums stand as the elements do, the last one's first.
        DEVICE void put_sum(acc_t (&mine)[count][step], const Walk& like, int end, acc_t end_sum, acc_t* part, acc_t* all) {
            if constexpr (alike && T::rows == 1) {
                __syncthreads(); // it may still be read
                like.each([&](int k, int column) {
                    Vec<acc_t, step> v;
#pragma unroll
                    for (int i = 0; i < step; i++) v.v[i] = mine[k][i];
                    store<step>(all + column - like.lead, v);
                });
                if (end >= 0) part[end] = end_sum;
                __syncthreads();
                for (int at = threadIdx.x; at < like.whole() * step; at += threads) part[like.lead + at] = all[at];
            } else {
                auto each = [&](auto f) { like.each([&](int k, int column) { f(k, column + behind); }); };
                put_part<Walk>(mine, each, end, end_sum, part, all);
            }
        }

        template <class A> DEVICE void walk(const A& a) {
            extern __shared__ __align__(128) u8 shared[];
            next_may_start();
            acc_t sum[sums][count][step], end_sum[sums];
#pragma unroll
            for (int k = 0; k < sums * count * step; k++) sum[k / (count * step)][k / step % count][k % step] = 0;
#pragma unroll
            for (int s = 0; s < sums; s++) end_sum[s] = 0;
            int m = (int)a.m, first = first_row(blockIdx.x), stride = gridDim.x * T::rows;
            int mine = T::index() * every, end = -1;
            auto some = [&](int row) { return min(row, m - 1); };
            const Walk like = How::like(a.x.row(some(first)));
            if constexpr (alike) {
                if (T::lane() >= across - 32) end = like.end(T::lane() - (across - 32));
            }
            auto each = [&](auto f) { like.each(f); };
            W w;
            if constexpr (!alike) w.load(a.w.ptr, shared, each);
            Vec<w_t, 1> end_w{};
            if (alike && end >= 0) end_w.v[0] = a.w.ptr[end];
            Input<Walk> now;
            Beside beside, next;
            if constexpr (copied) {
#pragma unroll
                for (int stage = 0; stage < stages; stage++)
                    fetch(a, shared, stage * stage_bytes, first + stage * stride + mine, each), copy_commit();
            }
            if constexpr (alike) w.load(a.w.ptr, shared, each); // their words are put together, which waits for them
            if constexpr (copied) next.of(a, some(first + mine), end);
            for (int stage = 0, turn = 0; first < m; first += stride, turn ^= 1) {
                int row = first + mine;
                if constexpr (copied) {
                    copy_wait<stages - 1>();
                    fetched(now.x, shared, stage, 0, each);
                    fetched(now.dout, shared, stage, 1, each);
                    beside = next;
                    next.of(a, some(row + stride), end);
                } else {
                    now.x = Row<Walk, x_t>(a.x.row(some(row)));
                    now.dout = Row<Walk, dout_t>(a.dout.row(some(row)));
                    beside.norm_of(a, some(row));
                }
                now.mean = beside.mean, now.r = beside.r;
                acc_t means[1 + centred];
                means[0] = means[centred] = 0;
                now.add_all(means, w, each);
                if (alike && end >= 0) beside.add_to(means, beside.x, beside.dout, end_w);
                means_of<T>(means, turn);
                if constexpr (copied) { // the stage has been read
                    fetch(a, shared, stage, row + stages * stride, each), copy_commit();
                    stage = stage < (stages - 1) * stage_bytes ? stage + stage_bytes : 0;
                }
                if constexpr (sizeof(x_t) < sizeof(acc_t) && count * step > 8) {
#pragma unroll
                    for (int k = 0; k < count; k++) forget(now.x.held[k].w), forget(now.dout.held[k].w); // they are converted again
                }
                if (row >= m) continue;
                each([&](int k, int column) {
                    if constexpr (!hold_w) one_at_a_time();
                    auto dx = now.dx_at(k, column, w, means, [&](int i, acc_t d, acc_t xh) {
                        sum[0][k][i] += d * xh;
                        if constexpr (sums > 1) sum[1][k][i] += d;
                    });
                    Walk::put(a.dx.row(row), k, column, dx);
                });
                if (alike && end >= 0) {
                    auto dx = beside.gradient(beside.x, beside.dout, end_w, means, [&](int, acc_t d, acc_t xh) {
                        end_sum[0] += d * xh;
                        if constexpr (sums > 1) end_sum[1] += d;
                    });
                    a.dx.row(row)[end] = dx.v[0];
                }
            }
            if constexpr (copied) copy_wait<0>();
            acc_t* all = reinterpret_cast<acc_t*>(shared);
            Walk again = like;
            if constexpr (alike && T::rows == 1) {
                u32 block[1] = {blockIdx.x};
                forget(block); // how rows start is found once more: kept, it would take a register from the walk
                again = How::like(a.x.row(some(first_row(block[0]))));
            }
#pragma unroll
            for (int s = 0; s < sums; s++) put_sum(sum[s], again, end, end_sum[s], P::at(a.workspace, blockIdx.x, s), all);
            if (blockIdx.x == 0 && threadIdx.x == 0) P::count(a.workspace) = gridDim.x;
        }
    };

    // The column of which the sum stands at a place of the workspace.
    template <bool walks> DEVICE i64 column(i64 at) { return !(walks && walks_behind) ? at : at == 0 ? N - 1 : at - 1; }

    // ---- Two passes: a block for each row, then a block for some columns of some rows. Rows are not held.
    static constexpr int step = turned || aligned ? wide : 1;
    using Long = Layout<Team<1024, 1024>, N, step, false, turned ? Start::behind : Start::aligned>;

    template <class A> DEVICE void row(const A& a) {
        Input<Long> now;
        now.x.row = a.x.row(blockIdx.x), now.dout.row = a.dout.row(blockIdx.x);
        now.norm_of(a, blockIdx.x);
        Weights<Long, w_t, false> w(a.w.ptr);
        acc_t means[1 + centred];
        means[0] = means[centred] = 0;
        now.add_all(means, w, [](auto f) { Long::template each_of<2>(f); });
        means_of<typename Long::Team>(means, 0);
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
