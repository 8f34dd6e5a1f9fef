// A block per piece of a row, or for several short rows: two vectors per thread are under way together with the row's
// numbers, or one where there is little to do, so that all multiprocessors take part. Few elements of odd rows: one per thread.
// kmark: constants n
// kmark: let W = n*size/16
// kmark: let LARGE = 2*m*n*size>8*l2
// kmark: let U = m*W<=1024*sms?1:2
// kmark: let P = max(1,ceil(W,128*U))
// kmark: let T = W<=4*U?4:W<=8*U?8:W<=16*U?16:32*ceil(ceil(W,P),32*U)
// kmark: let ROWS = T<=32?128/T:1
// kmark: let ALONE = !memory.strided&&(memory.unaligned||n*size%16>0)&&m*n<=sms*1024
// kmark: kernel gradient grid=ALONE?ceil(m*n,256):ceil(m,ROWS)*P block=ALONE?256:T*ROWS
#include "logit_gradient.cuh"

constexpr int V = lanes<x_t>;
constexpr bool ALIGNED = MEMORY == MEMORY_strided || (MEMORY == MEMORY_dense && N % V == 0);
using Row = Cut<x_t, N, ALIGNED, LARGE != 0>;

DEVICE void one_element(const Args& a) {
    u32 i = blockIdx.x * 256 + threadIdx.x, row = i / (u32)N, col = i % (u32)N;
    if (row >= a.m) return;
    acc_t x = up(a.x.row(row)[col]), lse = a.lse.ptr[row], dloss = a.dloss.ptr[row];
    i64 target = a.target.ptr[row];
    if (target == IGNORE) dloss = 0;
    acc_t p = exp_less(x, scaled(lse));
    a.dx.row(row)[col] = down<dx_t>(col == target ? dloss * p - dloss : dloss * p);
}

KERNEL __launch_bounds__(ALONE ? 256 : T * ROWS) gradient(const __grid_constant__ Args a) {
    if constexpr (ALONE != 0) return one_element(a);
    constexpr int last = (P - 1) * U * T; // where the last piece begins
    int piece = blockIdx.x % (u32)P, lane = ROWS > 1 ? threadIdx.x % T : threadIdx.x, i = piece * (U * T) + lane;
    i64 row = ROWS > 1 ? (i64)blockIdx.x * ROWS + threadIdx.x / T : blockIdx.x / (u32)P;
    if (ROWS > 1 && row >= a.m) return;
    Row x(a.x.row(row));
    Pack<x_t, V> v[U];
    x_t edges[Row::edge_share<T>];
    x.get_all<T, last>(v, i);
    if (Row::edges && piece == 0) x.get_edges(edges, lane, T);
    i64 target = a.target.ptr[row];
    acc_t lse = a.lse.ptr[row], dloss = a.dloss.ptr[row];
    if (target == IGNORE) dloss = 0, target = -1;
    Gradient<Row, dx_t, T> to(x, a.dx.row(row), dloss, lse, dloss, target);
    to.put<last>(v, i);
    if (Row::edges && piece == 0) to.put_edges(edges, lane);
}
