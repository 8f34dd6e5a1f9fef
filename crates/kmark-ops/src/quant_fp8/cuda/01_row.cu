// A scale per row: a block per row, which is read once where registers hold it; a longer one is read again.
// kmark: only granularity=row
// kmark: kernel quantise grid=m block=min(512,32*ceil(n*size+16*(n*size%16!=0),2048))
#include "fp8.cuh"

constexpr int V = lanes<x_t>, U = 4;

KERNEL __launch_bounds__(512) quantise(const __grid_constant__ Args a) {
    i64 row = blockIdx.x;
    int step = blockDim.x, batch = U * step;
    Span<const x_t, V, int> x(a.x.row(row), a.n);
    Span<q_t, V, int> q(a.q.row(row), a.n, x.lead);
    Pack<x_t, V> v[U];
    float amax = 0.0f;
    for (int i = threadIdx.x; i < x.vectors(); i += batch) {
        x.get(v, i, step, x_t{});
#pragma unroll
        for (int k = 0; k < U; k++) amax = largest_of(v[k], amax);
    }
    Scale s = scale_of<q_t, POW2>(block_max(amax), CLAMP);
    if (threadIdx.x == 0) a.scale.ptr[row] = s.scale;
    bool fits = x.vectors() <= batch;
    for (int i = threadIdx.x; i < x.vectors(); i += batch) {
        if (!fits) x.get(v, i, step, x_t{});
        Pack<q_t, V> out[U];
#pragma unroll
        for (int k = 0; k < U; k++) {
            forget(v[k].w);
            out[k] = quantised<q_t>(v[k], s.inverse);
        }
        q.put(out, i, step);
    }
}
