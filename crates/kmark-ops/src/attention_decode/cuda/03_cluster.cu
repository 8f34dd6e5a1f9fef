// Few sequences: a cluster of blocks for each key head, which shares its keys evenly; blocks send each other what they know of some
// columns. No plan, no workspace: pages are looked up before lengths are known, and nothing waits for memory between a key and its result.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16 memory=dense,strided
// kmark: constants hq,hkv,d
// kmark: let GROUP = hq/hkv*q
// kmark: let TILES = GROUP<=8?1:2
// kmark: let ROWS = 8*TILES
// kmark: let PAIRS = hkv*ceil(GROUP,ROWS)
// kmark: let SPANS = ceil(d,64)
// kmark: let WARPS = 4
// Clusters need multiprocessors that are neighbours: two to each, eight of nine blocks find room at once. Where lengths differ, the longest
// decide, and others may wait.
// kmark: let ALL = b*PAIRS
// kmark: let ROOM = 2*sms*(lengths.ragged?9:8)
// kmark: let FIT = ALL*144<=ROOM?16:ALL*72<=ROOM?8:ALL*36<=ROOM?4:ALL<=sms?2:1
// kmark: let USEFUL = l>=8192?16:l>256?8:l>128?4:2
// kmark: let BLOCKS = min(FIT,USEFUL)
// kmark: let SHARE = ceil(ceil(l,16),BLOCKS)
// kmark: let SLOTS = WARPS/2*ROWS*SPANS*256
// kmark: let STAGES = min(4,(max_shared/2-8192-SLOTS)/(WARPS*SPANS*4096))
// kmark: require BLOCKS>=2 && SHARE<=256 && (d==64||d==128) && page%16==0
// kmark: kernel decode_cluster grid=ALL*BLOCKS block=WARPS*32 cluster=BLOCKS shared=WARPS*STAGES*SPANS*4096+SLOTS
#include "cluster.cuh"
#include "decode_rows.cuh"
#include "hopper/send.cuh"

constexpr int STAGE = 32 * PITCH, COLS = D / BLOCKS; // bytes of 16 keys and values; columns that a block puts together

// What a warp copies ahead: every WARPS-th of its block's tiles of 16 keys. Lane i knows the page of tile i of the next 32, and of 32 more.
struct Feed {
    const Args& a;
    int s, head, first, end, keys, tile, now, later;

    __device__ __forceinline__ Feed(const Args& args, int sequence, int pair) : a(args), s(sequence), head(pair / (int)(PAIRS / HKV)) {
        const int begin = cluster_rank() * (int)SHARE;
        first = begin + (int)threadIdx.x / 32, tile = 0, end = begin + (int)SHARE;
        now = page_of(threadIdx.x % 32), later = page_of(32 + threadIdx.x % 32);
        keys = a.lengths.at(0, s);
    }
    __device__ __forceinline__ int page_of(int n) const {
        const i64 key = ((i64)first + (i64)n * (int)WARPS) * 16;
        return first + n * (int)WARPS < end && key < a.l ? a.page_table.at(s, key / PAGE) : 0;
    }
    __device__ __forceinline__ int key_of(int n) const { return (first + n * (int)WARPS) * 16; }
    __device__ __forceinline__ bool has(int n) const { return first + n * (int)WARPS < end && key_of(n) < keys; }
    // Rows behind the last key become zeros: what lies there may be anything.
    __device__ __forceinline__ void copy(u8* to) {
        if (tile > 0 && tile % 32 == 0) now = later, later = page_of(tile + 32 + threadIdx.x % 32);
        const int page = __shfl_sync(0xffffffffu, now, tile % 32);
        if (has(tile)) {
            const int lane = threadIdx.x % 32, key = key_of(tile);
            const i64 row = ((i64)page * PAGE + key % (int)PAGE) * HKV + head;
            const q_t *k = a.k_cache.row(row), *v = a.v_cache.row(row);
            const int k_step = (int)(HKV * a.k_cache.pitch), v_step = (int)(HKV * a.v_cache.pitch);
#pragma unroll
            for (int i = 0; i < EIGHTS / 2; i++) {
                const int n = i * 32 + lane, row = n / EIGHTS, eight = n % EIGHTS;
                const bool valid = key + row < keys;
                copy_async16(to + key_at(row, eight), k + row * k_step + eight * 8, valid);
                copy_async16(to + value_at(row, eight), v + row * v_step + eight * 8, valid);
            }
        }
        tile++;
        copy_commit();
    }
};

KERNEL __launch_bounds__(WARPS * 32, 2) decode_cluster(const __grid_constant__ Args a) {
    extern __shared__ __align__(128) u8 memory[];
    __shared__ __align__(16) float known[BLOCKS][ROWS][COLS], stats[BLOCKS][ROWS][2];
    __shared__ float total[ROWS][2];
    __shared__ u64 full;
    const int thread = threadIdx.x, warp = thread / 32, rank = cluster_rank();
    const int which = blockIdx.x / (int)BLOCKS, s = which / (int)PAIRS, pair = which % (int)PAIRS;
    if (thread == 0) {
        barrier_init(&full, 1), barrier_fence_init();
        barrier_expect(&full, (int)sizeof known + (int)sizeof stats);
    }
    __syncwarp();
    cluster_arrive();

    u8* ring = memory + warp * STAGES * STAGE;
    float* slots = reinterpret_cast<float*>(memory + WARPS * STAGES * STAGE);
    Feed feed(a, s, pair);
    const Queries queries(s, pair, feed.keys);
    Rows<q_t> rows;
    for (int i = 0; i < STAGES - 1; i++) feed.copy(ring + i * STAGE);
    rows.begin(a, queries);
    const float factor = logit_factor(SCALE_AUTO ? 1.0 / sqrt((double)D) : SCALE, 0.0f);
    for (int n = 0, stage = 0; feed.has(n); n++) {
        copy_wait<STAGES - 2>();
        __syncwarp(); // all lanes' copies are there, and the stage before has been read
        feed.copy(ring + (stage == 0 ? STAGES - 1 : stage - 1) * STAGE);
        rows.step(ring + stage * STAGE, feed.key_of(n), factor);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    meet(rows, total, slots);
    cluster_wait(); // all blocks have their barriers
    for (int i = thread; i < ROWS * (D / 4); i += WARPS * 32) {
        const int r = i / (D / 4), col = i % (D / 4) * 4;
        send_four_to_block(&known[rank][r][col % COLS], four_of(slots, r, col), &full, col / COLS);
    }
    for (int i = thread; i < BLOCKS * ROWS * 2; i += WARPS * 32)
        send_to_block(&stats[rank][i / 2 % ROWS][i % 2], total[i / 2 % ROWS][i % 2], &full, i / (int)(ROWS * 2));
    barrier_wait(&full, 0); // nobody leaves while others tell it something
    for (int i = thread; i < queries.rows * (COLS / 4); i += WARPS * 32) {
        const int r = i / (COLS / 4), col = i % (COLS / 4) * 4;
        float top = lowest<float>(), sum = 0.0f;
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) top = fmaxf(top, stats[n][r][0]);
        Vec<float, 4> all{{0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            const float weight = exp2_fast(stats[n][r][0] - anchor(top));
            const Vec<float, 4> more = load<4>(&known[n][r][col]);
            sum += weight * stats[n][r][1];
#pragma unroll
            for (int e = 0; e < 4; e++) all.v[e] += weight * more.v[e];
        }
        const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; e++) all.v[e] *= inverse;
        put_four(a, queries.row(r), rank * COLS + col, all);
        if (rank == 0 && col == 0) put_lse(a, queries.row(r), top, sum);
    }
}
