// A long row is split over a cluster of blocks, which hold it in registers and exchange maxima and sums: more of them
// where there are few rows.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16,f32
// kmark: constants n
// kmark: let W = n*size/16
// kmark: let C = m>2*sms?(W<=4096||size>2&&W<=8192?2:W<=16384?4:16):W>=16384?16:W>=8192?8:4
// kmark: let T = C==16&&W<=32768?32*ceil(ceil(W,C),256):min(512,32*ceil(ceil(W,C),128))
// kmark: require W>1024&&W<=(m>2*sms?32768:16*T*C)
// kmark: kernel loss_rows grid=m*C block=T cluster=C
#include "online_cluster.cuh"

constexpr int V = lanes<x_t>, U = (int)((W + C * T - 1) / (C * T)), LAST = (C - 1) * U * T;
constexpr bool ALIGNED = MEMORY == MEMORY_strided || (MEMORY == MEMORY_dense && N % V == 0);
using Row = Cut<x_t, N, ALIGNED>;

KERNEL __launch_bounds__(T) loss_rows(const __grid_constant__ Args a) {
    ClusterJoin<T, C> cluster;
    i64 row = blockIdx.x / (u32)C;
    int rank = blockIdx.x % (u32)C, lane = threadIdx.x;
    Row x(a.x.row(row));
    Pack<x_t, V> v[U];
    x_t edges[Row::edge_share<T>];
    x.get_all<T, LAST>(v, rank * (U * T) + lane);
    if (Row::edges && rank == 0) x.get_edges(edges, lane, T);
    i64 target = a.target.ptr[row];
    bool mine = rank == 0 && lane == 0, counted = target != IGNORE;
    acc_t x_target = mine && counted ? up(x.row[target]) : acc_t(0);

    Online all;
    // Any small number will do: with one that depends on the target, its load is not put off until the end.
    if (!counted) all.max = acc_t(-2e30);
    all.add(v);
    if (Row::edges && rank == 0) all.add(up(edges[0]));
    cluster.join(all);
    if (mine) {
        acc_t log_total = log_near(all.sum);
        a.lse.ptr[row] = all.max + log_total;
        a.loss.ptr[row] = counted ? log_total + (all.max - x_target) : acc_t(0);
    }
}
