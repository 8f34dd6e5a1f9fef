// A scale per 128 of a row: half a warp or a whole one for each, a vector per thread; four rows at a time if there are
// many. Of rows that are not whole vectors long, four elements to a lane (quads.cuh).
// kmark: only granularity=1x128
// kmark: constants m,n
// kmark: let EVEN = n%(16/size)==0
// kmark: let V = EVEN?16/size:4
// kmark: let TEAM = 128/V
// kmark: let ACROSS = ceil(n,128)
// kmark: let LARGE = m*n*(size+1)>8*l2
// kmark: let U = m*ACROSS*TEAM<=sms*1024?1:4
// kmark: let THREADS = m*ACROSS*TEAM<=sms*256?128:256
// kmark: let BEHIND = EVEN&&memory.unaligned
// kmark: kernel quantise grid=ceil(ceil(m,U)*ACROSS,THREADS/TEAM) block=THREADS
#include "quads.cuh"

// Whether all groups lie inside the matrix, and every block has U rows for each team.
constexpr bool INSIDE = EVEN && N % 128 == 0 && M % U == 0 && M / U * ACROSS % (THREADS / TEAM) == 0;

KERNEL __launch_bounds__(THREADS) quantise(const __grid_constant__ Args a) {
    u32 team = blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM, group = team % (u32)ACROSS;
    i64 row = (i64)(team / (u32)ACROSS) * U;
    Piece<x_t, q_t, N, V, EVEN != 0, BEHIND != 0, LARGE != 0> piece{(int)(group * TEAM + threadIdx.x % TEAM) * V};
    // Of groups inside the matrix, every vector is whole, and so are words around odd ones.
    bool inside = INSIDE || (row + U <= M && (EVEN && N % 128 == 0 || group * 128ll + 128 + 2 * !EVEN <= N));
    Pack<x_t, V> v[U][1];
    auto load = [&](auto where) {
        const x_t* x = a.x.row(row);
#pragma unroll
        for (int k = 0; k < U; k++) v[k][0] = piece.get<decltype(where)::value>(x + k * a.x.pitch, row + k < M);
    };
    if (inside) load(Inside{});
    else load(AtTheEnd{});
    loads_first(v);
    float amax[U];
#pragma unroll
    for (int k = 0; k < U; k++) amax[k] = largest_of(v[k][0], 0.0f);
#pragma unroll
    for (int by = TEAM / 2; by > 0; by /= 2) {
#pragma unroll
        for (int k = 0; k < U; k++) amax[k] = fmaxf(amax[k], __shfl_xor_sync(0xffffffffu, amax[k], by));
    }
    Scale s[U];
#pragma unroll
    for (int k = 0; k < U; k++) s[k] = scale_of<q_t, POW2>(amax[k], CLAMP);
    if (threadIdx.x % TEAM == 0) {
#pragma unroll
        for (int k = 0; k < U; k++) {
            if (INSIDE || row + k < M) a.scale.at(row + k, group) = s[k].scale;
        }
    }
    auto store = [&](auto where) {
        q_t* q = a.q.row(row);
#pragma unroll
        for (int k = 0; k < U; k++)
            piece.put<decltype(where)::value>(q + k * a.q.pitch, row + k < M, quantised<q_t>(v[k][0], s[k].inverse));
    };
    if (inside) store(Inside{});
    else store(AtTheEnd{});
}
