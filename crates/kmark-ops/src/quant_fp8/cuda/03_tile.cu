// A scale per 128 rows by 128 columns: a block per tile, which stays in registers, four or eight vectors to a thread.
// kmark: only granularity=128x128
// kmark: constants m,n
// kmark: let V = 16/size
// kmark: let ACROSS = ceil(n,128)
// kmark: let EVEN = n%V==0
// kmark: let BEHIND = EVEN&&memory.unaligned
// kmark: let LARGE = m*n*(size+1)>8*l2
// kmark: kernel quantise grid=ceil(m,128)*ACROSS block=512
#include "fp8.cuh"

constexpr int TEAM = 128 / V;                    // threads to a row of the tile
constexpr int STEP = 512 / TEAM, U = 128 / STEP; // rows at a time, and how many times

KERNEL __launch_bounds__(512, 2) quantise(const __grid_constant__ Args a) {
    u32 down = blockIdx.x / (u32)ACROSS, group = blockIdx.x % (u32)ACROSS;
    i64 row = down * 128ll + threadIdx.x / TEAM;
    int i = group * TEAM + threadIdx.x % TEAM;
    // Of a tile inside the matrix, every vector is whole.
    bool inside = EVEN && (M % 128 == 0 || down * 128ll + 128 <= M) && (N % 128 == 0 || group * 128ll + 128 <= N);
    Pack<x_t, V> v[U];
    if (inside) {
        const x_t* x = a.x.row(row) + i * V;
#pragma unroll
        for (int k = 0; k < U; k++) v[k] = load_vector<V, BEHIND != 0, LARGE != 0>(x + k * STEP * a.x.pitch);
    } else {
#pragma unroll
        for (int k = 0; k < U; k++) {
            i64 r = row + k * STEP;
            v[k] = Span<const x_t, V, int>(a.x.row(r), r < M ? N : 0, 0).get(i, x_t{});
        }
    }
    float amax = 0.0f;
#pragma unroll
    for (int k = 0; k < U; k++) amax = largest_of(v[k], amax);
    Scale s = scale_of<q_t, POW2>(block_max(amax), CLAMP);
    if (threadIdx.x == 0) a.scale.at(down, group) = s.scale;
#pragma unroll
    for (int k = 0; k < U; k++) forget(v[k].w);
    if (inside) {
        q_t* q = a.q.row(row) + i * V;
#pragma unroll
        for (int k = 0; k < U; k++) store_once<V>(q + k * STEP * a.q.pitch, quantised<q_t>(v[k], s.inverse));
    } else {
#pragma unroll
        for (int k = 0; k < U; k++) {
            i64 r = row + k * STEP;
            if (r < M) Span<q_t, V, int>(a.q.row(r), N, 0).put(i, quantised<q_t>(v[k], s.inverse));
        }
    }
}
