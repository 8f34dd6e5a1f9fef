// A scale per 128 rows by 128 columns: a block per tile, which stays in registers, four or eight vectors to a thread.
// kmark: only granularity=128x128
// kmark: kernel quantise grid=ceil(m,128)*ceil(n,128) block=512
#include "fp8.cuh"

constexpr int V = lanes<x_t>, TEAM = 128 / V;        // threads to a row of the tile
constexpr int STEP = 512 / TEAM, U = 128 / STEP;     // rows at a time, and how many times

KERNEL __launch_bounds__(512, 2) quantise(const __grid_constant__ Args a) {
    u32 across = (u32)((a.n + 127) / 128), down = blockIdx.x / across, group = blockIdx.x % across;
    i64 row = down * 128ll + threadIdx.x / TEAM;
    int i = group * TEAM + threadIdx.x % TEAM;
    // Of a tile inside the matrix, every vector is whole.
    bool inside = down * 128ll + 128 <= a.m && group * 128ll + 128 <= a.n && a.x.aligned(16) && a.q.aligned(V);
    Pack<x_t, V> v[U];
    if (inside) {
        const x_t* x = a.x.row(row) + i * V;
#pragma unroll
        for (int k = 0; k < U; k++) v[k] = load_once<V>(x + k * STEP * a.x.pitch);
    } else {
#pragma unroll
        for (int k = 0; k < U; k++) {
            i64 r = row + k * STEP;
            v[k] = Span<const x_t, V, int>(a.x.row(r), r < a.m ? a.n : 0, 0).get(i, x_t{});
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
            if (r < a.m) Span<q_t, V, int>(a.q.row(r), a.n, 0).put(i, quantised<q_t>(v[k], s.inverse));
        }
    }
}
