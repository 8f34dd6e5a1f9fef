// A block per row, which is read once where registers hold it. A longer row stays in shared memory as far as that goes;
// the rest is read again, from its end, where the L2 still has it.
// kmark: kernel gradient grid=m block=min(512,32*ceil(n*size+16*(n*size%16!=0),2048)) shared=n*size>32768?98304:0
#include "online.cuh"

constexpr int V = lanes<x_t>, U = 4;

// The gradient of a row once its maximum and its sum are known.
struct Gradient {
    Span<dx_t, V, int> dx;
    acc_t max, dloss, factor; // factor = dloss / sum
    i64 target; // counted from the first vector's start

    __device__ __forceinline__ void put(const Pack<x_t, V> (&packs)[U], int i, int step) const {
#pragma unroll
        for (int k = 0; k < U; k++) {
            Vec<x_t, V> v = unpack(packs[k]);
            Vec<dx_t, V> out;
#pragma unroll
            for (int j = 0; j < V; j++) out.v[j] = down<dx_t>(factor * exp_down(up(v.v[j]) - max));
            i64 at = target - (i + k * step) * V;
            if ((u64)at < V) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    if (j == at) out.v[j] = down<dx_t>(factor * exp_down(up(v.v[j]) - max) - dloss);
                }
            }
            dx.put(i + k * step, pack(out));
        }
    }
};

KERNEL __launch_bounds__(512, sizeof(x_t) == 8 ? 1 : 2) gradient(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    i64 row = blockIdx.x;
    int step = blockDim.x, batch = U * step;
    Span<const x_t, V, int> x(a.x.row(row), a.n);
    Span<dx_t, V, int> dx(a.dx.row(row), a.n, x.lead);
    i64 target = a.target.ptr[row];
    // The gradient of an ignored row is 0 times whatever.
    acc_t dloss = target != IGNORE ? a.dloss.ptr[row] : acc_t(0);

    Online all;
    if (x.vectors() <= batch) {
        Pack<x_t, V> packs[U];
        x.get(packs, threadIdx.x, step, nothing<x_t>());
        all.add(packs);
        all.join();
#pragma unroll
        for (int k = 0; k < U; k++) forget(packs[k].w);
        Gradient{dx, all.max, dloss, dloss / all.sum, target + x.lead}.put(packs, threadIdx.x, step);
        return;
    }

    // As many vectors as the launch has shared memory for; each thread finds its own again, nobody waits.
    int kept = a.n * sizeof(x_t) > 32768 ? 98304 / 16 : 0;
    Pack<x_t, V>* keep = reinterpret_cast<Pack<x_t, V>*>(shared);
    int i = threadIdx.x;
    for (; i - (int)threadIdx.x < x.vectors(); i += batch) {
        Pack<x_t, V> packs[U];
        x.get(packs, i, step, nothing<x_t>());
        if (i < kept) {
#pragma unroll
            for (int k = 0; k < U; k++) keep[i + k * step] = packs[k];
        }
        all.add(packs);
    }
    all.join();
    Gradient to{dx, all.max, dloss, dloss / all.sum, target + x.lead};
    for (i -= batch; i >= 0; i -= batch) {
        Pack<x_t, V> packs[U];
        if (i < kept) {
#pragma unroll
            for (int k = 0; k < U; k++) packs[k] = keep[i + k * step];
        } else {
            x.get(packs, i, step, nothing<x_t>());
        }
        to.put(packs, i, step);
    }
}
