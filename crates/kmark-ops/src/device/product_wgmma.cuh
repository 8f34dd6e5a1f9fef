// Products by Hopper's tensor cores: blocks in pairs that stay for the whole launch and go from tile to tile. A producer
// thread copies operands into a ring of stages; what both blocks of a pair need, each copies half of for both. Two
// warpgroups multiply, H times 64 rows each. The file says, by `let`, H, BN (columns of a tile), BK (128 bytes of k), STAGES,
// CM and CN (blocks of a pair along m and n, 2 and 1 or 1 and 2), ACROSS_A and ACROSS_B (operands whose rows run across k),
// PUT (columns that are stored at once) and SPLIT (see Work); its maps are a, b and d.
#pragma once
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"

constexpr int BM = 128 * H, PAIR = CM * CN, WGMMA_THREADS = 384;
constexpr int A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE_BYTES = A_BYTES + B_BYTES;
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

DEVICE void product_begin(const ProductShared& s, const Maps& maps) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.full + i, 1);
            barrier_init(s.empty + i, 2 * PAIR); // both warpgroups of both blocks
        }
        barrier_fence_init();
        tma_prefetch(maps.a), tma_prefetch(maps.b), tma_prefetch(maps.d);
    }
    cluster_sync();
}

// Part of a tile: steps `first` to `end` of k. Whoever has step 0 owns the tile and puts it.
struct Piece {
    int row, col, first, end;
    int b_first; // of the columns of b, where the tile's begin
};

// Which pair works on which tile. Tiles are dealt out one by one, in rounds. Those that are left when no round is full are cut
// along k into SPLIT parts each. The owner of a tile waits for the sums of pairs with lower numbers only: they start first.
struct Work {
    int rows, cols, steps, pairs, pair, rank;
    __device__ Work(i64 m, i64 n, i64 k) {
        rows = (int)((m + BM * CM - 1) / (BM * CM)), cols = (int)((n + BN * CN - 1) / (BN * CN)), steps = (int)((k + BK - 1) / BK);
        pairs = gridDim.x / PAIR, pair = blockIdx.x / PAIR, rank = cluster_rank();
    }
    __device__ __forceinline__ int whole() const { return SPLIT > 1 ? rows * cols / pairs * pairs : rows * cols; }
    __device__ __forceinline__ int left() const { return rows * cols - whole(); }

    // Pairs that run together take SIDE rows of tiles side by side, so that what they read stays in the L2 cache.
    __device__ __forceinline__ Piece piece(int t, int part, int parts) const {
        constexpr int SIDE = 8;
        int band = t / (SIDE * cols), side = min(SIDE, rows - band * SIDE), rest = t - band * SIDE * cols;
        int row = (band * SIDE + rest % side) * CM + (CM == 2 ? rank : 0), col = rest / side * CN + (CN == 2 ? rank : 0);
        return Piece{row * BM, col * BN, steps * part / parts, steps * (part + 1) / parts, col * BN};
    }
    template <class F> __device__ __forceinline__ void each_piece(F body) const {
        int end = whole();
        for (int t = pair; t < end; t += pairs) body(piece(t, 0, 1));
        // The last parts are those of the first pairs.
        if constexpr (SPLIT > 1)
            if (pair < left() * SPLIT) body(piece(end + pair % left(), SPLIT - 1 - pair / left(), SPLIT));
    }
};

// ROWS vectors of an operand from `first` on, BK of k from `k` on. Where rows run across k, boxes hold 64 vectors.
template <bool ACROSS, int ROWS, bool TO_ALL> DEVICE void copy_vectors(u8* to, const TensorMap& map, u64* barrier, int first, int k) {
    constexpr int BOX = ACROSS ? 64 : ROWS;
    #pragma unroll
    for (int i = 0; i < ROWS; i += BOX) {
        int x = ACROSS ? first + i : k, y = ACROSS ? k : first + i;
        if (TO_ALL) tma_load_to_all(to + i * 128, map, barrier, x, y, (1 << PAIR) - 1);
        else tma_load(to + i * 128, map, barrier, x, y);
    }
}

// The operands of a piece, stage by stage; one thread. `also(k, barrier)` may copy more for a step, and says how many bytes.
template <class F> DEVICE void produce(Ring<STAGES>& ring, const ProductShared& s, const Maps& maps, int rank, const Piece& piece, F also) {
    for (int k = piece.first; k < piece.end; k++) {
        u8 *a = s.stages + ring.stage * STAGE_BYTES, *b = a + A_BYTES;
        u64* full = s.full + ring.stage;
        barrier_wait(s.empty + ring.stage, ring.phase);
        barrier_expect(full, STAGE_BYTES + also(k, full));
        constexpr int A_ROWS = BM / CN, B_ROWS = BN / CM;
        int part_a = CN == 2 ? rank * A_ROWS : 0, part_b = CM == 2 ? rank * B_ROWS : 0;
        copy_vectors<ACROSS_A, A_ROWS, CN == 2>(a + part_a * 128, maps.a, full, piece.row + part_a, k * BK);
        copy_vectors<ACROSS_B, B_ROWS, CM == 2>(b + part_b * 128, maps.b, full, piece.b_first + part_b, k * BK);
        ring.next();
    }
}

DEVICE void produce(Ring<STAGES>& ring, const ProductShared& s, const Maps& maps, int rank, const Piece& piece) {
    produce(ring, s, maps, rank, piece, [](int, u64*) { return 0; });
}

// A stage may be overwritten, for all this warpgroup knows: said to every block that copies into it.
DEVICE void release(const ProductShared& s, int stage) {
    int thread = threadIdx.x % 128;
    if (PAIR == 1 ? thread == 0 : thread < PAIR) {
        if (PAIR == 1) barrier_arrive(s.empty + stage);
        else barrier_arrive_at(s.empty + stage, thread);
    }
}

// The product of a piece of `steps` steps in registers; one warpgroup, `half` 0 or 1.
DEVICE void consume(float (&d)[BN / 2], Ring<STAGES>& ring, const ProductShared& s, int half, int steps) {
    int before = 0;
    for (int k = 0; k < steps; k++) {
        barrier_wait(s.full + ring.stage, ring.phase);
        u8 *a = s.stages + ring.stage * STAGE_BYTES + half * 64 * 128, *b = s.stages + ring.stage * STAGE_BYTES + A_BYTES;
        u64 of_a = ACROSS_A ? across_k(a, BK * 128) : along_k(a), of_b = ACROSS_B ? across_k(b, BK * 128) : along_k(b);
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 4; i++) wgmma<a_t, ACROSS_A, ACROSS_B>(d, of_a + (ACROSS_A ? 128 : 2) * i, of_b + (ACROSS_B ? 128 : 2) * i, k || i);
        wgmma_commit();
        wgmma_wait<1>();
        if (k > 0) release(s, before); // the products before these are done
        before = ring.stage;
        ring.next();
    }
    wgmma_wait<0>();
    release(s, before);
}

// Sums that a pair leaves for the owner of the tile, and the word that says they are there; one of each warpgroup of a block.
// The words are zero before and after a launch.
constexpr int SUM_BYTES = 128 * BN / 2 * 4;
DEVICE float* sums_of(u8* workspace, const Work& work, int pair, int half) {
    return (float*)(workspace + work.pairs * PAIR * 2 * 4 + (i64)((pair * PAIR + work.rank) * 2 + half) * SUM_BYTES) + threadIdx.x % 128 * 4;
}
DEVICE u32* ready_word(u8* workspace, const Work& work, int pair, int half) { return (u32*)workspace + (pair * PAIR + work.rank) * 2 + half; }

DEVICE void leave_sums(const float (&d)[BN / 2], u8* workspace, const Work& work, int half) {
    float* to = sums_of(workspace, work, work.pair, half);
    #pragma unroll
    for (int i = 0; i < BN / 2; i += 4) store<4>(to + i * 128, Vec<float, 4>{{d[i], d[i + 1], d[i + 2], d[i + 3]}});
    named_barrier(half + 1, 128); // what the others wrote goes with this thread's release
    if (threadIdx.x % 128 == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(ready_word(workspace, work, work.pair, half)) : "memory");
}

// Adds what other pairs have left of this pair's tile, always in the same order.
DEVICE void add_sums(float (&d)[BN / 2], u8* workspace, const Work& work, int half) {
    #pragma unroll 1
    for (int part = 1; part < SPLIT; part++) {
        int pair = work.pair - part * work.left();
        if (threadIdx.x % 128 == 0) {
            u32 *word = ready_word(workspace, work, pair, half), ready = 0;
            while (!ready) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(ready) : "l"(word) : "memory");
            *word = 0;
        }
        named_barrier(half + 1, 128);
        const float* from = sums_of(workspace, work, pair, half);
        #pragma unroll
        for (int i = 0; i < BN / 2; i += 4) {
            Vec<float, 4> v;
            asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.v[0]), "=f"(v.v[1]), "=f"(v.v[2]), "=f"(v.v[3]) : "l"(from + i * 128) : "memory");
            #pragma unroll
            for (int e = 0; e < 4; e++) d[i + e] += v.v[e];
        }
    }
}

// A warpgroup's 64 rows through shared memory to the tensor, PUT columns at a time. Each warp stores its own 16 rows and waits
// for nobody. `value(v, r, c)` makes a result of a sum, `put(from, c, r)` stores a box; r and c count within the 64 rows and
// the tile's columns.
template <class F, class P> DEVICE void put_tile(float (&d)[BN / 2], const ProductShared& s, int half, F value, P put) {
    int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    #pragma unroll
    for (int c = 0; c < BN / PUT; c++) {
        u8* buffer = s.out + ((half * 4 + warp) * 2 + c % 2) * PUT_BYTES;
        if (lane == 0) {
            if (c == 0 && BN / PUT % 2 == 1) tma_wait_read<0>(); // the last tile ended with this buffer
            else tma_wait_read<1>();
        }
        __syncwarp();
        if constexpr (sizeof(d_t) == 2) {
            int r = lane % 16;
            #pragma unroll
            for (int j = 0; j < PUT / 8; j += 2) {
                u32 pairs[4];
                #pragma unroll
                for (int q = 0; q < 4; q++) {
                    int at = (c * PUT / 8 + j + q / 2) * 4 + q % 2 * 2;
                    int vr = warp * 16 + lane / 4 + q % 2 * 8, vc = c * PUT + (j + q / 2) * 8 + lane % 4 * 2;
                    Vec<d_t, 2> pair{{down<d_t>(value(d[at], vr, vc)), down<d_t>(value(d[at + 1], vr, vc + 1))}};
                    memcpy(&pairs[q], &pair, 4);
                }
                stmatrix4(buffer + put_place(r, j + lane / 16), pairs[0], pairs[1], pairs[2], pairs[3]);
            }
        } else {
            #pragma unroll
            for (int j = 0; j < PUT / 8; j++) {
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    int at = (c * PUT / 8 + j) * 4 + h * 2, r = lane / 4 + h * 8, vc = c * PUT + j * 8 + lane % 4 * 2;
                    Vec<float, 2> pair{{value(d[at], warp * 16 + r, vc), value(d[at + 1], warp * 16 + r, vc + 1)}};
                    store<2>((float*)(buffer + put_place(r, j * 2 + lane % 4 / 2) + lane % 2 * 8), pair);
                }
            }
        }
        fence_for_copies();
        __syncwarp();
        if (lane == 0) put(buffer, c * PUT, warp * 16), tma_commit();
    }
}
