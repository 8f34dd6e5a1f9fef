// Sums of 8-bit products. Hopper's tensor cores keep 14 bits of their own sums, so what they add up over 128 of k goes to
// registers of its own, and is added, scaled, to sums in f32. While one warpgroup of a block adds, the other multiplies; with two
// SETS of such registers (H = 1) a warpgroup's next products run while it adds. Where scales are of blocks (SCALED), a warp beside
// the producer copies them: as boxes, rows of 16 bytes hold up the copies of operands.
#pragma once
#include "hopper/copy.cuh"
#include "hopper/keep.cuh"
#include "product_wgmma.cuh"

// The descriptor of what lies 16*n bytes further on.
DEVICE u64 further(u64 descriptor, u32 n) { return descriptor & 0xffffffff00000000ull | (u32)descriptor + n; }

// Scales of b hold for 128 columns, tiles begin at multiples of BN: at which places within such 128 they may begin, and how many
// scales they may need.
constexpr int PLACES = BN % 128 == 0 ? 128 : BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : 16;
constexpr int B_SCALES = (128 - PLACES + BN + 127) / 128;

// Scales of four blocks of k, for all rows of a tile and then for its columns, four by four; they come with the stage of the first
// of the four. As many buffers as stages: a buffer's last stage is free before it is filled again, even if every buffer serves a
// single stage.
struct ScaleRing {
    float* buffers;
    int at;
    __device__ explicit ScaleRing(const ProductShared& s) : buffers((float*)(s.out + 16 * PUT_BYTES)), at(STAGES - 1) {}
    __device__ __forceinline__ float* of(int k) {
        if (k % 4 == 0) at = at + 1 == STAGES ? 0 : at + 1;
        return buffers + at * (BM + B_SCALES) * 4;
    }
};

// Copies the scales of a piece; warp 1, all of whose lanes arrive at every stage. Those of the tile's rows begin at `of_a`, A_PITCH
// apart, and there are `rows` of them; those of its blocks of columns begin at `of_b`, B_PITCH apart, `cols` of them.
template <class T> DEVICE void copy_scales(Ring<STAGES>& ring, ScaleRing& scales, const ProductShared& s, int steps, const T* of_a, int rows, const T* of_b, int cols) {
    constexpr bool ALIGNED = A_PITCH % 4 == 0; // rows begin at multiples of 16 bytes
    int lane = threadIdx.x % 32;
    of_b += min(lane / 4, cols - 1) * B_PITCH;
    for (int k = 0; k < steps; k++) {
        barrier_wait(s.empty + ring.stage, ring.phase);
        if (k % 4 == 0) {
            float* to = scales.of(k);
            #pragma unroll 1
            for (int r = lane; r < BM; r += 32) { // one by one, as this warp has few registers
                const T* from = of_a + min(r, rows - 1) * A_PITCH;
                if constexpr (ALIGNED) {
                    copy_later<16>(to + r * 4, from + k);
                } else {
                    #pragma unroll 1
                    for (int i = 0; i < 4; i++) copy_later<4>(to + r * 4 + i, from + min(k + i, steps - 1));
                }
            }
            if (lane < 4 * B_SCALES) copy_later<4>(to + BM * 4 + lane, of_b + min(k + lane % 4, steps - 1));
        }
        arrive_when_copied(s.full + ring.stage);
        ring.next();
    }
}

// Calls body(Int<place>), so that which sum has which scale is known when the loop is compiled.
template <int V> struct Int { static constexpr int value = V; };
template <int AT = 0, class F> DEVICE void at_place(int place, F body) {
    if constexpr (AT + PLACES >= 128) body(Int<AT>{});
    else if (place == AT) body(Int<AT>{});
    else at_place<AT + PLACES>(place, body);
}

// ORDER: the warpgroups take turns in giving products to the tensor cores. Without, both may be done at the same time, and the
// tensor cores idle while both add. The first turn is the first one's; the last that is given is not taken.
DEVICE void await_turn(int half) { named_barrier(3 + half, 256); }
DEVICE void give_turn(int half) { asm volatile("bar.arrive %0, 256;" ::"r"(4 - half) : "memory"); }

// The product of a piece of `steps` steps; one warpgroup, `half` 0 or 1. SCALED: sums over 128 of k are scaled by those of a's rows
// and of b's columns, the first of which is column PLACE of a block of 128. Else they are added as they are.
template <int PLACE> DEVICE void consume_fp8(float (&d)[H][BN / 2], Ring<STAGES>& ring, ScaleRing& scales, const ProductShared& s, int half, int steps) {
    static_assert(H == 1 || SETS == 1, "too many registers");
    constexpr int LAST = SCALED ? (PLACE + BN - 1) / 128 : 0;
    int first = half * H * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    float part[SETS][BN / 2], scale[H][2][B_SCALES];
    if constexpr (ORDER) static_assert(SETS == 1, "products of two sets are always under way");
    u64 stages = along_k(s.stages), left = stages + half * H * 512; // descriptors count 16 bytes
    auto start = [&](float (&sums)[BN / 2]) { keep(sums), wgmma_fence(); };
    auto multiply = [&](float (&sums)[BN / 2], int stage, int h) {
        u32 at = stage * (STAGE_BYTES / 16);
        #pragma unroll
        for (int i = 0; i < 4; i++) wgmma<a_t>(sums, further(left, at + h * 512 + 2 * i), further(stages, at + A_BYTES / 16 + 2 * i), i);
        wgmma_commit();
    };
    auto read_scales = [&](int k) {
        if constexpr (SCALED) {
            float* of = scales.of(k) + k % 4;
            #pragma unroll
            for (int c = 0; c <= LAST; c++) {
                float b = of[(BM + c) * 4];
                #pragma unroll
                for (int g = 0; g < H * 2; g++) scale[g / 2][g % 2][c] = of[(first + g / 2 * 64 + g % 2 * 8) * 4] * b;
            }
        }
    };
    auto add = [&](float (&sums)[BN / 2], int h) {
        keep(sums);
        #pragma unroll
        for (int i = 0; i < BN / 2; i++)
            d[h][i] = SCALED ? fmaf(sums[i], scale[h][i / 2 % 2][(PLACE + i / 4 * 8) / 128], d[h][i]) : d[h][i] + sums[i];
    };
    #pragma unroll
    for (int h = 0; h < H; h++)
        for (int i = 0; i < BN / 2; i++) d[h][i] = 0.0f;
    barrier_wait(s.full + ring.stage, ring.phase);
    if constexpr (SETS == 1) {
        for (int k = 0; k < steps; k++) {
            int stage;
            #pragma unroll
            for (int h = 0; h < H; h++) {
                if constexpr (ORDER) await_turn(half);
                start(part[0]);
                if (h == 0) stage = ring.stage, ring.next();
                multiply(part[0], stage, h);
                if constexpr (ORDER) give_turn(half);
                if (h == 0) read_scales(k); // while the products run
                if (h == H - 1 && k + 1 < steps) barrier_wait(s.full + ring.stage, ring.phase);
                wgmma_wait<0>();
                if (h == H - 1) release(s, stage);
                add(part[0], h);
            }
        }
    } else {
        // The loop and its end apart, so that the compiler sees which products are under way.
        auto turn = [&](float (&now)[BN / 2], float (&next)[BN / 2], int k) {
            int stage = ring.stage;
            ring.next();
            read_scales(k);
            barrier_wait(s.full + ring.stage, ring.phase);
            start(next), multiply(next, ring.stage, 0);
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
        start(part[0]), multiply(part[0], ring.stage, 0);
        for (; k + 2 < steps; k += 2) turn(part[0], part[1], k), turn(part[1], part[0], k + 1);
        if (k + 2 == steps) turn(part[0], part[1], k), last(part[1], k + 1);
        else last(part[0], k);
    }
}
