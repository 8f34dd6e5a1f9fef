// What the roles of a block of MLA decoding on Hopper share: its memory, its barriers, copies to both blocks of a pair, results.
// The file says, by `let`, PAIR (blocks that share what they read) and BOX (rows that one copy brings).
#pragma once
#include "fast_exp.cuh"
#include "hopper/tma_4d.cuh"
#include "hopper/wgmma_registers.cuh"
#include "mma.cuh"

constexpr int TILE = 8192;      // bytes of 64 rows of 64 columns, as swizzled copies leave them
constexpr int STAGE = 9 * TILE; // 64 rows of the cache
constexpr int MLA_THREADS = 384;
DEVICE float lowest() { return float_of(0xff800000u); } // minus infinity
constexpr float FACTOR = (float)(SCALE * 1.4426950408889634); // logits are kept in base 2

// A part's last sequence and its keys. `shares` of 0: where on the line it begins. 1: which sequence is the part's first, all its
// own. More: which part is the first of the `shares` that have this sequence.
struct Plan {
    int each; // length of a part
    int any;  // whether this one has any
    int last, keys, at, shares;
};

// A stage holds 64 keys: two halves of four tiles, each the values of one warpgroup, and the positional tile. `full`: a pair of
// tiles is there; the fifth is the positional tile. `empty`: a pair may be overwritten, and with the last of them the positional
// tile. `weights`: those of the stage are in shared memory.
struct MlaShared {
    u64 full[2][5], empty[2][4], weights[2], q_full, q_empty;
    float top[2][64];     // maxima of rows up to the block in this stage
    float sum[2][2][64];  // sums of rows, of each warpgroup; of this piece and the next
    Plan plan;
};

// Both warpgroups that compute.
DEVICE void both_groups() { named_barrier(1, 256); }

// Copies into every block of the pair.
DEVICE void copy_to_pair(void* to, const TensorMap& map, u64* barrier, int y, int z, int w) {
    if constexpr (PAIR == 1) tma_load(to, map, barrier, 0, y, z, w);
    else
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                     ::"r"(shared_address(to)), "l"(&map), "r"(shared_address(barrier)), "r"(0), "r"(y), "r"(z), "r"(w), "h"((u16)3) : "memory");
}

// Into the L2 cache.
DEVICE void fetch_ahead(const TensorMap& map, int y, int z, int w) {
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(0), "r"(y), "r"(z), "r"(w) : "memory");
}

// What a thread began with `copy_later` since the last call is one group; later it waits until at most N groups are not there.
DEVICE void copies_begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void copies_there() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Four warps of every block of the pair say that COUNT pairs of tiles, from that of `empty` on, may be overwritten.
template <int COUNT> DEVICE void release(u64* empty) {
    int lane = threadIdx.x % 32;
    if (PAIR == 1 && lane < COUNT) barrier_arrive(empty + lane);
    if (PAIR == 2 && lane < 2 * COUNT) barrier_arrive_at(empty + lane / 2, lane % 2);
}

// Two neighbours as elements of T.
template <class T> DEVICE u32 two(float first, float second) {
    u32 pair;
    if constexpr (is<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// Of four neighbouring lanes each has a pair of four groups of eight columns; each gets a group, its four pairs in order.
DEVICE Vec<u32, 4> whole_group(const u32 (&v)[4]) {
    const int lane = threadIdx.x % 4;
    const bool odd = lane & 1, high = lane & 2;
    u32 a = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 1), b = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 1);
    u32 low[2] = {odd ? a : v[0], odd ? v[1] : a}, more[2] = {odd ? b : v[2], odd ? v[3] : b}; // groups lane & 1, and two on
    a = __shfl_xor_sync(~0u, high ? low[0] : more[0], 2), b = __shfl_xor_sync(~0u, high ? low[1] : more[1], 2);
    return high ? Vec<u32, 4>{{a, b, more[0], more[1]}} : Vec<u32, 4>{{low[0], low[1], a, b}};
}

// Where 16-byte piece `piece` of row r lies in a tile.
DEVICE int place_in_tile(int r, int piece) { return r * 128 + (piece ^ r % 8) * 16; }

DEVICE int row_of(const Args& a, int s, int r) { return s * (int)(Q * a.h) + r; }
DEVICE float inverse_of(float sum) { return sum > 0.0f ? 1.0f / sum : 0.0f; }

DEVICE void put_lse(const Args& a, int s, int r, float top, float sum) {
    if constexpr (LSE) {
        int row = row_of(a, s, r), cols = (int)a.lse.cols;
        a.lse.at(row / cols, row % cols) = sum > 0.0f ? (top + log2f(sum)) * 0.6931471805599453f : lowest();
    }
}
