// A product whose tiles are too few for all multiprocessors: the blocks of a cluster each multiply a part of a tile's k, by the warps of
// product_wgmma.cuh, and send each other their sums through shared memory. Each finishes some of the tile's columns.
#pragma once
#include "hopper/send.cuh"
#include "product_wgmma.cuh"

static_assert(CLUSTER == 1 && WG == 1 && BN % PUT == 0 && PUTS % SPLIT == 0, "parts finish as many columns as each other");
constexpr int OWN = PUTS / SPLIT;         // puts that a part finishes
constexpr int SENT = OWN * PUT / 2 * 128; // sums that a part sends to another
constexpr int OUT_BYTES = 2 * 4 * PUT_BYTES;

// Where a part finds what others send: behind its buffers, so that nobody need wait before sending. Sums lie by sender and register,
// those of four registers of a thread together.
DEVICE float* sums_of(const ProductShared& s, int sender, int receiver) {
    int place = sender - (sender > receiver);
    return (float*)(s.out + OUT_BYTES) + place * SENT + threadIdx.x % 128 * 4;
}

DEVICE void send_parts(const float (&d)[BN / 2], const ProductShared& s, u64* full, int part) {
    #pragma unroll
    for (int to = 0; to < SPLIT; to++) {
        if (to == part) continue;
        float* at = sums_of(s, part, to);
        #pragma unroll
        for (int i = 0; i < OWN * PUT / 2; i += 4) {
            int from = to * OWN * PUT / 2 + i;
            send_four_to_block(at + i * 128, Vec<float, 4>{{d[from], d[from + 1], d[from + 2], d[from + 3]}}, full, to);
        }
    }
}

// What the parts make of put c, always in the same order: a result that two tiles compute has the same bits in both.
DEVICE void add_parts(float (&v)[PUT / 2], const ProductShared& s, int part, int c) {
    #pragma unroll
    for (int i = 0; i < PUT / 2; i += 4) {
        Vec<float, 4> sum = {};
        #pragma unroll
        for (int from = 0; from < SPLIT; from++) {
            Vec<float, 4> more{{v[i], v[i + 1], v[i + 2], v[i + 3]}};
            if (from != part) more = load<4>(sums_of(s, from, part) + (c % OWN * PUT / 2 + i) * 128);
            #pragma unroll
            for (int e = 0; e < 4; e++) sum.v[e] += more.v[e];
        }
        #pragma unroll
        for (int e = 0; e < 4; e++) v[i + e] = sum.v[e];
    }
}

template <class A> DEVICE void multiply_parts(const A& a, const Maps& maps) {
    extern __shared__ u8 raw[];
    __shared__ u64 full; // the sums of the others are there
    ProductShared s = product_shared(raw);
    if (threadIdx.x == 64) {
        barrier_init(&full, 1);
        barrier_expect(&full, (SPLIT - 1) * SENT * 4);
        barrier_fence_init();
    }
    const int part = cluster_rank();
    const Work work = product_begin(s, maps, [&] {
        int cols = (int)(SWAP ? a.m : a.n);
        Work work(SWAP ? a.n : a.m, cols, a.k);
        if (cols >= BN) work.last_col = cols - BN;
        work.place(blockIdx.x / SPLIT, work.row, work.col);
        return work.now();
    });
    const Piece piece = work.piece_at(work.row, work.col, part, SPLIT, 0);
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (group == 0) {
        Ring<STAGES> ring{0, 1};
        if (elected(0)) produce(ring, s, maps, 0, piece);
        return;
    }
    Ring<STAGES> ring{0, 0};
    float d[BN / 2];
    consume<0>(d, ring, s, 0, piece, [](int) {});
    send_parts(d, s, &full, part);
    barrier_wait(&full, 0);
    int first = SWAP ? piece.row : piece.col;
    auto value = [&](float v, int r, int c) {
        int col = first + (SWAP ? r : c);
        return BIAS && col < a.n ? v + up(a.bias.ptr[col]) : v;
    };
    auto add = [&](float (&v)[PUT / 2], int c) { add_parts(v, s, part, c); };
    auto put = [&](u8* from, int c, int r) {
        int row = piece.row + r, col = piece.col + c;
        if constexpr (DIRECT) store_box(a.d, from, SWAP ? col : row, SWAP ? row : col);
        else tma_store(maps.d, from, SWAP ? row : col, SWAP ? col : row);
    };
    put_tile(d, s, 0, add, value, put, part * OWN, part * OWN + OWN);
    if (elected()) tma_wait<0>();
}
