// Products by Hopper's tensor cores: blocks in clusters that stay for the whole launch and go from tile to tile. A producer thread
// copies operands into a ring of stages; what several blocks of a cluster need, each copies a share of for all. WG warpgroups
// multiply, H times 64 rows each. The file says, by `let`, WG (1 or 2), H, BN (columns of a tile), BK (128 bytes of k), STAGES, CM and
// CN (blocks of a cluster along a tile's rows and columns), ACROSS_A and ACROSS_B (operands whose rows run across k), PUT (columns
// that are stored at once), SPLIT (see Work), SWAP (whether a tile's rows are columns of d, and its columns rows of d) and
// DIRECT (see store_box); its maps are a, b and d.
#pragma once
#include "hopper/keep.cuh"
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"

constexpr int BM = 64 * WG * H, CLUSTER = CM * CN, WGMMA_THREADS = 128 * (WG + 1);
constexpr int SHARERS = CM + CN - 1; // blocks that copy into a stage of one
constexpr int BELOW = ((1 << CM * CN) - 1) / ((1 << CN) - 1); // a block, and those below it
constexpr bool ACROSS_ROWS = SWAP ? ACROSS_B : ACROSS_A, ACROSS_COLS = SWAP ? ACROSS_A : ACROSS_B;
// Vectors across k come by 64, more than a tile's columns if they must.
constexpr int B_HELD = ACROSS_COLS ? (BN + 63) / 64 * 64 : BN;
constexpr int A_BYTES = BM * 128, B_BYTES = B_HELD * 128, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int PUT_LINE = PUT * sizeof(d_t), PUT_BYTES = 16 * PUT_LINE;

// Where a copy that swizzles lines of PUT_LINE bytes wants 16-byte piece `piece` of row r.
DEVICE int put_place(int r, int piece) {
    int mixed = PUT_LINE == 128 ? piece ^ r % 8 : PUT_LINE == 64 ? piece ^ r / 2 % 4 : piece ^ r / 4 % 2;
    return r * PUT_LINE + mixed * 16;
}

struct ProductShared {
    u8* stages;                // at a multiple of 1024 bytes, as swizzled copies want it
    u8* out;                   // two buffers for each warp
    u64 *full, *empty;
};

DEVICE ProductShared product_shared(u8* raw) {
    __shared__ u64 full[STAGES], empty[STAGES];
    u8* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    return ProductShared{stages, stages + STAGES * STAGE_BYTES, full, empty};
}

// Barriers are set up, here and in the other blocks of the cluster; what `meanwhile` makes.
template <class F> DEVICE auto product_begin(const ProductShared& s, const Maps& maps, F meanwhile) {
    if (threadIdx.x == 32) tma_prefetch(maps.a), tma_prefetch(maps.b), tma_prefetch(maps.d);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.full + i, 1);
            barrier_init(s.empty + i, WG * SHARERS);
        }
        barrier_fence_init();
    }
    __syncwarp();
    cluster_arrive();
    auto made = meanwhile();
    cluster_wait();
    return made;
}
DEVICE void product_begin(const ProductShared& s, const Maps& maps) {
    product_begin(s, maps, [] { return 0; });
}

// A tile, or one of SPLIT parts of its k: steps `first` to `end`.
struct Piece {
    int row, col, first, end, part;
    int b_first; // of the columns of b, where the tile's begin
    int after;   // steps that this cluster has to do after these, or STAGES if there may be more
};

template <bool V> struct Bool { static constexpr bool value = V; };

// Which cluster works on which tile. Tiles are dealt out one by one, in rounds. Those that are left when no round is full are cut
// along k into SPLIT parts each.
// A tile that would reach beyond the matrix begins earlier and computes some results again, with the same bits: copying rows that
// are not there takes longer than copying others (384 x 2048 x 2048: 14.5 us on an H200, 10.1 without). Where only some tiles are
// cut along k bits would differ, and where columns are, parts share them otherwise: such tiles stay where they are, as do columns
// if the caller wants it.
struct Work {
    int rows, cols, steps, clusters, cluster, rank, last_row, last_col;
    int band;     // rows of tiles that clusters which run together take side by side, so that what they read stays in the L2 cache
    int row, col; // of this cluster's first tile
    __device__ Work(i64 m, i64 n, i64 k, bool any_column = true, int band = 8) : band(band) {
        rows = (int)((m + BM * CM - 1) / (BM * CM)), cols = (int)((n + BN * CN - 1) / (BN * CN)), steps = (int)((k + BK - 1) / BK);
        clusters = gridDim.x / CLUSTER, cluster = blockIdx.x / CLUSTER, rank = CLUSTER > 1 ? cluster_rank() : 0;
        last_row = m >= BM && (SPLIT == 1 || whole() == 0) ? (int)m - BM : 0x7fffffff;
        last_col = n >= BN && SPLIT == 1 && any_column ? (int)n - BN : 0x7fffffff;
        place(cluster, row, col);
    }
    // The divisions of the first place are done here, while others are waited for.
    __device__ __forceinline__ Work& now() {
        asm volatile("" : "+r"(row), "+r"(col));
        return *this;
    }
    __device__ __forceinline__ int whole() const { return SPLIT > 1 ? rows * cols / clusters * clusters : rows * cols; }
    __device__ __forceinline__ int left() const { return rows * cols - whole(); }

    __device__ __forceinline__ void place(int t, int& row, int& col) const {
        int above = t / (band * cols) * band, side = min(band, rows - above), rest = t - above * cols;
        row = (above + rest % side) * CM + rank / CN, col = rest / side * CN + rank % CN;
    }
    __device__ __forceinline__ Piece piece_at(int r, int c, int part, int parts, int after) const {
        r = min(r * BM, last_row), c = min(c * BN, last_col);
        return Piece{r, c, steps * part / parts, steps * (part + 1) / parts, part, c, after};
    }
    __device__ __forceinline__ Piece piece(int t, int part, int parts, int after) const {
        int r = row, c = col;
        if (t != cluster) place(t, r, c);
        return piece_at(r, c, part, parts, after);
    }
    // Calls body(piece, is it a part).
    template <class F> __device__ __forceinline__ void each_piece(F body) const {
        int end = whole(), part = SPLIT > 1 && cluster < left() * SPLIT ? cluster / left() : -1;
        int of_part = part < 0 ? 0 : steps * (part + 1) / SPLIT - steps * part / SPLIT;
        for (int t = cluster; t < end; t += clusters) body(piece(t, 0, 1, (end - 1 - t) / clusters * steps + of_part), Bool<false>{});
        if constexpr (SPLIT > 1)
            if (part >= 0) body(piece(end + cluster % left(), part, SPLIT, 0), Bool<true>{});
    }
};

// Share `part` of SHARES of what a stage holds of an operand: ROWS vectors from `first` on, BK of k from `k` on. Of vectors along k each
// block that shares copies some; of those across k, which lie in boxes of 64, some elements of all.
template <bool ACROSS, int ROWS, int SHARES>
DEVICE void copy_share(u8* to, const TensorMap& map, u64* barrier, int first, int k, int part, u16 blocks) {
    constexpr int MINE = (ACROSS ? BK : ROWS) / SHARES;
    to += part * MINE * 128;
    #pragma unroll
    for (int i = 0; i < (ACROSS ? ROWS : 1); i += 64) {
        int x = ACROSS ? first + i : k, y = (ACROSS ? k : first) + part * MINE;
        if (SHARES > 1) tma_load_to_all(to + i * 128, map, barrier, x, y, blocks);
        else tma_load(to + i * 128, map, barrier, x, y);
    }
}

// The operands of a piece, stage by stage; one thread.
DEVICE void produce(Ring<STAGES>& ring, const ProductShared& s, const Maps& maps, int rank, const Piece& piece) {
    #pragma unroll 1
    for (int k = piece.first; k < piece.end; k++) {
        u8 *a = s.stages + ring.stage * STAGE_BYTES, *b = a + A_BYTES;
        u64* full = s.full + ring.stage;
        barrier_wait(s.empty + ring.stage, ring.phase);
        barrier_expect(full, STAGE_BYTES);
        u16 beside = ((1 << CN) - 1) << (rank / CN * CN), below = BELOW << (rank % CN);
        copy_share<ACROSS_ROWS, BM, CN>(a, SWAP ? maps.b : maps.a, full, piece.row, k * BK, rank % CN, beside);
        copy_share<ACROSS_COLS, B_HELD, CM>(b, SWAP ? maps.a : maps.b, full, piece.b_first, k * BK, rank / CN, below);
        ring.next();
    }
}

// A stage may be overwritten, for all this warpgroup knows: said to every block that copies into it.
DEVICE void release(const ProductShared& s, int stage) {
    int thread = threadIdx.x % 128;
    int rank = cluster_rank(), beside = rank / CN * CN + thread, below = (rank / CN + thread - CN + 1) % CM * CN + rank % CN;
    if (CLUSTER == 1 && thread == 0) barrier_arrive(s.empty + stage);
    if (CLUSTER > 1 && thread < SHARERS) barrier_arrive_at(s.empty + stage, SHARERS == CLUSTER ? thread : thread < CN ? beside : below);
}

// The product of a piece in registers; one warpgroup, `half` 0 or 1. While products of the first BESIDE steps run, beside(step) does
// something else. Stages that are not filled again are not released: what a block sends to another is waited for there, so that
// no block need stay for the other's sake. Half of its last shared copy may then still be on its way to the other: nothing was found
// against that, but nothing documents it either.
template <int BESIDE, class F> DEVICE void consume(float (&d)[BN / 2], Ring<STAGES>& ring, const ProductShared& s, int half, const Piece& piece, F beside) {
    int before = 0, steps = piece.end - piece.first, again = steps + piece.after - STAGES;
    u8 *a = s.stages + half * 64 * 128, *b = s.stages + A_BYTES;
    u64 first_a = ACROSS_ROWS ? across_k(a, BK * 128) : along_k(a), first_b = ACROSS_COLS ? across_k(b, BK * 128) : along_k(b);
    define(d);
    auto step = [&](int k) {
        u64 of_a = first_a + ring.stage * (STAGE_BYTES / 16), of_b = first_b + ring.stage * (STAGE_BYTES / 16);
        barrier_wait(s.full + ring.stage, ring.phase);
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 4; i++) wgmma<a_t, ACROSS_ROWS, ACROSS_COLS>(d, of_a + (ACROSS_ROWS ? 128 : 2) * i, of_b + (ACROSS_COLS ? 128 : 2) * i, k || i);
        wgmma_commit();
        wgmma_wait<1>();
        if (k > 0 && k <= again) release(s, before); // the products before these are done
        before = ring.stage;
        ring.next();
    };
    #pragma unroll
    for (int k = 0; k < BESIDE; k++) step(k), beside(k);
    #pragma unroll 1
    for (int k = BESIDE; k < steps; k++) step(k);
    wgmma_wait<0>();
    if (steps <= again) release(s, before);
}

// Each part of a cut tile finishes some of its columns, PUT at a time, and sends its sums of the others to those who finish them.
// All parts run at once: no more blocks are launched than there are multiprocessors.
constexpr int PUTS = (BN + PUT - 1) / PUT;
static_assert(SPLIT == 1 || BN % PUT == 0, "parts would store the same columns");
DEVICE int first_put(int part) { return (PUTS * part + SPLIT - 1) / SPLIT; }

// What one warpgroup of a part sends, and a word for each receiver that says it is there. The words are zero before and after a
// launch.
constexpr int SUM_BYTES = 128 * BN / 2 * 4;
struct Sums {
    float* at;
    u32* words;
    __device__ Sums(u8* workspace, const Work& work, int part, int half) {
        int sender = ((work.cluster % work.left() + part * work.left()) * CLUSTER + work.rank) * WG + half;
        words = (u32*)workspace + sender * SPLIT;
        at = (float*)(workspace + work.clusters * CLUSTER * WG * SPLIT * 4 + (i64)sender * SUM_BYTES) + threadIdx.x % 128 * 4;
    }
};

DEVICE void send_sums(const float (&d)[BN / 2], u8* workspace, const Work& work, int part, int half) {
    Sums mine(workspace, work, part, half);
    int from = first_put(part), to = first_put(part + 1), thread = threadIdx.x % 128;
    #pragma unroll
    for (int i = 0; i < BN / 2; i += 4) {
        // No branch: with one, the compiler finds no registers for d.
        int wanted = i / (PUT / 2) < from || i / (PUT / 2) >= to;
        asm volatile("{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %5, 0;\n@wanted st.global.v4.f32 [%0], {%1, %2, %3, %4};\n}"
                     ::"l"(mine.at + i * 128), "f"(d[i]), "f"(d[i + 1]), "f"(d[i + 2]), "f"(d[i + 3]), "r"(wanted) : "memory");
    }
    named_barrier(half + 1, 128); // what the others wrote goes with these threads' releases
    if (thread < SPLIT && thread != part) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(mine.words + thread) : "memory");
}

// Waits until the other parts have sent their sums.
DEVICE void await_sums(u8* workspace, const Work& work, int part, int half) {
    int thread = threadIdx.x % 128;
    if (thread < SPLIT && thread != part) {
        u32 *word = Sums(workspace, work, thread, half).words + part, ready = 0;
        while (!ready) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(ready) : "l"(word) : "memory");
        *word = 0;
    }
    named_barrier(half + 1, 128);
}

// Adds what they sent of the columns of put c, always in the same order.
DEVICE void add_sums(float (&v)[PUT / 2], u8* workspace, const Work& work, int part, int half, int c) {
    #pragma unroll 1
    for (int other = 0; other < SPLIT; other++) {
        if (other == part) continue;
        const float* at = Sums(workspace, work, other, half).at + c * PUT / 2 * 128;
        #pragma unroll
        for (int i = 0; i < PUT / 2; i += 4) {
            Vec<float, 4> more;
            asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(more.v[0]), "=f"(more.v[1]), "=f"(more.v[2]), "=f"(more.v[3]) : "l"(at + i * 128) : "memory");
            #pragma unroll
            for (int e = 0; e < 4; e++) v[i + e] += more.v[e];
        }
    }
}

// Threads that store a box together.
constexpr int PUTTERS = SWAP ? 128 : 32;
static_assert(!SWAP || sizeof(d_t) == 2, "only 16-bit results are turned");
DEVICE void putters_meet() {
    if constexpr (SWAP) named_barrier(threadIdx.x / 128, 128);
    else __syncwarp();
}

// A buffer of this warp, once nothing is copied from it any more. `all`: neither from the other, for which of them was used
// last is not known. With SWAP a buffer is the warpgroup's: its lines are rows of d, of which every warp has 16 columns.
DEVICE u8* put_buffer(const ProductShared& s, int half, int c, bool all) {
    int warp = threadIdx.x / 32 % 4;
    if ((!SWAP || threadIdx.x / 32 % 4 == 0) && elected()) {
        if (all) tma_wait_read<0>();
        else tma_wait_read<1>();
    }
    putters_meet();
    if (SWAP) return s.out + (half * 2 + c % 2) * 4 * PUT_BYTES;
    return s.out + ((half * 4 + warp) * 2 + c % 2) * PUT_BYTES;
}

// Where put c begins: where PUT does not divide BN, the last put stores some columns once more.
DEVICE constexpr int put_col(int c) { return c * PUT < BN - PUT ? c * PUT : BN - PUT; }

// 16 rows of results, two to a register, into a warp's buffer: columns of 8 j are pairs[2 j] and, 8 rows below, pairs[2 j + 1].
DEVICE void put_pairs(u8* buffer, const u32* pairs) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    if constexpr (SWAP) {
        #pragma unroll
        for (int j = 0; j < PUT / 8; j += 2) {
            int line = (j + lane / 16) * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
            stmatrix4_turned(buffer + line * 128 + (piece ^ line % 8) * 16, pairs[2 * j], pairs[2 * j + 1], pairs[2 * j + 2], pairs[2 * j + 3]);
        }
    } else {
        #pragma unroll
        for (int j = 0; j < PUT / 8; j += 2) stmatrix4(buffer + put_place(lane % 16, j + lane / 16), pairs[2 * j], pairs[2 * j + 1], pairs[2 * j + 2], pairs[2 * j + 3]);
    }
}

template <class P> DEVICE void put_box(u8* buffer, int c, P put) {
    if (!DIRECT) fence_for_copies();
    putters_meet();
    if (DIRECT) put(buffer, put_col(c), SWAP ? 0 : threadIdx.x / 32 % 4 * 16);
    else if (!SWAP || threadIdx.x / 32 % 4 == 0) {
        if (elected()) put(buffer, put_col(c), SWAP ? 0 : threadIdx.x / 32 % 4 * 16), tma_commit();
    }
}

// A box from a buffer to the tensor, from `row` and `col` on, by the threads that store together: for rows that copies cannot store
// to (DIRECT), since they do not begin at multiples of 16 bytes.
template <class T> DEVICE void store_box(const T& to, const u8* buffer, int row, int col) {
    constexpr int LINE = SWAP ? 128 : PUT_LINE, WORDS = LINE / 4, LINES = SWAP ? PUT : 16, EACH = 4 / sizeof(d_t);
    #pragma unroll 4
    for (int i = threadIdx.x % PUTTERS; i < LINES * WORDS; i += PUTTERS) {
        int line = i / WORDS, word = i % WORDS, piece = word / 4, at = col + word * EACH;
        if (row + line >= to.rows) continue;
        Vec<d_t, EACH> v = load<EACH>((const d_t*)(buffer + (SWAP ? line * 128 + (piece ^ line % 8) * 16 : put_place(line, piece)) + word % 4 * 4));
        d_t* p = to.row(row + line) + at;
        if (at + EACH <= to.cols && (u64)p % 4 == 0) {
            store<EACH>(p, v);
        } else {
            #pragma unroll
            for (int e = 0; e < EACH; e++)
                if (at + e < to.cols) p[e] = v.v[e];
        }
    }
}

// Results of N sums from column `first` on; `value(v, r, c)` makes a result of a sum.
template <int N, class F> DEVICE void results(u32 (&pairs)[N / 2], const float* v, int first, F value) {
    int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, col = first + threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < N; i += 2) {
        Vec<d_t, 2> pair{{down<d_t>(value(v[i], row + i / 2 % 2 * 8, col + i / 4 * 8)), down<d_t>(value(v[i + 1], row + i / 2 % 2 * 8, col + i / 4 * 8 + 1))}};
        memcpy(&pairs[i / 2], &pair, 4);
    }
}

// A warpgroup's 64 rows through shared memory to the tensor, PUT columns at a time. Each warp stores its own 16 rows and waits
// for nobody. `add(v, c)` adds to the sums of put c, `value(v, r, c)` makes a result of a sum, `put(from, c, r)` stores a box; r and
// c count within the 64 rows and the tile's columns. From put `first` to `end`: all, or what a part of a cut tile finishes.
template <class S, class F, class P> DEVICE void put_tile(const float (&d)[BN / 2], const ProductShared& s, int half, S add, F value, P put, int first, int end) {
    #pragma unroll
    for (int c = 0; c < PUTS; c++) {
        if (c < first || c >= end) continue;
        const int at_c = put_col(c);
        float v[PUT / 2];
        #pragma unroll
        for (int i = 0; i < PUT / 2; i++) v[i] = d[at_c / 2 + i];
        add(v, c);
        u8* buffer = put_buffer(s, half, c, c == first && (c > 0 || PUTS % 2 == 1));
        if constexpr (sizeof(d_t) == 2) {
            u32 pairs[PUT / 4];
            results<PUT / 2>(pairs, v, at_c, value);
            put_pairs(buffer, pairs);
        } else {
            int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
            #pragma unroll
            for (int j = 0; j < PUT / 8; j++) {
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    int at = j * 4 + h * 2, r = lane / 4 + h * 8, vc = at_c + j * 8 + lane % 4 * 2;
                    Vec<float, 2> pair{{value(v[at], warp * 16 + r, vc), value(v[at + 1], warp * 16 + r, vc + 1)}};
                    store<2>((float*)(buffer + put_place(r, j * 2 + lane % 4 / 2) + lane % 2 * 8), pair);
                }
            }
        }
        put_box(buffer, c, put);
    }
}

template <class F, class P> DEVICE void put_tile(const float (&d)[BN / 2], const ProductShared& s, int half, F value, P put) {
    put_tile(d, s, half, [](float (&)[PUT / 2], int) {}, value, put, 0, PUTS);
}

// 16-bit results of a tile, or none, that wait in registers and are stored while the products of the next tile's first steps run: the
// tensor cores need not wait for a tile to be stored.
constexpr int LATE_STEPS = 4;
template <class PLACE> struct Late {
    static constexpr int EACH = (PUTS + LATE_STEPS - 1) / LATE_STEPS;
    u32 pairs[BN / 4];
    PLACE place; // which tile
    bool some = false;
    template <class F> __device__ __forceinline__ void keep(const float (&d)[BN / 2], const PLACE& of, F value) {
        results<BN / 2>(pairs, d, 0, value);
        place = of, some = true;
    }
    // What is due in a step; put(place, from, c, r) stores a box.
    template <class P> __device__ __forceinline__ void store(const ProductShared& s, int half, int step, P put) const {
        if (!some) return;
        #pragma unroll
        for (int c = step * EACH; c < PUTS && c < (step + 1) * EACH; c++) {
            u8* buffer = put_buffer(s, half, c, c == 0 && PUTS % 2 == 1);
            put_pairs(buffer, pairs + put_col(c) / 4);
            put_box(buffer, c, [&](u8* from, int col, int r) { put(place, from, col, r); });
        }
    }
    template <class P> __device__ __forceinline__ void store_all(const ProductShared& s, int half, P put) const {
        #pragma unroll
        for (int step = 0; step < LATE_STEPS; step++) store(s, half, step, put);
    }
};
