// Attention forward by Hopper's tensor cores: blocks stay for the whole launch and go from tile to tile of 64 * GROUPS rows of
// queries. A producer thread copies queries, keys and values; each of GROUPS warpgroups keeps 64 rows. While the tensor cores work
// on the logits of the next BN keys and on the values of the last, a warpgroup makes weights of the logits it has, in registers.
// The file says, by `let`: BN, GROUPS, STAGES; PACK, how many heads that share keys have their queries in one tile; IN_REGISTERS,
// whether queries are kept there (shared memory then has only keys and values to deliver); AHEAD, 2 if there is room for the next
// tile's queries too; TURNS, whether warpgroups ask for products one after another.
// What limits it: the tensor cores' share of the clock, 88 to 90 % for long rows of 128 columns, and power: the clock falls when
// that share grows. Of 64 columns, the exponentials.
#pragma once
#include "attention_weights.cuh"
#include "hopper/keep.cuh"
#include "hopper/tma_4d.cuh"
#include "hopper/wgmma_registers.cuh"

// Rows of 64 columns are copied and multiplied at once: columns beyond D are zeros.
constexpr int BM = 64 * GROUPS, QUERIES = BM / PACK, CHUNKS = ((int)D + 63) / 64;
constexpr int Q_CHUNK = 64 * 128, KV_CHUNK = BN * 128;
constexpr int Q_BYTES = CHUNKS * Q_CHUNK, KV_BYTES = CHUNKS * KV_CHUNK;
constexpr int FLASH_THREADS = 128 * (GROUPS + 1);
// Whether there is a place for the next tile's queries while this one's are multiplied.
constexpr bool EARLY = AHEAD > 1 || IN_REGISTERS;

// Whether weights are made before anybody has looked for a maximum; keys must stay until it is known whether that was right. With
// more columns registers do not suffice for it, nor is it needed.
constexpr bool QUICK = D <= 192;

template <bool V> struct Bool { static constexpr bool value = V; };

struct FlashShared {
    u8 *q, *k, *v;  // at multiples of 1024 bytes, as swizzled copies want it
    int* tile;      // of each place for a warpgroup's queries, and comes with them; -1: no more
    u64 *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty;
};

DEVICE FlashShared flash_shared(u8* raw) {
    constexpr int PLACES = GROUPS * AHEAD;
    __shared__ u64 barriers[2 * PLACES + 4 * STAGES];
    __shared__ int tile[PLACES];
    u8* q = raw + (1024 - shared_address(raw) % 1024) % 1024;
    u8* k = q + PLACES * Q_BYTES;
    u64* stages = barriers + 2 * PLACES;
    FlashShared s{q, k, k + STAGES * KV_BYTES, tile, barriers, barriers + PLACES, stages, stages + STAGES, stages + 2 * STAGES, stages + 3 * STAGES};
    if (threadIdx.x == 0) {
        for (int i = 0; i < PLACES; i++) barrier_init(s.q_full + i, 1), barrier_init(s.q_empty + i, 128);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.k_full + i, 1), barrier_init(s.k_empty + i, 4 * GROUPS);
            barrier_init(s.v_full + i, 1), barrier_init(s.v_empty + i, 4 * GROUPS);
        }
        barrier_fence_init();
    }
    __syncthreads();
    return s;
}

// The queries `first` to first + QUERIES of PACK heads that share keys, from `head` on, and where their rows are: row r of a tile is
// query r / PACK of head r % PACK. `head` and `batch` are coordinates of the maps; the next head's rows of o and lse are `next` on.
struct Tile {
    Sequence seq;
    int first, q_row, k_row, head, kv_head, batch;
    Head<o_t> o;
    Head<float> lse;
    i64 o_next, lse_next;
    __device__ __forceinline__ bool has(int row) const { return first + row / PACK < seq.queries; }
    __device__ __forceinline__ o_t* o_row(int row) const { return o.row(first + row / PACK) + row % PACK * o_next; }
    __device__ __forceinline__ float* lse_of(int row) const { return lse.row(first + row / PACK) + row % PACK * lse_next; }
};

// The keys that some query of a tile sees, BN at a time, from the last to the first: masks come first.
struct Blocks {
    int begin, count;
    __device__ __forceinline__ Blocks() : begin(0), count(0) {}
    __device__ __forceinline__ explicit Blocks(const Tile& t) {
        begin = t.seq.low(t.first);
        count = (t.seq.high(min(t.first + QUERIES, t.seq.queries) - 1) - begin + BN - 1) / BN;
    }
    // The same in all lanes, and the compiler knows it: what depends on the count of steps stays out of the lanes' registers.
    __device__ __forceinline__ Blocks uniform() const {
        Blocks same = *this;
        same.begin = __reduce_max_sync(~0u, begin), same.count = __reduce_max_sync(~0u, count);
        return same;
    }
    __device__ __forceinline__ int key(int i) const { return begin + (count - 1 - i) * BN; }
};

// Tiles are handed out one by one: whoever is done takes the next. The counter is zero before and after a launch. Who asks may go on
// until the answer is needed, which comes from memory.
struct Counter {
    u32* count;
    int tiles;
    __device__ __forceinline__ bool counts() const { return tiles > (int)gridDim.x; } // else every block has one, and need not ask
    __device__ __forceinline__ int first() const { return blockIdx.x; }
    // Into what is there: an answer of 0 in the other case would be chosen at once, and choosing waits.
    __device__ __forceinline__ void ask(u32& answer) const {
        if (counts()) answer = atomicAdd(count, 1u);
    }
    __device__ __forceinline__ int next(u32 answer) const {
        if (!counts()) return -1;
        asm volatile("" : "+r"(answer)::"memory"); // the compiler does not wait for it before
        int n = (int)answer;
        if (n == tiles - 1) *count = 0; // every block asks once too often: this was the last question
        return n + (int)gridDim.x < tiles ? n + (int)gridDim.x : -1;
    }
};

// Hands tiles out, and leaves in shared memory what find(number) says of each, so that it is computed once for the whole block; a
// tile's id is its place among those of the block. A warpgroup lets go of the queries of the next tile or two before it writes
// this one, and two or three more are taken then: no more than 6 at once.
constexpr int SLOTS = 8;
template <class Slot, class F> struct Queue {
    Counter counter;
    Slot* slots;
    F find;
    int taken;
    __device__ __forceinline__ int take(int number) {
        if (number < 0 || number >= counter.tiles) return -1;
        slots[taken % SLOTS] = find(number);
        return taken++;
    }
    __device__ __forceinline__ int first() { return take(counter.first()); }
    __device__ __forceinline__ int next(u32 answer) { return take(counter.next(answer)); }
};

template <class Slot, class Find, class F>
DEVICE void flash_produce(const FlashShared& s, const Maps& maps, Counter counter, Slot* slots, Find find, F tile_of) {
    Queue<Slot, Find> queue{counter, slots, find, 0};
    Ring<STAGES> ring{0, 1};
    Ring<AHEAD> place{0, 1};
    tma_prefetch(maps.q), tma_prefetch(maps.k), tma_prefetch(maps.v);
    auto copy_rows = [&](u8* to, const TensorMap& map, u64* full, u64* empty, const Tile& t, int key) {
        barrier_wait(empty + ring.stage, ring.phase);
        barrier_expect(full + ring.stage, KV_BYTES);
        to += ring.stage * KV_BYTES;
        #pragma unroll
        for (int c = 0; c < CHUNKS; c++) tma_load(to + c * KV_CHUNK, map, full + ring.stage, c * 64, t.k_row + key, t.kv_head, t.batch);
    };
    auto copy_queries = [&](int id) {
        Tile t = tile_of(max(id, 0));
        #pragma unroll 1
        for (int g = 0; g < GROUPS; g++) {
            int at = place.stage * GROUPS + g;
            u64* full = s.q_full + at;
            barrier_wait(s.q_empty + at, place.phase);
            s.tile[at] = id;
            if (id < 0) {
                barrier_arrive(full);
                continue;
            }
            barrier_expect(full, Q_BYTES);
            #pragma unroll
            for (int c = 0; c < CHUNKS; c++) tma_load(s.q + at * Q_BYTES + c * Q_CHUNK, maps.q, full, c * 64, t.head, t.q_row + t.first + g * (64 / PACK), t.batch);
        }
        place.next();
    };
    int id = queue.first();
    copy_queries(id);
    while (id >= 0) {
        Tile t = tile_of(id);
        Blocks blocks(t);
        // Which tile is next: asked late, so that no block keeps a tile that another could begin, but before it is needed. What a
        // short tile still wants, for which there is room at once, does not wait for the answer.
        int ask = max(blocks.count - 4, 0), when = blocks.count - (EARLY && blocks.count > STAGES ? 2 : 1);
        u32 answer = 0;
        #pragma unroll 1
        for (int i = 0; i < blocks.count; i++) {
            if (i == ask) counter.ask(answer);
            copy_rows(s.k, maps.k, s.k_full, s.k_empty, t, blocks.key(i));
            copy_rows(s.v, maps.v, s.v_full, s.v_empty, t, blocks.key(i));
            ring.next();
            if (i == when) copy_queries(id = queue.next(answer));
        }
        if (blocks.count == 0) {
            counter.ask(answer);
            copy_queries(id = queue.next(answer));
        }
    }
}

// 16 columns of a warp's 16 queries, as the tensor cores want them on the left; `rows` as copies left them.
DEVICE void query_columns(u32 (&own)[4], const u8* rows, int step) {
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    ldmatrix4(own, rows + step / 4 * Q_CHUNK + row * 128 + (((step % 4 * 2 + lane / 16) ^ row % 8) * 16));
}

// What `x`, no negative number, was made of is done before what follows. The compiler moves arithmetic behind a wait that it has
// no reason to be in front of, but no store, not even one that never happens.
DEVICE void done_before(float x, void* shared) {
    asm volatile("{\n.reg .pred never;\nsetp.lt.f32 never, %0, 0f00000000;\n@never st.shared.u32 [%1], 0;\n}" ::"f"(x), "r"(shared_address(shared)) : "memory");
}

// Four lanes share a row; each gets 16 bytes of it at a time, of the four pieces that they hold 4 bytes each of.
DEVICE void exchange(u32 (&v)[4]) {
    int lane = threadIdx.x % 4;
    #pragma unroll
    for (int by = 1; by < 4; by *= 2) {
        bool up = lane & by;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & by) continue;
            u32 sent = up ? v[i] : v[i + by], got = __shfl_xor_sync(~0u, sent, by);
            if (up) v[i] = got;
            else v[i + by] = got;
        }
    }
}

// Writes 16 rows of a warp: o divided by `total`, and lse where it is wanted.
DEVICE void flash_write(const Tile& t, const float (&o)[DP / 2], const RowPair& rows, int row) {
    int lane = threadIdx.x % 4;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        float total = rows.total[h];
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        float by = total > 0.0f ? 1.0f / total : 0.0f;
        int i = row + 8 * h;
        bool here = t.has(i);
        if (t.lse.first && lane == 0 && here) *t.lse_of(i) = (float)LN_2 * (rows.base[h] + log2f(total));
        o_t* to = t.o_row(i);
        #pragma unroll
        for (int n = 0; n < DP / 8; n += 4) {
            u32 v[4];
            #pragma unroll
            for (int e = 0; e < 4; e++) {
                int at = 4 * min(n + e, DP / 8 - 1) + 2 * h;
                v[e] = rounded_pair(o[at] * by, o[at + 1] * by, o_t{});
            }
            exchange(v);
            int column = 8 * (n + lane);
            Vec<o_t, 8> piece;
            memcpy(&piece, v, 16);
            if (here && column < D) store<8>(to + column, piece);
        }
    }
}

// The same of queries that see no key.
DEVICE void flash_write_nothing(const Tile& t, int row) {
    int lane = threadIdx.x % 4;
    for (int i = row; i <= row + 8 && t.has(i); i += 8) {
        if (t.lse.first && lane == 0) *t.lse_of(i) = (float)-infinity();
        for (int column = 8 * lane; column < D; column += 32) store<8>(t.o_row(i) + column, Vec<o_t, 8>{});
    }
}

// Warpgroup `group` of a block: a stream of blocks of keys, tile after tile, so that the tensor cores have the first logits of a
// tile to do while the last values of the one before are weighed.
template <class F> DEVICE void flash_consume(const FlashShared& s, int group, F tile_of) {
    constexpr int STEPS = DP / 16, PARTS = BN / 16;
    Ring<STAGES> ring{0, 0};
    Ring<AHEAD> place{0, 0};
    int thread = threadIdx.x % 128, lane = threadIdx.x % 32, inside = group * 64 + thread / 32 * 16 + lane / 4;
    float scale = (float)(logit_scale(D) * LOG2_E);
    float o[DP / 2], logits[BN / 2], by[2];
    u32 p[PARTS][4];
    RowPair rows;
    define(o), define(logits);
    int at = group; // which place the queries are in
    u32 own[IN_REGISTERS ? STEPS : 1][4]; // or their part of the thread
    auto multiply_keys = [&](int stage) {
        u8 *q = s.q + at * Q_BYTES, *k = s.k + stage * KV_BYTES;
        #pragma unroll
        for (int i = 0; i < STEPS; i++) {
            u64 keys = along_k(k + i / 4 * KV_CHUNK) + i % 4 * 2;
            if constexpr (IN_REGISTERS) wgmma_rs<q_t>(logits, own[i], keys, i > 0);
            else wgmma<q_t>(logits, along_k(q + i / 4 * Q_CHUNK) + i % 4 * 2, keys, i > 0);
        }
        wgmma_commit();
    };
    auto multiply_values = [&](int stage, int add) {
        u64 v = across_k(s.v + stage * KV_BYTES, KV_CHUNK);
        #pragma unroll
        for (int i = 0; i < PARTS; i++) wgmma_rs<q_t, true>(o, p[i], v + 128 * i, add || i > 0);
        wgmma_commit();
    };
    auto release = [&](u64* empty) {
        __syncwarp();
        if (lane == 0) barrier_arrive(empty);
    };
    auto release_queries = [&] { barrier_arrive(s.q_empty + at); };
    auto round_weights = [&] {
        #pragma unroll
        for (int i = 0; i < PARTS; i++) {
            #pragma unroll
            for (int e = 0; e < 4; e++) p[i][e] = rounded_pair(logits[8 * i + 2 * e], logits[8 * i + 2 * e + 1], q_t{});
        }
    };
    auto mask = [&](int id, int key) {
        Tile t = tile_of(id);
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = t.first + (inside + 8 * h) / PACK, left = key + lane % 4 * 2;
            int low = t.seq.low(row) - left, high = t.seq.high(row) - left;
            #pragma unroll
            for (int n = 0; n < BN / 8; n++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                    int j = n * 8 + e;
                    if (j >= high || (BOUND_LOW && j < low)) logits[4 * n + 2 * h + e] = (float)-infinity();
                }
            }
        }
    };
    Blocks blocks;
    // The next tile, or -1.
    auto take = [&] {
        at = place.stage * GROUPS + group;
        barrier_wait(s.q_full + at, place.phase);
        place.next();
        int id = __reduce_max_sync(~0u, s.tile[at]);
        if (id < 0) return id;
        blocks = Blocks(tile_of(id)).uniform();
        if (IN_REGISTERS) {
            #pragma unroll
            for (int i = 0; i < (IN_REGISTERS ? STEPS : 0); i++) query_columns(own[i], s.q + at * Q_BYTES, i);
            fence_for_copies();
            release_queries();
        }
        return id;
    };
    // The first from tile `id` on that sees any key, or -1. The others have nothing to wait for.
    auto with_keys = [&](int id) {
        while (BOUND_HIGH && id >= 0 && blocks.count == 0) {
            if (!IN_REGISTERS) release_queries();
            Tile t = tile_of(id);
            flash_write_nothing(t, inside);
            id = take();
        }
        return id;
    };
    // Block i of tile `id`, while the values of the block before are weighed; `add` them to those before. Logits that were lost are
    // computed once more.
    auto step = [&](int id, int i, int add, bool masked, auto fresh) {
        Ring<STAGES> last = ring;
        ring.next();
        barrier_wait(s.k_full + ring.stage, ring.phase);
        if (TURNS) named_barrier(1 + group, 256);
        wgmma_fence();
        multiply_keys(ring.stage);
        barrier_wait(s.v_full + last.stage, last.phase);
        wgmma_fence();
        multiply_values(last.stage, add);
        if (TURNS) named_arrive(1 + (group + 1) % GROUPS, 256);
        wgmma_wait<1>(); // the logits
        if (!QUICK) release(s.k_empty + ring.stage);
        if constexpr (fresh.value) rows.clear();
        if (!QUICK || masked || !rows.meet_quickly(logits, by, scale, group)) {
            if (masked) {
                mask(id, blocks.key(i));
            } else if (QUICK) {
                wgmma_fence();
                multiply_keys(ring.stage);
                wgmma_wait<0>();
            }
            rows.meet(logits, by, scale);
        }
        if (QUICK) release(s.k_empty + ring.stage);
        done_before(rows.total[0] + rows.total[1], s.tile);
        if (!IN_REGISTERS && i == blocks.count - 1) release_queries();
        wgmma_wait<0>(); // the values
        release(s.v_empty + last.stage);
        round_weights();
        if (!fresh.value && __any_sync(~0u, by[0] != 1.0f || by[1] != 1.0f)) {
            #pragma unroll
            for (int n = 0; n < DP / 2; n++) o[n] *= by[n / 2 % 2];
        }
    };
    // The first block of tile `id`, with nothing beside it.
    auto begin = [&](int id) {
        barrier_wait(s.k_full + ring.stage, ring.phase);
        wgmma_fence();
        multiply_keys(ring.stage);
        wgmma_wait<0>();
        release(s.k_empty + ring.stage);
        if (!IN_REGISTERS && blocks.count == 1) release_queries();
        mask(id, blocks.key(0));
        rows.clear();
        rows.meet(logits, by, scale);
        round_weights();
    };
    if (TURNS && group == GROUPS - 1) named_arrive(1, 256);
    int id = with_keys(take());
    if (id < 0) return;
    begin(id);
    #pragma unroll 1
    while (true) {
        // Which blocks all queries of the warpgroup see all of.
        int from = 1, to = blocks.count;
        if (BOUND_HIGH) {
            Tile t = tile_of(id);
            int first = t.first + group * (64 / PACK);
            from = blocks.count - max(0, t.seq.high(first) - blocks.begin) / BN;
            if (BOUND_LOW) to = blocks.count - (max(0, t.seq.low(first + 63 / PACK) - blocks.begin) + BN - 1) / BN;
        }
        #pragma unroll 1
        for (int i = 1; i < blocks.count; i++) step(id, i, i > 1, BOUND_HIGH && (i < from || i >= to), Bool<false>{});
        int done = id, add = blocks.count > 1;
        RowPair finished = rows;
        if (EARLY) id = take();
        bool together = EARLY && id >= 0 && (!BOUND_HIGH || blocks.count > 0);
        if (together) {
            step(id, 0, add, true, Bool<true>{});
        } else {
            barrier_wait(s.v_full + ring.stage, ring.phase);
            wgmma_fence();
            multiply_values(ring.stage, add);
            wgmma_wait<0>();
            release(s.v_empty + ring.stage);
            ring.next();
        }
        Tile t = tile_of(done);
        flash_write(t, o, finished, inside);
        if (!EARLY) id = take();
        if (!together) id = with_keys(id);
        if (id < 0) return;
        if ((!EARLY || BOUND_HIGH) && !together) begin(id);
    }
}
