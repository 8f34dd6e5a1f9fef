// A row in registers, all its loads under way together: a short one in those of a part of a warp, a longer one in those
// of a block. A row that is too long for that streams through a block, the next batch under way while one is summed.
// A thread of a held row has up to U vectors: few where there are few rows, so that a row is soon done.
// kmark: constants n
// kmark: let W = n*size/16
// kmark: let U = m<=2*sms?2:W>128&&W<=512?(m<=8*sms?2:3):4
// kmark: let S = min(U,4)
// kmark: let T = W<=4*S?4:W<=8*S?8:W<=16*S?16:W<=32*U?32:W<=2048?min(512,32*ceil(W,32*U)):512
// kmark: let ROWS = T<=32?128/T:1
// kmark: kernel loss_rows grid=ceil(m,ROWS) block=T*ROWS
#include "online.cuh"

constexpr int V = lanes<x_t>, HELD = W <= T ? 1 : (int)((W + T - 1) / T), BATCH = 4;
constexpr bool ALIGNED = MEMORY == MEMORY_strided || (MEMORY == MEMORY_dense && N % V == 0);
using Row = Cut<x_t, N, ALIGNED>;

KERNEL __launch_bounds__(T * ROWS) loss_rows(const __grid_constant__ Args a) {
    int lane = ROWS > 1 ? threadIdx.x % T : threadIdx.x;
    i64 row = ROWS > 1 ? (i64)blockIdx.x * ROWS + threadIdx.x / T : blockIdx.x;
    bool mine = lane == 0 && (ROWS == 1 || row < a.m);
    if (ROWS > 1 && row >= a.m) row = a.m - 1;
    Row x(a.x.row(row));
    i64 target = a.target.ptr[row];
    acc_t x_target = 0;
    // What follows the loads of the first vectors: few bytes that arrive meanwhile.
    x_t edges[Row::edge_share<T>];
    auto rest = [&] {
        if (Row::edges) x.get_edges(edges, lane, T);
        if (mine && target != IGNORE) x_target = up(x.row[target]);
    };

    Online all;
    // Any small number will do: with one that depends on the target, its load is not put off until the end.
    if (target == IGNORE) all.max = acc_t(-2e30);
    if constexpr (HELD <= 8) {
        Pack<x_t, V> v[HELD];
        x.get_all<T>(v, lane);
        rest();
        all.add(v);
    } else {
        constexpr int step = BATCH * T;
        Pack<x_t, V> now[BATCH], next[BATCH];
        x.get<T>(now, lane);
        x.get<T>(next, lane + step);
        rest();
#pragma unroll 1
        for (int i = lane + 2 * step;; i += 2 * step) {
            all.add(now);
            x.get<T>(now, i);
            all.add(next);
            if (i - lane >= x.vectors) break;
            x.get<T>(next, i + step);
        }
    }
    if (Row::edges) {
#pragma unroll
        for (x_t e : edges) all.add(up(e));
    }
    all.join<T, true>();
    if (mine) {
        acc_t log_total = log_near(all.sum);
        a.lse.ptr[row] = all.max + log_total;
        a.loss.ptr[row] = target != IGNORE ? log_total + (all.max - x_target) : acc_t(0);
    }
}
