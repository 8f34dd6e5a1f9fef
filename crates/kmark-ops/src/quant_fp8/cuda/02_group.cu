// A scale per 128 of a row: half a warp or a whole one for each, a vector per thread; four rows at a time.
// kmark: only granularity=1x128
// kmark: kernel quantise grid=ceil(ceil(m,4)*ceil(n,128),16/(size/2)) block=256
#include "fp8.cuh"

constexpr int V = lanes<x_t>, U = 4, TEAM = 128 / V; // threads to a group

KERNEL __launch_bounds__(256) quantise(const __grid_constant__ Args a) {
    u32 across = (u32)((a.n + 127) / 128), team = blockIdx.x * (256 / TEAM) + threadIdx.x / TEAM;
    u32 group = team % across;
    i64 row = (i64)(team / across) * U;
    int i = group * TEAM + threadIdx.x % TEAM;
    // Of groups inside the matrix, every vector is whole.
    bool inside = row + U <= a.m && group * 128ll + 128 <= a.n && a.x.aligned(16) && a.q.aligned(V);
    Pack<x_t, V> v[U];
    if (inside) {
        const x_t* x = a.x.row(row) + i * V;
#pragma unroll
        for (int k = 0; k < U; k++) v[k] = load_once<V>(x + k * a.x.pitch);
    } else {
#pragma unroll
        for (int k = 0; k < U; k++) {
            // No elements below the last row.
            v[k] = Span<const x_t, V, int>(a.x.row(row + k), row + k < a.m ? a.n : 0, 0).get(i, x_t{});
        }
    }
    float amax[U];
#pragma unroll
    for (int k = 0; k < U; k++) amax[k] = largest_of(v[k], 0.0f);
#pragma unroll
    for (int by = TEAM / 2; by > 0; by /= 2) {
#pragma unroll
        for (int k = 0; k < U; k++) amax[k] = fmaxf(amax[k], __shfl_xor_sync(0xffffffffu, amax[k], by));
    }
    Scale s[U];
#pragma unroll
    for (int k = 0; k < U; k++) s[k] = scale_of<q_t, POW2>(amax[k], CLAMP);
    if (threadIdx.x % TEAM == 0) {
#pragma unroll
        for (int k = 0; k < U; k++) {
            if (row + k < a.m) a.scale.at(row + k, group) = s[k].scale;
        }
    }
    if (inside) {
        q_t* q = a.q.row(row) + i * V;
#pragma unroll
        for (int k = 0; k < U; k++) store_once<V>(q + k * a.q.pitch, quantised<q_t>(v[k], s[k].inverse));
    } else {
#pragma unroll
        for (int k = 0; k < U; k++) {
            int n = row + k < a.m ? (int)a.n : 0;
            Span<q_t, V, int>(a.q.row(row + k), n, 0).put(i, quantised<q_t>(v[k], s[k].inverse));
        }
    }
}
