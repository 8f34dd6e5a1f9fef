// Sums of 8-bit products. Hopper's tensor cores keep 14 bits of their own sums, so what they add up over 128 of k goes to
// registers of its own, and is added, scaled, to sums in f32. While one warpgroup of a block adds, the other multiplies; with two
// SETS of such registers (H = 1) a warpgroup's next products run while it adds. The file also says COPIED: scales of a's rows
// come by copies (its map is a_scale); where their rows are not at multiples of 16 bytes, they are read when they are needed.
#pragma once
#include "hopper/keep.cuh"
#include "product_wgmma.cuh"

// A copy brings the scales of four blocks of k for all rows of a tile, with the stage of the first of the four. As many buffers
// as stages: a buffer's last stage is free before its next copy begins, even if every copy serves a single stage.
struct ScaleRing {
    float* buffers;
    int at;
    __device__ explicit ScaleRing(const ProductShared& s) : buffers((float*)(s.out + 16 * PUT_BYTES)), at(STAGES - 1) {}
    __device__ __forceinline__ float* of(int k) {
        if (k % 4 == 0) at = at + 1 == STAGES ? 0 : at + 1;
        return buffers + at * BM * 4;
    }
};

// As `produce`, with a's scales.
DEVICE void produce_scaled(Ring<STAGES>& ring, ScaleRing& scales, const ProductShared& s, const Maps& maps, int rank, const Piece& piece) {
    produce(ring, s, maps, rank, piece, [&](int k, u64* barrier) {
        if (!COPIED) return 0;
        float* to = scales.of(k);
        if (k % 4 > 0) return 0;
        tma_load(to, maps.a_scale, barrier, k, piece.row);
        return BM * 16;
    });
}

// Scales of b hold for 128 columns, tiles begin at multiples of BN: at which places within such 128 they may begin, and how many
// scales they may need.
constexpr int PLACES = BN % 128 == 0 ? 128 : BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : 16;
constexpr int B_SCALES = (128 - PLACES + BN + 127) / 128;

// Calls body(Int<place>), so that which sum has which scale is known when the loop is compiled.
template <int V> struct Int { static constexpr int value = V; };
template <int AT = 0, class F> DEVICE void at_place(int place, F body) {
    if constexpr (AT + PLACES >= 128) body(Int<AT>{});
    else if (place == AT) body(Int<AT>{});
    else at_place<AT + PLACES>(place, body);
}

// The product of a piece of `steps` steps; one warpgroup, `half` 0 or 1. BLOCKS: sums over 128 of k are scaled by those of a's rows,
// `a_scale(r, k)` where they are not copied (r counts within the warpgroup's rows), and of b's columns, `b_scale(c, k)` (c counts
// blocks of 128 columns from the one where the tile begins, at its column PLACE). Else sums over EVERY steps are added.
template <bool BLOCKS, int PLACE, class F, class G>
DEVICE void consume_fp8(float (&d)[H][BN / 2], Ring<STAGES>& ring, ScaleRing& scales, const ProductShared& s, int half, int steps, F a_scale, G b_scale) {
    static_assert(H == 1 || SETS == 1, "too many registers");
    constexpr int LAST = BLOCKS ? (PLACE + BN - 1) / 128 : 0;
    int first = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    float part[SETS][BN / 2], scale[H][2][B_SCALES], next_a[H * 2], next_b[B_SCALES];
    auto start = [&](float (&sums)[BN / 2]) { keep(sums), wgmma_fence(); };
    u64 stages = along_k(s.stages), left = stages + half * H * 512; // descriptors count 16 bytes
    auto multiply = [&](float (&sums)[BN / 2], int stage, int h, int more) {
        u32 at = stage * (STAGE_BYTES / 16);
        #pragma unroll
        for (int i = 0; i < 4; i++) wgmma<a_t>(sums, further(left, at + h * 512 + 2 * i), further(stages, at + A_BYTES / 16 + 2 * i), more || i);
    };
    auto rows = [&](int g) { return first + g / 2 * 64 + g % 2 * 8; };
    auto fetch = [&](int k) {
        #pragma unroll
        for (int c = 0; c <= LAST; c++) next_b[c] = BLOCKS ? b_scale(c, k) : 1.0f;
        #pragma unroll
        for (int g = 0; g < H * 2; g++) next_a[g] = BLOCKS && !COPIED ? a_scale(rows(g), k) : 1.0f;
    };
    auto read_scales = [&](int k) {
        if constexpr (BLOCKS) keep(next_b); // else the compiler moves them to uniform registers, and waits for them a step early
        float* of_a = COPIED ? scales.of(k) : nullptr;
        #pragma unroll
        for (int g = 0; g < H * 2; g++) {
            float a = COPIED ? of_a[(half * H * 64 + rows(g)) * 4 + k % 4] : next_a[g];
            #pragma unroll
            for (int c = 0; c <= LAST; c++) scale[g / 2][g % 2][c] = a * next_b[c];
        }
        if (k + 1 < steps) fetch(k + 1);
    };
    auto add = [&](float (&sums)[BN / 2], int h) {
        keep(sums);
        #pragma unroll
        for (int i = 0; i < BN / 2; i++)
            d[h][i] = BLOCKS ? fmaf(sums[i], scale[h][i / 2 % 2][(PLACE + i / 4 * 8) / 128], d[h][i]) : d[h][i] + sums[i];
    };
    #pragma unroll
    for (int h = 0; h < H; h++)
        for (int i = 0; i < BN / 2; i++) d[h][i] = 0.0f;
    fetch(0);
    barrier_wait(s.full + ring.stage, ring.phase);
    if constexpr (SETS == 1) {
        // N steps, whose products are added up by the tensor cores.
        auto turn = [&](int k, auto n) {
            constexpr int N = decltype(n)::value;
            int stage[N];
            #pragma unroll
            for (int h = 0; h < H; h++) {
                start(part[0]);
                #pragma unroll
                for (int e = 0; e < N; e++) {
                    if (h == 0) {
                        if (e > 0) barrier_wait(s.full + ring.stage, ring.phase);
                        stage[e] = ring.stage;
                        ring.next();
                    }
                    multiply(part[0], stage[e], h, e);
                    wgmma_commit();
                    if (h == H - 1 && e > 0) wgmma_wait<1>(), release(s, stage[e - 1]);
                }
                if (h == 0) read_scales(k); // while the products run
                if (h == H - 1 && k + N < steps) barrier_wait(s.full + ring.stage, ring.phase);
                wgmma_wait<0>();
                if (h == H - 1) release(s, stage[N - 1]);
                add(part[0], h);
            }
        };
        int k = 0;
        if constexpr (!BLOCKS && EVERY > 1)
            for (; k + EVERY <= steps; k += EVERY) turn(k, Int<EVERY>{});
        for (; k < steps; k++) turn(k, Int<1>{});
    } else {
        // The loop and its end apart, so that the compiler sees which products are under way.
        auto begin = [&](float (&sums)[BN / 2], int stage) { start(sums), multiply(sums, stage, 0, 0), wgmma_commit(); };
        auto turn = [&](float (&now)[BN / 2], float (&next)[BN / 2], int k) {
            int stage = ring.stage;
            ring.next();
            read_scales(k);
            barrier_wait(s.full + ring.stage, ring.phase);
            begin(next, ring.stage);
            wgmma_wait<1>();
            release(s, stage);
            add(now, 0);
        };
        auto last = [&](float (&now)[BN / 2], int k) {
            int stage = ring.stage;
            ring.next();
            read_scales(k);
            wgmma_wait<0>();
            release(s, stage);
            add(now, 0);
        };
        int k = 0;
        begin(part[0], ring.stage);
        for (; k + 2 < steps; k += 2) turn(part[0], part[1], k), turn(part[1], part[0], k + 1);
        if (k + 2 == steps) turn(part[0], part[1], k), last(part[1], k + 1);
        else last(part[0], k);
    }
}
