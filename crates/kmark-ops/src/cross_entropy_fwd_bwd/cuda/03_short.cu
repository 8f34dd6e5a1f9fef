// Rows of up to 32 logits, an element to a lane: all that it needs is asked for at once, without a branch.
// kmark: constants n
// kmark: require n<=32&&m<=2000000000
// kmark: let LANES = n<=2?n:n<=4?4:n<=8?8:n<=16?16:32
// kmark: let T = 128
// kmark: kernel gradient grid=ceil(m*LANES,T) block=T
#include "online.cuh"
#include "teams.cuh"

KERNEL __launch_bounds__(T) gradient(const __grid_constant__ Args a) {
    u32 lane = threadIdx.x % LANES, at = blockIdx.x * (T / LANES) + threadIdx.x / LANES, m = (u32)a.m;
    // Lanes reduce together: those without an element read another one and do not count it.
    u32 row = at < m ? at : m - 1, col = lane < N ? lane : (u32)N - 1;
    acc_t x = up(a.x.at(row, col)), dloss = a.dloss.ptr[row], top[1] = {x};
    i64 target = a.target.ptr[row];
    // The gradient of an ignored row is 0 times whatever.
    if (target == IGNORE) dloss = 0;

    lanes_all<Max, LANES>(top);
    // Any small number will do: with one that depends on them, their loads are not put off until the sum is known.
    top[0] = larger(top[0], dloss == 0 ? acc_t(-2e30) : Online().max);
    acc_t e = exp_less(x, scaled(top[0])), sum[1] = {lane < N ? e : acc_t(0)};
    lanes_all<Add, LANES>(sum);
    if (at >= m || lane >= N) return;
    a.dx.at(row, col) = down<dx_t>(dloss * inverse_near(sum[0]) * e - (col == target ? dloss : acc_t(0)));
}
