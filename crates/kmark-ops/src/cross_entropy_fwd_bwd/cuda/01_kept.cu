// A row is read once where registers hold it: those of a part of a warp, or of a block. A longer row stays in shared
// memory as far as that goes; the rest is read again, from its end, where the L2 still has it.
// kmark: constants n
// kmark: let W = n*size/16
// kmark: let LARGE = 2*m*n*size>8*l2
// kmark: let U = m<=2*sms?2:m<=16*sms||m>64*sms&&W>128?4:8
// kmark: let S = min(U,4)
// kmark: let T = W<=4*S?4:W<=8*S?8:W<=16*S?16:W<=32*U?32:min(512,32*ceil(W,32*U))
// kmark: let ROWS = T<=32?128/T:1
// kmark: let KEPT = W>4096?6144:0
// kmark: kernel gradient grid=ceil(m,ROWS) block=T*ROWS shared=KEPT*16
#include "logit_gradient.cuh"

constexpr int V = lanes<x_t>, HELD = W <= T ? 1 : (int)((W + T - 1) / T), BATCH = 4;
constexpr int THREADS = HELD < 4 ? 1280 : 1024; // of a multiprocessor, as far as registers go
constexpr bool ALIGNED = MEMORY == MEMORY_strided || (MEMORY == MEMORY_dense && N % V == 0);
using Row = Cut<x_t, N, ALIGNED, LARGE != 0>;
using Put = Gradient<Row, dx_t, T>;

KERNEL __launch_bounds__(T * ROWS, sizeof(x_t) == 8 ? 1 : THREADS / (T * ROWS)) gradient(const __grid_constant__ Args a) {
    int lane = ROWS > 1 ? threadIdx.x % T : threadIdx.x;
    i64 row = ROWS > 1 ? (i64)blockIdx.x * ROWS + threadIdx.x / T : blockIdx.x;
    // Lanes reduce together: those without a row read the last one.
    bool live = ROWS == 1 || row < a.m;
    if (!live) row = a.m - 1;
    Row x(a.x.row(row));
    i64 target = a.target.ptr[row];
    acc_t dloss = a.dloss.ptr[row];
    // The gradient of an ignored row is 0 times whatever.
    if (target == IGNORE) dloss = 0, target = -1;
    x_t edges[Row::edge_share<T>];
    auto add_edges = [&](Online& all) {
        if (Row::edges) {
#pragma unroll
            for (x_t e : edges) all.add(up(e));
        }
    };

    Online all;
    // Any small number will do: with one that depends on them, their loads are not put off until the sum is known.
    if (dloss == 0) all.max = acc_t(-2e30);
    if constexpr (HELD <= 8) {
        Pack<x_t, V> v[HELD];
        x.get_all<T>(v, lane);
        if (Row::edges) x.get_edges(edges, lane, T);
        all.add(v);
        add_edges(all);
        all.join<T>();
        if (!live) return;
#pragma unroll
        for (Pack<x_t, V>& p : v) forget(p.w);
        // A division has branches; without them, more is computed at a time, for which longer rows lack registers.
        Put to(x, a.dx.row(row), HELD < 4 ? dloss * inverse_near(all.sum) : dloss / all.sum, all.max, dloss, target);
        to.put(v, lane);
        if (Row::edges) to.put_edges(edges, lane);
    } else {
        // As many vectors as the launch has shared memory for; each thread finds its own again, nobody waits.
        extern __shared__ __align__(16) u8 shared[];
        Pack<x_t, V>* keep = reinterpret_cast<Pack<x_t, V>*>(shared);
        constexpr int step = BATCH * T;
        Pack<x_t, V> v[BATCH];
        if (Row::edges) x.get_edges(edges, lane, T);
        int i = lane;
        for (; i - lane < x.vectors; i += step) {
            x.get<T>(v, i);
            if (i - lane < KEPT) {
#pragma unroll
                for (int k = 0; k < BATCH; k++) keep[i + k * T] = v[k];
            }
            all.add(v);
        }
        add_edges(all);
        all.join<T>();
        Put to(x, a.dx.row(row), dloss / all.sum, all.max, dloss, target);
        for (i -= step; i >= 0; i -= step) {
            if (i - lane < KEPT) {
#pragma unroll
                for (int k = 0; k < BATCH; k++) v[k] = keep[i + k * T];
            } else {
                x.get<T>(v, i);
            }
            to.put<Row::least>(v, i);
        }
        if (Row::edges) to.put_edges(edges, lane);
    }
}
