// Long rows stream through shared memory by bulk copies: each warp has a ring of its own and never waits for others but at
// a row's end, while its next copies, those of the next row, too, are under way.
// kmark: arch sm_90a
// kmark: constants n
// kmark: let W = n*size/16
// kmark: require W>4096&&m>sms
// kmark: let STAGES = 3
// kmark: let BLOCKS = 2
// kmark: let GRID = min(m,BLOCKS*sms)
// kmark: kernel loss_rows grid=GRID block=256 shared=STAGES*8*4096+128
#include "hopper/bulk.cuh"
#include "online.cuh"

constexpr int V = lanes<x_t>, U = 8, CHUNK = 32 * U, WARPS = 8; // a chunk is what a warp holds: 4 KB
constexpr int CHUNKS = (int)((W + CHUNK - 1) / CHUNK), SHARE = (CHUNKS + WARPS - 1) / WARPS; // of a row; of a row to a warp
constexpr bool ALIGNED = MEMORY == MEMORY_strided || (MEMORY == MEMORY_dense && N % V == 0);
using Row = Cut<x_t, N, ALIGNED>;

// What a warp copies next: chunk `chunk` of row `row`.
struct Next {
    i64 row;
    int chunk;
    __device__ __forceinline__ void advance() {
        chunk += WARPS;
        if (chunk >= SHARE * WARPS) chunk -= SHARE * WARPS, row += GRID;
    }
};

KERNEL __launch_bounds__(256) loss_rows(const __grid_constant__ Args a) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ u64 full[WARPS][STAGES];
    __shared__ acc_t maxima[2][WARPS], sums[2][WARPS];
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32; // the compiler knows that lanes agree on it
    using Chunk = Pack<x_t, V>[CHUNK];
    Chunk* ring = reinterpret_cast<Chunk*>(shared) + warp * STAGES;

    // One lane asks for copies; a chunk that the row does not have is a phase without bytes.
    auto ask = [&](const Next& next, int stage) {
        if (!elected() || next.row >= a.m) return;
        Row x(a.x.row(next.row));
        int count = x.vectors - next.chunk * CHUNK, bytes = 16 * (count < 0 ? 0 : count > CHUNK ? CHUNK : count);
        barrier_expect(&full[warp][stage], bytes);
        if (bytes > 0) bulk_load(ring[stage], x.row + x.head + next.chunk * CHUNK * V, bytes, &full[warp][stage]);
    };
    if (lane == 0) {
        for (int s = 0; s < STAGES; s++) barrier_init(&full[warp][s], 1);
        barrier_fence_init();
    }
    __syncwarp();
    Next next{blockIdx.x, warp};
    for (int s = 0; s < STAGES; s++) ask(next, s), next.advance();

    Ring<STAGES> at{0, 0};
    int slot = 0;
    for (i64 row = blockIdx.x; row < a.m; row += GRID, slot ^= 1) {
        Row x(a.x.row(row));
        i64 target = a.target.ptr[row];
        bool counted = target != IGNORE;
        x_t edges[Row::edge_share<256>];
        if (Row::edges) x.get_edges(edges, threadIdx.x, 256);
        acc_t x_target = threadIdx.x == 0 && counted ? up(x.row[target]) : acc_t(0);

        Online all;
#pragma unroll 1
        for (int chunk = warp; chunk < SHARE * WARPS; chunk += WARPS) {
            barrier_wait(&full[warp][at.stage], at.phase);
            Pack<x_t, V> v[U];
#pragma unroll
            for (int k = 0; k < U; k++) v[k] = ring[at.stage][k * 32 + lane];
            fence_for_copies();
            __syncwarp(); // all lanes have read: the stage is free
            ask(next, at.stage);
            next.advance();
            at.next();
            int first = chunk * CHUNK;
            if (first + CHUNK > x.vectors) {
#pragma unroll
                for (int k = 0; k < U; k++)
                    if (first + k * 32 + lane >= x.vectors) v[k] = no_elements<x_t, V>();
            }
            all.add(v);
        }
        if (Row::edges) all.add(up(edges[0]));
        all.join_lanes<32>();
        if (lane == 0) maxima[slot][warp] = all.max, sums[slot][warp] = all.sum;
        __syncthreads(); // the other slot is free when all have come here
        if (warp == 0) {
            all.max = maxima[slot][lane % WARPS], all.sum = sums[slot][lane % WARPS];
            all.join_lanes<WARPS>();
            if (lane == 0) {
                acc_t log_total = log_near(all.sum);
                a.lse.ptr[row] = all.max + log_total;
                a.loss.ptr[row] = counted ? log_total + (all.max - x_target) : acc_t(0);
            }
        }
    }
}
