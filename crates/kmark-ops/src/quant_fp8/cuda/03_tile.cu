// A scale per 128 rows by 128 columns: a block per tile, which stays in registers, four or eight vectors to a thread. Rows
// that are not whole vectors long go to warps, four elements to a lane (quads.cuh).
// kmark: only granularity=128x128
// kmark: constants m,n
// kmark: let EVEN = n%(16/size)==0
// kmark: let V = EVEN?16/size:4
// kmark: let ACROSS = ceil(n,128)
// kmark: let BEHIND = EVEN&&memory.unaligned
// kmark: let LARGE = m*n*(size+1)>8*l2
// kmark: kernel quantise grid=ceil(m,128)*ACROSS block=512
#include "quads.cuh"

constexpr int TEAM = 128 / V;                    // threads to a row of the tile
constexpr int STEP = 512 / TEAM, U = 128 / STEP; // rows at a time, and how many times

KERNEL __launch_bounds__(512, 2) quantise(const __grid_constant__ Args a) {
    u32 down = blockIdx.x / (u32)ACROSS, group = blockIdx.x % (u32)ACROSS;
    i64 row = down * 128ll + threadIdx.x / TEAM;
    Piece<x_t, q_t, N, V, EVEN != 0, BEHIND != 0, LARGE != 0> piece{(int)(group * TEAM + threadIdx.x % TEAM) * V};
    // Of a tile inside the matrix, every vector is whole, and so are words around odd ones.
    bool inside = (M % 128 == 0 || down * 128ll + 128 <= M) && (EVEN && N % 128 == 0 || group * 128ll + 128 + 2 * !EVEN <= N);
    Pack<x_t, V> v[U];
    auto load = [&](auto where) {
        const x_t* x = a.x.row(row);
#pragma unroll
        for (int k = 0; k < U; k++) v[k] = piece.get<decltype(where)::value>(x + k * STEP * a.x.pitch, row + k * STEP < M);
    };
    if (inside) load(Inside{});
    else load(AtTheEnd{});
    float amax = 0.0f;
#pragma unroll
    for (int k = 0; k < U; k++) amax = largest_of(v[k], amax);
    Scale s = scale_of<q_t, POW2>(block_max(amax), CLAMP);
    if (threadIdx.x == 0) a.scale.at(down, group) = s.scale;
#pragma unroll
    for (int k = 0; k < U; k++) forget(v[k].w);
    auto store = [&](auto where) {
        q_t* q = a.q.row(row);
#pragma unroll
        for (int k = 0; k < U; k++)
            piece.put<decltype(where)::value>(q + k * STEP * a.q.pitch, row + k * STEP < M, quantised<q_t>(v[k], s.inverse));
    };
    if (inside) store(Inside{});
    else store(AtTheEnd{});
}
