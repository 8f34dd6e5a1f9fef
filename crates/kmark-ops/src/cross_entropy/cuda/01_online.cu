// A block per row, which is read once: every thread keeps a maximum and a sum over vectors far apart, four of them
// under way at a time; the block joins them at the end.
// kmark: kernel loss_rows grid=m block=min(512,32*ceil(n*size+16*(n*size%16!=0),2048))
#include "online.cuh"

KERNEL __launch_bounds__(512) loss_rows(const __grid_constant__ Args a) {
    constexpr int V = lanes<x_t>, U = 4;
    i64 row = blockIdx.x;
    Span<const x_t, V, int> x(a.x.row(row), a.n);
    // Under way together with the row.
    i64 target = a.target.ptr[row];
    bool counted = target != IGNORE;
    acc_t x_target = threadIdx.x == 0 && counted ? up(a.x.at(row, target)) : acc_t(0);

    Online all;
    for (int i = threadIdx.x; i < x.vectors(); i += U * blockDim.x) {
        Pack<x_t, V> v[U];
        x.get(v, i, blockDim.x, nothing<x_t>());
        all.add(v);
    }
    all.join();
    if (threadIdx.x == 0) {
        acc_t log_total = log_near(all.sum);
        a.lse.ptr[row] = all.max + log_total;
        a.loss.ptr[row] = counted ? log_total + (all.max - x_target) : acc_t(0);
    }
}
