// The main kernel of attention's backward on Hopper: a block of 384 threads owns 128 keys of a head, and queries come by in
// steps of QUERIES, those of all heads of the group one after the other. Two warpgroups (`key_side`) own 64 keys each and begin
// products in turns, so that one computes weights while the tensor cores have the other's. The third (`query_side`) copies, and
// makes dq of the ds that both leave in shared memory.
// lse and delta of the queries are columns of the products: what is left to do between two products is scaling and exponentials,
// or a multiplication, and no load, which would wait behind the tensor cores' own reads of shared memory.
// The file says, by `let`, HEAD, QUERIES, STAGES, STEPS, TILES, GROUP, TOGETHER, EARLY, MASKED, BACKWARD and ROTATES; its maps are
// q, k, v, dout, dk and dv.
#pragma once
#include "attention_mma.cuh"
#include "hopper/bulk.cuh"
#include "hopper/tma_4d.cuh"
#include "hopper/wgmma_registers.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;

// Weights p and ds are rounded to 16 bits. Those of f16 are made larger, so that a p of 1/100000 is not subnormal.
constexpr float GAIN_BITS = is<q_t, f16> ? 4.0f : 0.0f, GAIN = is<q_t, f16> ? 16.0f : 1.0f;

// What rounded_pair made.
DEVICE Vec<float, 2> both(u32 pair, bf16) { return Vec<float, 2>{float_of(pair << 16), float_of(pair & 0xffff0000u)}; }
// Of halves that are taken from a register which a product is reading, NVRTC 13.0 keeps copies, all of them at once.
DEVICE Vec<float, 2> both(u32 pair, f16) {
    u32 turned;
    asm volatile("prmt.b32 %0, %1, %1, 0x1032;" : "=r"(turned) : "r"(pair));
    return Vec<float, 2>{up(f16{(u16)(turned >> 16)}), up(f16{(u16)turned})};
}

// In shared memory, tiles lie by 64 columns; KEY_PART and QUERY_PART are the bytes of those. ds has a row for each query and a
// part for each warpgroup's keys.
constexpr int KEY_PART = 128 * 128, QUERY_PART = QUERIES * 128, PARTS = HEAD / 64;
constexpr int KEY_BYTES = PARTS * KEY_PART, QUERY_BYTES = PARTS * QUERY_PART, DS_BYTES = 2 * QUERY_PART, DS_STAGES = 2;

// Sums of dk and dv, logits, weights, 24 that products cannot use, and what compilers need beside: with fewer they serialise the
// products, and with more there are too few for dq.
constexpr int KEY_REGISTERS = HEAD == 64 ? 200 : 216;

// ---- Who does what -------------------------------------------------------------------------------------------------

// QUERIES queries of a head, by number, and their part of the workspace: sums of dq, and behind those of all steps the stats of
// each query, eight bf16. The first three add up to half of what its logits lack to be those of weights, the next three to half of
// -delta.
struct Step {
    int b, head, first;
    float* dq;
    u16* stats;
    u32* turn; // how many blocks have added to dq, where they do so in order
    __device__ __forceinline__ Step(const Args& a, int n) {
        b = n / STEPS / (int)a.hq, head = n / STEPS % (int)a.hq, first = n % STEPS * QUERIES;
        dq = (float*)a.workspace + (i64)n * QUERIES * HEAD;
        stats = (u16*)((float*)a.workspace + a.b * a.hq * STEPS * QUERIES * HEAD) + (i64)n * QUERIES * 8;
        turn = (u32*)a.workspace + a.b * a.hq * STEPS * QUERIES * (HEAD + 4) + n;
    }
};

// The keys of this block, and the steps whose queries see any of them: `begin` to below `end`, of each head of the group, from
// `start` on.
struct Tile {
    int b, kv_head, first, begin, end, start, total;
    Sequence seq;
    __device__ __forceinline__ Tile(const Args& a) : seq{(int)a.sq, (int)a.sk} {
        int block = blockIdx.x, heads = (int)(a.hkv * a.b), from = block < EARLY * TILES ? block / (TILES * TOGETHER) * TOGETHER : EARLY;
        int side = from < EARLY ? TOGETHER : heads - EARLY, rest = block - from * TILES, n = from + rest % side;
        int index = DETERMINISTIC && MASKED ? TILES - 1 - rest / side : rest / side;
        b = n / (int)a.hkv, kv_head = n % (int)a.hkv, first = index * 128;
        int low = seq.first(first), high = seq.last(min(first + 128, seq.keys) - 1);
        begin = low / QUERIES, end = low < high ? (high + QUERIES - 1) / QUERIES : begin;
        start = BACKWARD ? end - 1 : begin + (ROTATES ? index * STEPS / TILES : 0);
        total = (end - begin) * GROUP;
    }
    // How many tiles add to dq of a step before this one. Each waits for one that was launched before it, or for one that runs
    // beside it and has just been there: masked tiles begin at their own queries, and others are made to.
    __device__ __forceinline__ int turn(int step) const {
        int index = first / 128;
        if (MASKED) {
            int query = min((step + 1) * QUERIES, seq.queries) - 1, last = query + seq.shift() + (int)DIFF_HIGH;
            return (BOUND_HIGH ? min(TILES - 1, last / 128) : TILES - 1) - index;
        }
        if (!ROTATES) return index;
        int begun = ((step + 1) * TILES + STEPS - 1) / STEPS; // tiles that start at this step or before
        return index < begun ? begun - 1 - index : begun + TILES - 1 - index;
    }
};

// A place in the order of steps. Backward, heads of the group take turns at each step.
struct Walk {
    int step, head;
    __device__ __forceinline__ void next(const Tile& tile) {
        if constexpr (BACKWARD) {
            if (++head % GROUP == 0) head -= GROUP, step--;
        } else {
            if (++step == tile.end) step = tile.begin, head += !ROTATES;
            if (ROTATES && step == tile.start) head++;
        }
    }
};

// Stats as right operand of a product: eight along k of eight queries in 128 bytes, then the next eight queries. The left one says
// which count: eight times eight ones and zeros, the same for all 64 rows. In both, 8 to 15 of k are 0 to 7 again: stats have half
// of their value.
DEVICE u64 same_for_all(const u8* p) { return (u64)((shared_address(p) & 0x3ffff) >> 4); }
DEVICE u64 stats_along_k(const u8* p) { return same_for_all(p) | 8ull << 32; }

struct Room {
    u8 *k, *v, *q, *dout, *ds; // at multiples of 1024 bytes, as swizzled copies want them
    u8 *stats, *of_lse, *of_delta; // before ds: memcheck counts rows that are the same ones again
    __device__ __forceinline__ Room(u8* raw) {
        k = raw + (1024 - shared_address(raw) % 1024) % 1024, v = k + KEY_BYTES, q = v + KEY_BYTES;
        dout = q + STAGES * QUERY_BYTES, stats = dout + STAGES * QUERY_BYTES, of_lse = stats + STAGES * QUERIES * 16;
        of_delta = of_lse + 128, ds = of_lse + 1024;
    }
    __device__ __forceinline__ void begin() const {
        if (threadIdx.x >= 64) return;
        int i = threadIdx.x % 8, one = 0x3f80;
        ((u16*)of_lse)[threadIdx.x] = (u16)(i < 3 ? one : 0), ((u16*)of_delta)[threadIdx.x] = (u16)(i >= 3 && i < 6 ? one : 0);
        fence_for_copies();
    }
};

// There is no barrier for a stage that is empty again. When all warps have left their ds of a step, all they did with the
// queries of the step before is done.
struct Barriers {
    u64 keys, full[STAGES], ds_full[DS_STAGES], ds_empty[DS_STAGES];
    __device__ __forceinline__ void init() {
        barrier_init(&keys, 1);
        for (int i = 0; i < STAGES; i++) barrier_init(full + i, 1);
        for (int i = 0; i < DS_STAGES; i++) barrier_init(ds_full + i, 8), barrier_init(ds_empty + i, 4); // warps that write; that read
        barrier_fence_init();
    }
};

// Keeps the compiler from moving arithmetic on results of products before the wait for them.
template <int N> DEVICE void arrived(float (&d)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// ---- Queries -------------------------------------------------------------------------------------------------------

// Whether phase `phase` is complete.
DEVICE bool barrier_test(u64* barrier, int phase) {
    u32 done;
    asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                 : "=r"(done) : "r"(shared_address(barrier)), "r"(phase) : "memory");
    return done;
}

// Adds to four floats in memory; threads of other blocks may do so at once.
DEVICE void add_to_memory(float* to, float a, float b, float c, float d) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// Blocks add to dq of a step one after the other: this one when `turn` others have. All threads of the warpgroup call both. Each
// warp waits for itself: with a barrier here, the compiler of CUDA 12 finds no registers for dq.
DEVICE void await_turn(const u32* at, int turn) {
    if (threadIdx.x % 32 == 0) {
        u32 now;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(at) : "memory");
        while (now < (u32)turn);
    }
    __syncwarp();
}
DEVICE void end_turn(u32* at) {
    __threadfence();
    named_barrier(3, 128);
    if (threadIdx.x % 128 == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory");
}

DEVICE void query_side(const Args& a, const Maps& maps, const Room& room, Barriers& barriers, const Tile& tile) {
    int thread = threadIdx.x % 128;
    auto number = [&](const Walk& at) { return (tile.b * (int)a.hq + at.head) * STEPS + at.step; };
    Walk at{tile.start, tile.kv_head * GROUP}, coming = at;
    int stage = 0, loaded = 0;
    auto copy_queries = [&] {
        u64* full = barriers.full + stage;
        u8 *q = room.q + stage * QUERY_BYTES, *dout = room.dout + stage * QUERY_BYTES;
        barrier_expect(full, 2 * QUERY_BYTES + QUERIES * 16);
        int first = coming.step * QUERIES;
        #pragma unroll
        for (int i = 0; i < PARTS; i++) tma_load(q + i * QUERY_PART, maps.q, full, 64 * i, first, coming.head, tile.b);
        bulk_load(room.stats + stage * QUERIES * 16, Step(a, number(coming)).stats, QUERIES * 16, full);
        #pragma unroll
        for (int i = 0; i < PARTS; i++) tma_load(dout + i * QUERY_PART, maps.dout, full, 64 * i, first, coming.head, tile.b);
        coming.next(tile), loaded++;
        if (++stage == STAGES) stage = 0;
    };
    auto copy_keys = [&](u8* to, const TensorMap& map) {
        #pragma unroll
        for (int i = 0; i < PARTS; i++)
            tma_load(to + i * KEY_PART, map, &barriers.keys, 64 * i, tile.first, tile.kv_head, tile.b);
    };
    if (thread == 0) {
        barrier_expect(&barriers.keys, 2 * KEY_BYTES);
        copy_keys(room.k, maps.k);
        if (tile.total > 0) copy_queries();
        copy_keys(room.v, maps.v);
        while (loaded < min(STAGES, tile.total)) copy_queries();
    }
    barrier_wait(&barriers.keys, 0);
    Ring<DS_STAGES> ring{0, 0}, done{1 % DS_STAGES, 1 / DS_STAGES % 2}; // `done`: whose ds makes room for the next copy
    float dq[QUERIES / 2]; // dq^T: 64 columns of the head, a column for each query
    for (int n = 0; n < tile.total; n++, at.next(tile), ring.next()) {
        barrier_wait(barriers.ds_full + ring.stage, ring.phase);
        if (thread == 0 && loaded < tile.total && barrier_test(barriers.ds_full + done.stage, done.phase)) {
            copy_queries();
            done.next();
        }
        const u8* ds = room.ds + ring.stage * DS_BYTES;
        // Before the products: there are no registers to wait with their results.
        if (DETERMINISTIC) await_turn(Step(a, number(at)).turn, tile.turn(at.step));
        float* sums = Step(a, number(at)).dq + thread * 4;
        #pragma unroll
        for (int part = 0; part < PARTS; part++) {
            u64 keys = across_k(room.k + part * KEY_PART, KEY_PART);
            wgmma_fence();
            #pragma unroll
            for (int i = 0; i < 8; i++) wgmma<q_t, true>(dq, keys + 128 * i, along_k(ds + i / 4 * QUERY_PART) + 2 * (i % 4), i > 0);
            wgmma_commit();
            wgmma_wait<0>();
            arrived(dq);
            if (part == PARTS - 1) {
                __syncwarp();
                if (thread % 32 == 0) barrier_arrive(barriers.ds_empty + ring.stage);
            }
            #pragma unroll
            for (int c = 0; c < QUERIES / 8; c++) {
                add_to_memory(sums + (part * (QUERIES / 8) + c) * 512, dq[4 * c], dq[4 * c + 1], dq[4 * c + 2], dq[4 * c + 3]);
            }
        }
        if (DETERMINISTIC) end_turn(Step(a, number(at)).turn);
    }
}

// ---- Keys ----------------------------------------------------------------------------------------------------------

// Four 8x8 matrices, transposed, into shared memory; see stmatrix4.
DEVICE void stmatrix4_trans(void* row, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(shared_address(row)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Weights of pairs that are not seen become zero. x is p^T: the warpgroup's keys from `key` on, queries from `query` on.
DEVICE void mask(float (&x)[QUERIES / 2], const Sequence& seq, int key, int query) {
    int high = key + 63 - query - seq.shift(), low = key - (query + QUERIES - 1) - seq.shift();
    bool edge = (BOUND_HIGH && high > DIFF_HIGH) || (BOUND_LOW && low < DIFF_LOW) || key + 64 > seq.keys;
    if (!edge) return;
    int lane = threadIdx.x % 32;
    key += threadIdx.x / 32 % 4 * 16 + lane / 4;
    int diff = key - (query + lane % 4 * 2) - seq.shift();
    #pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        int r = i / 2 % 2 * 8, c = i / 4 * 8 + i % 2, here = diff + r - c;
        bool seen = (!BOUND_LOW || here >= DIFF_LOW) && (!BOUND_HIGH || here <= DIFF_HIGH) && key + r < seq.keys;
        if (!seen) x[i] = 0.0f;
    }
}

// The warpgroup's sums, times `by`, to its 64 keys of a tensor, by way of its own rows of `room`.
DEVICE void write_keys(const float (&sums)[HEAD / 2], float by, u8* room, const TensorMap& map, int half, const Tile& tile) {
    int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    u8* row = room + (warp * 16 + lane % 16) * 128;
    #pragma unroll
    for (int t = 0; t < HEAD / 16; t++) {
        u32 pairs[4];
        #pragma unroll
        for (int e = 0; e < 4; e++) pairs[e] = rounded_pair(sums[8 * t + 2 * e] * by, sums[8 * t + 2 * e + 1] * by, dk_t{});
        int chunk = (2 * t + lane / 16) % 8 ^ lane % 8;
        stmatrix4(row + t / 4 * KEY_PART + chunk * 16, pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    fence_for_copies();
    named_barrier(half + 1, 128);
    if (thread > 0) return;
    #pragma unroll
    for (int i = 0; i < PARTS; i++) tma_store(map, room + i * KEY_PART, 64 * i, tile.first + half * 64, tile.kv_head, tile.b);
    tma_commit();
}

DEVICE void key_side(const Maps& maps, const Room& room, Barriers& barriers, const Tile& tile, int half) {
    int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, key = tile.first + half * 64;
    u8 *k = room.k + half * 64 * 128, *v = room.v + half * 64 * 128, *my_ds = room.ds + half * QUERY_PART;
    u8* put = my_ds + (lane / 16 * 8 + lane % 8) * 128 + ((warp * 2 + lane / 8 % 2) ^ lane % 8) * 16;
    float scale = (float)(logit_scale(D) * LOG2_E);
    float dk[HEAD / 2], dv[HEAD / 2], x[QUERIES / 2]; // x: logits and p, then dp, of keys by queries
    #pragma unroll
    for (int i = 0; i < HEAD / 2; i++) dk[i] = dv[i] = 0.0f;

    // Behind the columns of the head, one product more adds stats of each query.
    auto keys_by_queries = [&](const u8* keys, const u8* queries, const u8* which, const u8* stats) {
        #pragma unroll
        for (int i = 0; i < HEAD / 16; i++)
            wgmma<q_t>(x, along_k(keys + i / 4 * KEY_PART) + 2 * (i % 4), along_k(queries + i / 4 * QUERY_PART) + 2 * (i % 4), i > 0);
        wgmma<bf16>(x, same_for_all(which), stats_along_k(stats), 1);
    };
    // Weights, and when dv is done with them ds, of which dk is made: there are no registers for both. dk of a step is added during
    // the next one, under its exponentials; before the first step there is a ds of zeros.
    u32 w[QUERIES / 16][4];
    #pragma unroll
    for (int i = 0; i < QUERIES / 4; i++) w[i / 4][i % 4] = 0;
    auto add_dk = [&](const u8* q) {
        #pragma unroll
        for (int i = 0; i < QUERIES / 16; i++) wgmma_rs<q_t, true>(dk, w[i], across_k(q, QUERY_PART) + 128 * i, 1);
    };
    auto products_are_done = [&] {
        wgmma_wait<0>();
        #pragma unroll
        for (int i = 0; i < QUERIES / 4; i++) asm volatile("" : "+r"(w[i / 4][i % 4])::"memory"); // w may be written from here on
    };
    const u8* last_q = room.q;
    barrier_wait(&barriers.keys, 0);
    Ring<STAGES> ring{0, 0};
    Ring<DS_STAGES> ds_ring{0, 1};
    Walk at{tile.start, 0};
    // Twice a step. The first turn of all is given, and the last is not passed on. Without turns (or a __syncwarp in their place),
    // compilers find too few registers and serialise the products.
    auto await_other = [&](bool first) {
        if (half == 1 || !first) named_barrier(4 + half, 256);
    };
    auto let_other = [&](bool last) {
        if (half == 0 || !last) named_arrive(5 - half, 256);
    };
    for (int n = 0; n < tile.total; n++, at.next(tile), ring.next(), ds_ring.next()) {
        u8 *q = room.q + ring.stage * QUERY_BYTES, *dout = room.dout + ring.stage * QUERY_BYTES;
        const u8* stats = room.stats + ring.stage * QUERIES * 16;
        barrier_wait(barriers.full + ring.stage, ring.phase);
        await_other(n == 0);
        wgmma_fence();
        keys_by_queries(k, q, room.of_lse, stats);
        wgmma_commit();
        add_dk(last_q);
        wgmma_commit();
        let_other(false);
        wgmma_wait<1>(); // the logits are here
        arrived(x);
        #pragma unroll
        for (int i = 0; i < QUERIES / 2; i++) x[i] = power2(x[i] * scale);
        mask(x, tile.seq, key, at.step * QUERIES);
        products_are_done(); // dk of the last step
        #pragma unroll
        for (int i = 0; i < QUERIES / 4; i++) w[i / 4][i % 4] = rounded_pair(x[2 * i], x[2 * i + 1], q_t{});
        await_other(false);
        wgmma_fence();
        keys_by_queries(v, dout, room.of_delta, stats);
        wgmma_commit();
        #pragma unroll
        for (int i = 0; i < QUERIES / 16; i++) wgmma_rs<q_t, true>(dv, w[i], across_k(dout, QUERY_PART) + 128 * i, 1);
        wgmma_commit();
        let_other(n + 1 == tile.total);
        wgmma_wait<1>(); // dp - delta is here
        arrived(x);
        u32 ds[QUERIES / 4];
        #pragma unroll
        for (int i = 0; i < QUERIES / 4; i++) {
            Vec<float, 2> p = both(w[i / 4][i % 4], q_t{});
            ds[i] = rounded_pair(p.v[0] * x[2 * i], p.v[1] * x[2 * i + 1], q_t{});
        }
        products_are_done(); // dv
        #pragma unroll
        for (int i = 0; i < QUERIES / 4; i++) w[i / 4][i % 4] = ds[i];
        barrier_wait(barriers.ds_empty + ds_ring.stage, ds_ring.phase);
        u8* to = put + ds_ring.stage * DS_BYTES;
        #pragma unroll
        for (int i = 0; i < QUERIES / 16; i++) stmatrix4_trans(to + i * 2048, w[i][0], w[i][1], w[i][2], w[i][3]);
        fence_for_copies();
        __syncwarp();
        if (lane == 0) barrier_arrive(barriers.ds_full + ds_ring.stage);
        last_q = q;
    }
    if (tile.total > 0) {
        wgmma_fence();
        add_dk(last_q);
        wgmma_commit();
    }
    arrived(dv);
    named_barrier(half + 1, 128); // no warp's products read these rows of v any more
    write_keys(dv, 1.0f / GAIN, v, maps.dv, half, tile);
    wgmma_wait<0>();
    arrived(dk);
    if (thread == 0) tma_wait_read<0>();
    named_barrier(half + 1, 128);
    write_keys(dk, (float)logit_scale(D) / GAIN, v, maps.dk, half, tile);
    if (thread == 0) tma_wait<0>();
}
