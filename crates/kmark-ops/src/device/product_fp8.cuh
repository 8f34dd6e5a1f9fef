// Sums of 8-bit products. Hopper's tensor cores keep 14 bits of their own sums, so what they add up over 128 of k goes to
// registers of its own, and is added, scaled, to sums in f32. While one warpgroup of a block adds, the other multiplies: adding
// must take no longer than multiplying, so all else is kept out of it: steps go by fours, with places known when the loop is
// compiled (8192 x 8192 x 8192 with scales of blocks: the tensor cores work 87 % of the time, 82 % with steps one by one).
#pragma once
#include "hopper/copy.cuh"
#include "hopper/keep.cuh"
#include "product_wgmma.cuh"

// Scales of b hold for 128 columns, tiles begin at multiples of BN: at which places within such 128 they may begin, and how many
// scales they may need.
constexpr int PLACES = BN % 128 == 0 ? 128 : BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : 16;
constexpr int B_SCALES = (128 - PLACES + BN + 127) / 128;

// Scales of four blocks of k, for all rows of a tile and then for its blocks of columns, four by four. Threads 32 to 127 copy them,
// each the same rows every time: as boxes, rows of 16 bytes would hold up the copies of operands.
constexpr int SCALE_ROWS = BM + B_SCALES, COPIERS = 96;
struct Scales {
    float* buffers;
    u64 *full, *empty;
    Ring<SCALE_BUFFERS> ring;
    __device__ Scales(const ProductShared& s, int phase) {
        __shared__ u64 barriers[2 * SCALE_BUFFERS];
        buffers = (float*)(s.out + 16 * PUT_BYTES), full = barriers, empty = barriers + SCALE_BUFFERS, ring = {0, phase};
    }
    __device__ void begin() const {
        for (int i = 0; i < SCALE_BUFFERS; i++) barrier_init(full + i, COPIERS), barrier_init(empty + i, 8); // warps that multiply
    }
    __device__ __forceinline__ float* buffer() const { return buffers + ring.stage * SCALE_ROWS * 4; }

    // Those of a piece. The scales of the tile's rows begin at `of_a`, A_PITCH apart, and there are `rows` of them; those of its
    // blocks of columns begin at `of_b`, B_PITCH apart, `cols` of them.
    template <class T> __device__ __forceinline__ void copy(int steps, const T* of_a, int rows, const T* of_b, int cols) {
        constexpr bool ALIGNED = A_PITCH % 4 == 0 && B_PITCH % 4 == 0; // rows begin at multiples of 16 bytes
        constexpr int EACH = (SCALE_ROWS + COPIERS - 1) / COPIERS;
        int first = threadIdx.x - 32;
        const T* from[EACH];
        #pragma unroll
        for (int i = 0; i < EACH; i++) {
            int r = first + i * COPIERS;
            from[i] = r < BM ? of_a + (i64)min(r, rows - 1) * A_PITCH : of_b + (i64)min(r - BM, cols - 1) * B_PITCH;
        }
        #pragma unroll 1
        for (int k = 0; k < steps; k += 4) {
            barrier_wait(empty + ring.stage, ring.phase);
            #pragma unroll
            for (int i = 0; i < EACH; i++) {
                int r = first + i * COPIERS;
                if (r >= SCALE_ROWS) continue;
                float* to = buffer() + r * 4;
                if constexpr (ALIGNED) {
                    copy_later<16>(to, from[i] + k);
                } else {
                    #pragma unroll 1
                    for (int e = 0; e < 4; e++) copy_later<4>(to + e, from[i] + min(k + e, steps - 1));
                }
            }
            arrive_when_copied(full + ring.stage);
            ring.next();
        }
    }
};

// Calls body(Int<place>), so that which sum has which scale is known when the loop is compiled.
template <int V> struct Int { static constexpr int value = V; };
template <int AT = 0, class F> DEVICE void at_place(int place, F body) {
    if constexpr (AT + PLACES >= 128) body(Int<AT>{});
    else if (place == AT) body(Int<AT>{});
    else at_place<AT + PLACES>(place, body);
}

// A piece whose steps are no multiple of four leaves the stages of the rest empty; the producer's thread.
DEVICE void leave_stages(Ring<STAGES>& ring, const ProductShared& s, int steps) {
    for (; steps % 4; steps++) {
        barrier_wait(s.empty + ring.stage, ring.phase);
        barrier_arrive(s.full + ring.stage);
        ring.next();
    }
}

// The next AT_ONCE stages, as a warpgroup's products and barriers want them: the compiler would compute all of it anew in every
// step. Step j of four is stage j % AT_ONCE of them.
constexpr int AT_ONCE = STAGES % 4 == 0 ? 4 : STAGES % 2 == 0 ? 2 : 1;
struct Stages {
    u32 left, right; // lower halves of descriptors
    u32 full, empty; // addresses of barriers; `empty` in the block that this thread speaks to
    int at, phase;
    __device__ Stages(const ProductShared& s, int half) : at(0), phase(0) {
        left = (u32)along_k(s.stages) + half * H * 512, right = (u32)along_k(s.stages + A_BYTES), full = shared_address(s.full);
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(empty) : "r"(shared_address(s.empty)), "r"((int)(threadIdx.x % 128)));
    }
    __device__ __forceinline__ void wait(int j) const {
        asm volatile("{\n.reg .pred done;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra AGAIN;\n}"
                     ::"r"(full + j % AT_ONCE * 8), "r"(phase) : "memory");
    }
    // 64 rows, the h-th of the warpgroup, by BN columns, over 128 of k.
    __device__ __forceinline__ void multiply(float (&sums)[BN / 2], int j, int h) const {
        constexpr u64 KIND = 64ull << 32 | 1ull << 62; // upper half, see along_k
        u32 further = j % AT_ONCE * (STAGE_BYTES / 16), a = left + further + h * 512, b = right + further;
        keep(sums), wgmma_fence();
        #pragma unroll
        for (int i = 0; i < 4; i++) wgmma<a_t>(sums, KIND | a + 2 * i, KIND | b + 2 * i, i);
        wgmma_commit();
    }
    // Behind step j; returns where to say that its stage may be overwritten.
    __device__ __forceinline__ u32 next(int j) {
        u32 used = empty + j % AT_ONCE * 8;
        if ((j + 1) % AT_ONCE == 0) {
            bool last = at == STAGES - AT_ONCE;
            u32 by = last ? AT_ONCE - STAGES : AT_ONCE;
            at += by, left += by * (STAGE_BYTES / 16), right += by * (STAGE_BYTES / 16), full += by * 8, empty += by * 8, phase ^= last;
        }
        return used;
    }
    __device__ __forceinline__ static void release(u32 used) {
        if (threadIdx.x % 128 < CLUSTER) asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(used) : "memory");
    }
};

// The product of a piece of `steps` steps; one warpgroup, `half` 0 or 1. SCALED: sums over 128 of k are scaled by those of a's rows
// and of b's columns, the first of which is column PLACE of a block of 128. Else they are added as they are.
template <int PLACE> DEVICE void consume_fp8(float (&d)[H][BN / 2], Stages& stages, Scales& scales, int half, int steps) {
    [[maybe_unused]] constexpr int LAST = SCALED ? (PLACE + BN - 1) / 128 : 0;
    [[maybe_unused]] int first = half * H * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    float part[BN / 2], scale[H][2][B_SCALES];
    [[maybe_unused]] Vec<float, 4> of_a[H][2], of_b[B_SCALES];
    auto read_scales = [&](int j) {
        if constexpr (SCALED) {
            if (j == 0) {
                barrier_wait(scales.full + scales.ring.stage, scales.ring.phase);
                const float* from = scales.buffer();
                #pragma unroll
                for (int c = 0; c <= LAST; c++) of_b[c] = load<4>(from + (BM + c) * 4);
                #pragma unroll
                for (int g = 0; g < H * 2; g++) of_a[g / 2][g % 2] = load<4>(from + (first + g / 2 * 64 + g % 2 * 8) * 4);
                __syncwarp();
                if (threadIdx.x % 32 == 0) barrier_arrive(scales.empty + scales.ring.stage);
                scales.ring.next();
            }
            #pragma unroll
            for (int c = 0; c <= LAST; c++) {
                #pragma unroll
                for (int g = 0; g < H * 2; g++) scale[g / 2][g % 2][c] = of_a[g / 2][g % 2].v[j] * of_b[c].v[j];
            }
        }
    };
    auto add = [&](int h) {
        keep(part);
        #pragma unroll
        for (int i = 0; i < BN / 2; i++)
            d[h][i] = SCALED ? fmaf(part[i], scale[h][i / 2 % 2][(PLACE + i / 4 * 8) / 128], d[h][i]) : d[h][i] + part[i];
    };
    #pragma unroll
    for (int h = 0; h < H; h++)
        for (int i = 0; i < BN / 2; i++) d[h][i] = 0.0f;
    stages.wait(0);
    #pragma unroll 1
    for (int k = 0; k < steps; k += 4) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            bool more = k + j + 1 < steps;
            #pragma unroll
            for (int h = 0; h < H; h++) {
                u32 used;
                stages.multiply(part, j, h);
                if (h == 0) read_scales(j); // while the products run
                if (h == H - 1) {
                    used = stages.next(j);
                    if (more) stages.wait(j + 1);
                }
                wgmma_wait<0>();
                if (h == H - 1) stages.release(used);
                add(h);
            }
            if (j < 3 && !more) {
                for (int i = j + 1; i < 4; i++) stages.wait(i), stages.release(stages.next(i));
                break;
            }
        }
    }
}
