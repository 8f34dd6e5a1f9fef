// Backward of RMSNorm and LayerNorm where there are few rows: blocks have some columns of all rows, so that they know
// dw (and dbias) of those columns. What they miss are the sums over whole rows. Little work is done by one cluster of
// blocks, which hold what they loaded and tell each other their parts of the sums. As much as all blocks of the GPU hold
// is one launch as well: they have some columns of some rows, and tell each other both kinds of sums through memory. More
// of it takes two launches, of which the first makes the sums; the second starts loading while the first is under way.
#pragma once
#include "column_sums.cuh"
#include "norm_gradient.cuh"
#include "tell.cuh"

// `sums`: 1 for dw alone, 2 with dbias.
template <bool centred, int sums> struct FewRows {
    static constexpr int values = 1 + centred, wide = 16 / sizeof(x_t);
    static constexpr int step = rows_aligned<x_t>(MEMORY, N) ? wide : row_step<x_t>(MEMORY, N);
    static_assert(is<x_t, dout_t>, "they are loaded together");
    using Held = Pack<x_t, wide>;

    // ---- Tiles: `across` threads side by side, 16 bytes of a row to each, and as many rows as a block has such teams.
    // Where rows are not aligned, the 16 bytes are several accesses, each of them side by side with those of others.
    template <int across, int threads> struct Tile {
        static constexpr int columns = across * wide, accesses = wide / step, rows = threads / across;
        using Layout = ::Layout<Team<across, threads>, columns, step, true>;

        DEVICE int lane() { return threadIdx.x % across; }
        DEVICE int row() { return threadIdx.x / across; }
        // Column of this thread's first access.
        DEVICE int at(int tile) { return tile * columns + lane() * step; }

        // 0 for columns beyond the row. What sticks out is loaded, too: it lies in the gap or guard behind the row, and elements
        // by themselves would take a branch, in which each vector waits for the one before.
        template <class E> DEVICE Pack<E, step> take_one(const E* row, int column) {
            constexpr bool tail = N % step != 0;
            Pack<E, step> p;
            memset(&p, 0, sizeof p);
            if (column + (tail ? 1 : step) <= N) p = *reinterpret_cast<const Pack<E, step>*>(row + column);
            if constexpr (tail) {
                Vec<E, step> v = unpack(p);
#pragma unroll
                for (int i = 1; i < step; i++) v.v[i] = column + i < N ? v.v[i] : E{};
                p = pack(v);
            }
            return p;
        }
        template <class E> DEVICE Pack<E, wide> take(const E* row, int at) {
            if constexpr (accesses == 1) {
                return take_one(row, at);
            } else {
                Vec<E, wide> all;
#pragma unroll
                for (int k = 0; k < accesses; k++) {
                    Vec<E, step> v = unpack(take_one(row, at + k * across * step));
#pragma unroll
                    for (int i = 0; i < step; i++) all.v[k * step + i] = v.v[i];
                }
                return pack(all);
            }
        }
        template <class E> DEVICE void put(E* row, int at, const Vec<E, wide>& all) {
#pragma unroll
            for (int k = 0; k < accesses; k++) {
                int column = at + k * across * step;
                Vec<E, step> v;
#pragma unroll
                for (int i = 0; i < step; i++) v.v[i] = all.v[k * step + i];
                if (column + step <= N) {
                    store_once<step>(row + column, pack(v));
                } else if constexpr (N % step != 0) {
#pragma unroll
                    for (int i = 0; i < step; i++)
                        if (column + i < N) row[column + i] = v.v[i];
                }
            }
        }

        // dw and dbias of the tile's columns, from what each thread summed.
        template <class A> DEVICE void put_sums(const A& a, int tile, acc_t (&sum)[sums][accesses][step]) {
            __shared__ __align__(16) acc_t all[rows > 1 ? (across < 32 ? threads / 32 : rows) * columns : 1];
#pragma unroll
            for (int s = 0; s < sums; s++) {
                dw_t* to = a.dw.ptr;
                if constexpr (sums > 1) to = s == 0 ? a.dw.ptr : a.dbias.ptr;
                if constexpr (rows > 1) {
                    add_teams<Layout>(sum[s], all, [&](int column, acc_t v) {
                        if (tile * columns + column < N) to[tile * columns + column] = down<dw_t>(v);
                    });
                } else {
                    Vec<dw_t, wide> v;
#pragma unroll
                    for (int i = 0; i < wide; i++) v.v[i] = down<dw_t>(sum[s][i / step][i % step]);
                    put(to, at(tile), v);
                }
            }
        }
    };

    template <class T> DEVICE void clear(acc_t (&sum)[sums][T::accesses][step]) {
#pragma unroll
        for (int i = 0; i < sums * wide; i++) sum[i / wide][i / step % T::accesses][i % step] = 0;
    }
    // dx of 16 bytes of a row; adds to the sums.
    template <class T, class A> DEVICE void put_dx(const A& a, i64 row, int at, const RowNorm<centred>& norm,
                                                   Held (&held)[2], const Pack<w_t, wide>& w,
                                                   const acc_t (&means)[values],
                                                   acc_t (&sum)[sums][T::accesses][step]) {
        forget(held[0].w), forget(held[1].w); // they are converted now, not long before
        auto dx = norm.gradient(unpack(held[0]), unpack(held[1]), unpack(w), means, [&](int i, acc_t d, acc_t xh) {
            sum[0][i / step][i % step] += d * xh;
            if constexpr (sums > 1) sum[1][i / step][i % step] += d;
        });
        T::put(a.dx.row(row), at, dx);
    }

    // This thread's rows of its tiles; zeros for rows beyond the last.
    template <class T, int rows, int tiles, int all, class A, class Q, class R>
    DEVICE void take_all(const A& a, Q tile, R row, Pack<w_t, wide> (&w)[tiles], RowNorm<centred> (&norm)[rows],
                         Held (&held)[all][2]) {
#pragma unroll
        for (int q = 0; q < tiles; q++) w[q] = T::take(a.w.ptr, T::at(tile(q)));
#pragma unroll
        for (int r = 0; r < rows; r++) {
            int from = row(r) < M ? row(r) : 0;
            norm[r].norm_of(a, from);
#pragma unroll
            for (int q = 0; q < tiles; q++) {
                int at = row(r) < M ? T::at(tile(q)) : (int)N;
                held[r * tiles + q][0] = T::take(a.x.row(from), at);
                held[r * tiles + q][1] = T::take(a.dout.row(from), at);
            }
        }
        loads_first(held);
    }

    // ---- One launch of one cluster: each block has `tiles` tiles side by side, each thread `rows` rows of them.
    template <int blocks, int across, int threads, int rows, int tiles, class A> DEVICE void cluster(const A& a) {
        using T = Tile<across, threads>;
        static_assert(tiles == 1 || T::rows == 1, "tiles of several rows lie in one block each");
        constexpr int lanes = across < 32 ? across : 32, warps = across / lanes, parts = blocks * warps;
        if constexpr (blocks > 1) cluster_begin();
        int rank = blocks > 1 ? cluster_rank() : 0;
        auto tile = [&](int q) { return rank * tiles + q; };
        auto row = [&](int r) { return r * T::rows + T::row(); };

        Pack<w_t, wide> w[tiles];
        Held held[rows * tiles][2];
        RowNorm<centred> norm[rows];
        take_all<T>(a, tile, row, w, norm, held);

        acc_t of[rows][values];
#pragma unroll
        for (int r = 0; r < rows; r++) {
            of[r][0] = of[r][centred] = 0;
#pragma unroll
            for (int q = 0; q < tiles; q++)
                norm[r].add_to(of[r], unpack(held[r * tiles + q][0]), unpack(held[r * tiles + q][1]), unpack(w[q]));
            lanes_all<Add, lanes>(of[r]);
        }
        if constexpr (parts > 1) exchange<T, blocks, warps>(of, rank, row);

#pragma unroll
        for (int q = 0; q < tiles; q++) {
            acc_t sum[sums][T::accesses][step];
            clear<T>(sum);
#pragma unroll
            for (int r = 0; r < rows; r++) {
                acc_t means[values];
#pragma unroll
                for (int i = 0; i < values; i++) means[i] = of[r][i] / (acc_t)N;
                if (row(r) < M)
                    put_dx<T>(a, row(r), T::at(tile(q)), norm[r], held[r * tiles + q], w[q], means, sum);
            }
            T::put_sums(a, tile(q), sum);
        }
    }

    // From the sums of each warp those of whole rows; a warp of teams has the sums of several rows. All blocks get all.
    template <class T, int blocks, int warps, int rows, class F>
    DEVICE void exchange(acc_t (&of)[rows][values], int rank, F row) {
        constexpr int lanes = T::Layout::Team::here < 32 ? T::Layout::Team::here : 32, parts = blocks * warps;
        __shared__ __align__(16) acc_t known[values][M][parts];
        int lane = threadIdx.x % lanes, part = rank * warps + T::lane() / lanes;
        u64* barrier = slot_barriers();
        if constexpr (blocks > 1) {
            if (threadIdx.x == 0) barrier_expect(barrier, (int)sizeof known);
            cluster_wait(); // all blocks have their barriers
        }
#pragma unroll
        for (int r = 0; r < rows; r++) {
            if (row(r) >= M) continue;
#pragma unroll
            for (int i = 0; i < values; i++) {
#pragma unroll
                for (int from = 0; from < blocks; from += lanes) {
                    if (from + lane >= blocks) continue;
                    if constexpr (blocks > 1) send_to_block(&known[i][row(r)][part], of[r][i], barrier, from + lane);
                    else known[i][row(r)][part] = of[r][i];
                }
            }
        }
        if constexpr (blocks > 1) barrier_wait(barrier, 0);
        else __syncthreads();
#pragma unroll
        for (int r = 0; r < rows; r++) {
            int from = row(r) < M ? row(r) : 0;
#pragma unroll
            for (int i = 0; i < values; i++) {
                of[r][i] = 0;
                if constexpr (lanes == 32) {
#pragma unroll
                    for (int p = 0; p < parts; p += 32)
                        if (p + lane < parts) of[r][i] += known[i][from][p + lane];
                } else {
#pragma unroll
                    for (int p = 0; p < parts; p++) of[r][i] += known[i][from][p];
                }
            }
            if constexpr (lanes == 32) lanes_all<Add, 32>(of[r]);
        }
    }

    // ---- One launch of many blocks: `beside` x `below` tiles, of which a thread has `rows` rows. Sums over rows and over
    // columns both need other blocks, and neither needs the other: all parts are told first, then all are heard at once.
    template <int side, int threads, int rows, int beside, int below, class A> DEVICE void told(const A& a) {
        using T = Tile<side, threads>;
        using Word = Told<acc_t>;
        constexpr int lanes = side < 32 ? side : 32, group = up_to_pow2(below) < 32 ? up_to_pow2(below) : 32;
        using Across = ToldSum<beside, lanes>;
        using Down = ToldSum<below, group>;
        // Blocks below each other have the same columns and finish `share` of them each, `group` threads to a column.
        constexpr int share = (int)ceil_div(T::columns, below), pitch = sums * beside * T::columns;
        constexpr int turns = below > 1 ? (int)ceil_div(sums * share * group, threads) : 0;
        u32 launch = launch_begin(a.workspace);
        int x = blockIdx.x % beside, y = blockIdx.x / beside;
        auto row_here = [&](int r) { return r * T::rows + T::row(); };
        auto row = [&](int r) { return y * rows * T::rows + row_here(r); };
        Word* words = reinterpret_cast<Word*>(a.workspace + ceil_div(beside * below, 64) * 256);
        auto of_row = [&](int r, int i) { return words + (r * values + i) * beside; };
        auto of_column = [&](int s, int column) { return of_row(M, 0) + (s * beside + x) * T::columns + column; };

        Pack<w_t, wide> w[1];
        Held held[rows][2];
        RowNorm<centred> norm[rows];
        take_all<T>(a, [&](int) { return x; }, row, w, norm, held);

        acc_t of[rows][values], sum[sums][T::accesses][step];
#pragma unroll
        for (int r = 0; r < rows; r++) {
            of[r][0] = of[r][centred] = 0;
            norm[r].add_to(of[r], unpack(held[r][0]), unpack(held[r][1]), unpack(w[0]));
            lanes_all<Add, lanes>(of[r]);
        }
        if constexpr (side > lanes) exchange<T, 1, side / lanes>(of, 0, row_here);
        clear<T>(sum);
#pragma unroll
        for (int r = 0; r < rows; r++) {
            if (row(r) >= M) continue;
#pragma unroll
            for (int i = 0; i < values; i++)
                if (T::lane() == 0) tell(of_row(row(r), i) + x, of[r][i], launch);
            add_columns<T>(norm[r], held[r], sum);
        }
        if constexpr (below > 1) {
            __shared__ __align__(16) acc_t all[(side < 32 ? threads / 32 : T::rows) * T::columns];
#pragma unroll
            for (int s = 0; s < sums; s++)
                add_teams<typename T::Layout>(
                    sum[s], all, [&](int column, acc_t v) { tell(of_column(s, column) + y * pitch, v, launch); });
        } else {
            T::put_sums(a, x, sum);
        }

        // Which of dw and dbias, and of which column; who is left over does the same as the last.
        auto slot = [&](int t) { return min((t * threads + (int)threadIdx.x) / group, sums * share - 1); };
        auto column = [&](int t) { return min(y * share + slot(t) % share, T::columns - 1); };
        constexpr int first = rows * values * Across::each;
        const Word* from[first + turns * Down::each];
        acc_t heard[first + turns * Down::each];
#pragma unroll
        for (int i = 0; i < rows * values; i++)
            Across::ask(from + i * Across::each, of_row(row(i / values) < M ? row(i / values) : 0, i % values), 1);
#pragma unroll
        for (int t = 0; t < turns; t++)
            Down::ask(from + first + t * Down::each, of_column(slot(t) / share, column(t)), pitch);
        hear(heard, from, launch);

#pragma unroll
        for (int r = 0; r < rows; r++) {
            acc_t means[values];
#pragma unroll
            for (int i = 0; i < values; i++)
                means[i] = Across::add(heard + (r * values + i) * Across::each) * (acc_t)(1.0 / N);
            if (row(r) >= M) continue;
            forget(held[r][0].w), forget(held[r][1].w); // they are converted now, not long before
            auto dx = norm[r].gradient(unpack(held[r][0]), unpack(held[r][1]), unpack(w[0]), means, [](int, acc_t, acc_t) {});
            T::put(a.dx.row(row(r)), T::at(x), dx);
        }
#pragma unroll
        for (int t = 0; t < turns; t++) {
            acc_t v = Down::add(heard + first + t * Down::each);
            dw_t* to = a.dw.ptr;
            if constexpr (sums > 1) to = slot(t) < share ? a.dw.ptr : a.dbias.ptr;
            int at = x * T::columns + column(t);
            if (threadIdx.x % group == 0 && at < N) to[at] = down<dw_t>(v);
        }
        launch_end(a.workspace, launch);
    }
    template <class T>
    DEVICE void add_columns(const RowNorm<centred>& norm, const Held (&held)[2], acc_t (&sum)[sums][T::accesses][step]) {
        auto x = unpack(held[0]), dout = unpack(held[1]);
#pragma unroll
        for (int i = 0; i < wide; i++) {
            acc_t d = up(dout.v[i]);
            sum[0][i / step][i % step] += d * norm.hat(x.v[i]);
            if constexpr (sums > 1) sum[1][i / step][i % step] += d;
        }
    }

    // ---- Two launches. The first: block `b` has part b % chunks of row b / chunks, `together` vectors to a thread.
    template <int threads, int together, int chunks, class A> DEVICE void sum(const A& a) {
        using T = Tile<threads, threads>;
        next_may_start();
        int row = blockIdx.x / chunks, tile = (int)(blockIdx.x % chunks) * together;
        RowNorm<centred> norm;
        norm.norm_of(a, row);
        Held held[together][2];
        Pack<w_t, wide> w[together];
#pragma unroll
        for (int k = 0; k < together; k++) {
            w[k] = T::take(a.w.ptr, T::at(tile + k));
            held[k][0] = T::take(a.x.row(row), T::at(tile + k));
            held[k][1] = T::take(a.dout.row(row), T::at(tile + k));
        }
        loads_first(held);
        acc_t of[values];
        of[0] = of[centred] = 0;
#pragma unroll
        for (int k = 0; k < together; k++) norm.add_to(of, unpack(held[k][0]), unpack(held[k][1]), unpack(w[k]));
        team_all<Add, Team<threads, threads>>(of, (acc_t)0, 0);
        if (threadIdx.x > 0) return;
#pragma unroll
        for (int i = 0; i < values; i++) part(a, row, chunks, blockIdx.x % chunks, i) = of[i];
    }
    template <class A> DEVICE acc_t& part(const A& a, i64 row, int chunks, int chunk, int value) {
        return reinterpret_cast<acc_t*>(a.workspace)[(row * values + value) * chunks + chunk];
    }

    // A row and the means over it.
    struct Whole {
        RowNorm<centred> norm;
        acc_t means[values];
    };
    // The second: a block has a tile of columns and goes over all rows, `together` of them to a thread at a time.
    template <int across, int threads, int together, int chunks, class A> DEVICE void tile(const A& a) {
        using T = Tile<across, threads>;
        constexpr int rows = together * T::rows;
        __shared__ Whole whole[M];
        int at = T::at(blockIdx.x);
        auto has = [&](int row) { return M % rows == 0 || row < M; };
        auto w = T::take(a.w.ptr, at);
        acc_t sum[sums][T::accesses][step];
        clear<T>(sum);
        for (int first = T::row(); first - T::row() < M; first += rows) {
            Held held[together][2];
#pragma unroll
            for (int k = 0; k < together; k++) {
                int row = first + k * T::rows;
                held[k][0] = T::take(a.x.row(has(row) ? row : 0), has(row) ? at : (int)N);
                held[k][1] = T::take(a.dout.row(has(row) ? row : 0), has(row) ? at : (int)N);
            }
            loads_first(held);
            if (first == T::row()) { // the first rows come while the sums are made
                wait_for_last();
                add_parts_of_rows<threads, chunks>(a, whole);
            }
#pragma unroll
            for (int k = 0; k < together; k++) {
                int row = first + k * T::rows;
                if (has(row)) put_dx<T>(a, row, at, whole[row].norm, held[k], w, whole[row].means, sum);
            }
        }
        T::put_sums(a, blockIdx.x, sum);
    }

    // Some lanes for each row, all rows at a time where there are threads enough.
    template <int threads, int chunks, class A> DEVICE void add_parts_of_rows(const A& a, Whole (&whole)[M]) {
        constexpr int lanes = up_to_pow2(chunks) < 32 ? up_to_pow2(chunks) : 32, rows = threads / lanes;
        int lane = threadIdx.x % lanes;
#pragma unroll 4
        for (int first = 0; first < M; first += rows) {
            int row = first + (int)threadIdx.x / lanes, from = row < M ? row : 0;
            Whole of;
            of.norm.norm_of(a, from);
#pragma unroll
            for (int i = 0; i < values; i++) {
                of.means[i] = 0;
#pragma unroll 16
                for (int k = lane; k < chunks; k += lanes) of.means[i] += part(a, from, chunks, k, i);
            }
            lanes_all<Add, lanes>(of.means);
#pragma unroll
            for (int i = 0; i < values; i++) of.means[i] /= (acc_t)N;
            if (lane == 0 && row < M) whole[row] = of;
        }
        __syncthreads();
    }
};
