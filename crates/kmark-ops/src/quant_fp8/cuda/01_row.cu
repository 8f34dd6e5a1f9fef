// A scale per row, which is read once where registers hold it: short rows go to warps, several to each, longer ones to
// blocks; what no block holds is read again.
// kmark: only granularity=row
// kmark: constants m,n
// kmark: let V = 16/size
// Whether every row is whole vectors long; else it may take one vector more.
// kmark: let EVEN = n%V==0
// kmark: let BEHIND = EVEN&&memory.unaligned
// Whether rows of q, which are always dense, start at other places of a vector than those of x, and are so long that this matters.
// kmark: let SHIFTED = !EVEN&&!memory.dense&&(size<=2||n>2048)
// kmark: let VECTORS = ceil(n,V)+!EVEN
// kmark: let SHORT = VECTORS<=128&&m>2*sms
// Vectors of a row to a thread, and rows.
// kmark: let U = SHORT?ceil(VECTORS,32):VECTORS<=1024&&m<=2*sms?1:VECTORS<=2048||VECTORS>4096?4:8
// kmark: let ROWS = SHORT?4/U:1
// kmark: let TEAM = SHORT?32:min(U==1?1024:512,32*ceil(VECTORS,32*U))
// kmark: let LARGE = m*n*(size+1)>8*l2
// kmark: let THREADS = SHORT?256:TEAM
// kmark: kernel quantise grid=ceil(m,ROWS*(THREADS/TEAM)) block=THREADS
#include "fp8.cuh"

constexpr bool FITS = VECTORS <= U * TEAM, ALL_ROWS = M % (ROWS * (THREADS / TEAM)) == 0;

// Whether an even row has vector i.
DEVICE bool has(int i) { return VECTORS == U * TEAM || i < VECTORS; }

using In = Span<const x_t, V, int>;
using Out = Span<q_t, V, int>;

// Vectors `from` and on of a row of q, cut as x is, through shared memory: what is stored is cut where q is aligned.
DEVICE void put_shifted(q_t* row, const In& x, const Pack<q_t, V> (&out)[U], int from, int lane) {
    constexpr int chunk = U * TEAM * V, before = 8, wide = 8;
    __shared__ alignas(8) u32 words[THREADS / TEAM][(before + chunk + 16) / 4];
    u32* mine = words[SHORT ? threadIdx.x / TEAM : 0];
    auto sync = [] { SHORT ? __syncwarp() : __syncthreads(); };
    if (!FITS || ROWS > 1) sync();
#pragma unroll
    for (int k = 0; k < U; k++) *reinterpret_cast<Pack<q_t, V>*>(mine + (before + (lane + k * TEAM) * V) / 4) = out[k];
    sync();
    int column = from * V - x.lead, first = max(column, 0), end = min(column + chunk, x.end - x.lead);
    Span<q_t, wide, int> q(row + first, end - first);
    for (int i = lane; i < q.vectors(); i += TEAM) {
        int at = before + first - column - q.lead + i * wide; // bytes; a vector lies in three words
        Pack<q_t, wide> p;
#pragma unroll
        for (int j = 0; j < 2; j++) p.w[j] = (u32)(((u64)mine[at / 4 + j + 1] << 32 | mine[at / 4 + j]) >> at % 4 * 8);
        q.put(i, p);
    }
}

KERNEL __launch_bounds__(THREADS) quantise(const __grid_constant__ Args a) {
    int lane = SHORT ? threadIdx.x % TEAM : threadIdx.x;
    i64 first = SHORT ? ((i64)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM) * ROWS : blockIdx.x;
    Pack<x_t, V> v[ROWS][U];
    float amax[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool live = ALL_ROWS || first + r < M;
        const x_t* row = a.x.row(first + r);
        if constexpr (FITS && EVEN) {
#pragma unroll
            for (int k = 0; k < U; k++) {
                v[r][k] = {};
                if (live && has(lane + k * TEAM)) v[r][k] = load_vector<V, BEHIND != 0, LARGE != 0>(row + (lane + k * TEAM) * V);
            }
        } else if constexpr (FITS) {
            In(row, live ? N : 0).get(v[r], lane, TEAM, x_t{});
        }
    }
    if constexpr (FITS) loads_first(v);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        amax[r] = 0.0f;
        if constexpr (FITS) {
#pragma unroll
            for (int k = 0; k < U; k++) amax[r] = largest_of(v[r][k], amax[r]);
        } else {
            In x(a.x.row(first), N);
            for (int i = lane; i < x.vectors(); i += U * TEAM) {
                x.get(v[0], i, TEAM, x_t{});
#pragma unroll
                for (int k = 0; k < U; k++) amax[0] = largest_of(v[0][k], amax[0]);
            }
        }
        amax[r] = SHORT ? warp_all<Max>(amax[r]) : block_max(amax[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool live = ALL_ROWS || first + r < M;
        Scale s = scale_of<q_t, POW2>(amax[r], CLAMP);
        if (live && lane == 0) a.scale.ptr[first + r] = s.scale;
        q_t* row = a.q.row(first + r);
        auto scaled = [&](Pack<q_t, V> (&out)[U]) {
#pragma unroll
            for (int k = 0; k < U; k++) {
                forget(v[r][k].w);
                out[k] = quantised<q_t>(v[r][k], s.inverse);
            }
        };
        Pack<q_t, V> out[U];
        if constexpr (FITS && EVEN) {
            scaled(out);
#pragma unroll
            for (int k = 0; k < U; k++) {
                if (live && has(lane + k * TEAM)) store_once<V>(row + (lane + k * TEAM) * V, out[k]);
            }
        } else {
            In x(a.x.row(first + r), live ? N : 0);
            Out q(row, live ? N : 0, x.lead);
            int start = SHIFTED ? 0 : lane; // all threads of a team take part where shared memory does
            for (int i = start; i < (FITS ? start + 1 : x.vectors()); i += U * TEAM) {
                if constexpr (!FITS) x.get(v[0], SHIFTED ? i + lane : i, TEAM, x_t{});
                scaled(out);
                if constexpr (SHIFTED) put_shifted(row, x, out, i, lane);
                else q.put(out, i, TEAM);
            }
        }
    }
}
