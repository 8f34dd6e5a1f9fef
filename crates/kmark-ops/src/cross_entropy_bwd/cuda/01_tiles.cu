// A block per piece of a row: four vectors per thread are under way while the row's numbers arrive.
// kmark: kernel gradient grid=m*ceil(n*size,16384) block=min(256,32*ceil(n*size+16*(n*size%16!=0),2048))
#include "fast_exp.cuh"
#include "spans.cuh"

KERNEL __launch_bounds__(256) gradient(const __grid_constant__ Args a) {
    constexpr int V = lanes<x_t>, U = 4;
    u32 pieces = gridDim.x / (u32)a.m;
    i64 row = blockIdx.x / pieces;
    int step = blockDim.x;
    Span<const x_t, V, int> x(a.x.row(row), a.n);
    Span<dx_t, V, int> dx(a.dx.row(row), a.n, x.lead);
    // Once, unless the row has a vector more than the grid was made for.
    for (int i = blockIdx.x % pieces * (U * step) + threadIdx.x; i < x.vectors(); i += pieces * (U * step)) {
        Pack<x_t, V> packs[U];
        x.get(packs, i, step, x_t{});
        i64 target = a.target.ptr[row];
        acc_t lse = a.lse.ptr[row], dloss = target != IGNORE ? a.dloss.ptr[row] : acc_t(0);
#pragma unroll
        for (int k = 0; k < U; k++) {
            Vec<x_t, V> v = unpack(packs[k]);
            Vec<dx_t, V> out;
#pragma unroll
            for (int j = 0; j < V; j++) out.v[j] = down<dx_t>(dloss * exp_down(up(v.v[j]) - lse));
            // One vector of the row holds the target.
            i64 at = target + x.lead - (i + k * step) * V;
            if ((u64)at < V) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    if (j == at) out.v[j] = down<dx_t>(dloss * (exp_down(up(v.v[j]) - lse) - acc_t(1)));
                }
            }
            dx.put(i + k * step, pack(out));
        }
    }
}
