// A long row in the registers of a cluster of blocks, so that it is read once. They exchange maxima and sums.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16,f32
// kmark: constants n
// kmark: let W = n*size/16
// kmark: require W<=65536&&W>(m>2*sms?4096:1024)
// kmark: let LARGE = 2*m*n*size>8*l2
// kmark: let C = W>32768?16:W>16384||m<=sms/8?8:4
// kmark: let T = 32*ceil(ceil(W,C),256)
// kmark: kernel gradient grid=m*C block=T cluster=C
#include "online_cluster.cuh"
#include "logit_gradient.cuh"

constexpr int V = lanes<x_t>, U = 8, LAST = (C - 1) * U * T; // where the last block's part begins
constexpr bool ALIGNED = MEMORY == MEMORY_strided || (MEMORY == MEMORY_dense && N % V == 0);
using Row = Cut<x_t, N, ALIGNED, LARGE != 0>;

KERNEL __launch_bounds__(T, 1024 / T) gradient(const __grid_constant__ Args a) {
    ClusterJoin<T, C> cluster;
    u32 row = blockIdx.x / (u32)C;
    int rank = blockIdx.x % (u32)C, lane = threadIdx.x, i = rank * (U * T) + lane;
    Row x(a.x.row(row));
    Pack<x_t, V> v[U];
    x_t edges[Row::edge_share<T>];
    x.get_all<T, LAST>(v, i);
    if (Row::edges && rank == 0) x.get_edges(edges, lane, T);

    Online all;
    all.add(v);
    if (Row::edges && rank == 0) all.add(up(edges[0]));
    i64 target = a.target.ptr[row];
    acc_t dloss = a.dloss.ptr[row];
    // The gradient of an ignored row is 0 times whatever.
    if (target == IGNORE) dloss = 0, target = -1;
    cluster.join(all);
#pragma unroll
    for (Pack<x_t, V>& p : v) forget(p.w);
    Gradient<Row, dx_t, T> to(x, a.dx.row(row), dloss / all.sum, all.max, dloss, target);
    to.put<LAST>(v, i);
    if (Row::edges && rank == 0) to.put_edges(edges, lane);
}
