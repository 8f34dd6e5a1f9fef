// Two warpgroups on Hopper's tensor cores that alternate: each computes the weights of every other block of 64 keys, and half
// of the output's columns from the weights of all. Blocks stay and take equal shares of all keys; two of them, with 64 query rows
// each, may read the cache together.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16
// kmark: require rank==512 && rope==64 && (page%64==0||page==32||page==16||page==8)
// kmark: let TILES = ceil(h*q,64)
// kmark: let PARTS = max(1,sms/TILES)
// kmark: let BOX = min(page,64)
// kmark: let OVERHEAD = 4
// kmark: let LEAST = 1
// kmark: let PAIR = TILES%2==0?2:1
// kmark: let AHEAD = PAIR==2?2:0
// kmark: map q = q dims=64,h*q,9,b strides=q.pitch,64,q.pitch*h*q box=64,64,1,1 swizzle=128
// kmark: map latent = cache dims=64,page,9,cache.rows/page strides=cache.pitch,64,cache.pitch*page box=64,BOX,page>=64?2:1,1 swizzle=128
// kmark: map rope = cache dims=64,page,9,cache.rows/page strides=cache.pitch,64,cache.pitch*page box=64,BOX,1,1 swizzle=128
// kmark: workspace ceil(PARTS*TILES*4,256)*256+PARTS*TILES*2*4*(64*512+128) zeroed
// kmark: kernel mla_wgmma grid=PARTS*TILES block=384 cluster=PAIR shared=28*8192+1024
#include "mla_pieces.cuh"

constexpr int BOXES = 64 / BOX;   // copies of rows for a block of keys
constexpr float PATIENCE = 8.0f;  // a maximum stays until it is exceeded by this: weights up to 2^8 are as exact as others
constexpr int COPIER = BOXES == 1 ? 40 : 56; // registers of who copies: many small pages need more
template <bool V> struct Bool { static constexpr bool value = V; };

// One warp copies. Lane i knows the page of box i of the next 32, and of 32 more.
DEVICE void produce(const Args& a, const Maps& maps, MlaShared& s, u8* q, u8* stages) {
    const int lane = threadIdx.x % 32, tile = tile_here(), rank = PAIR == 2 ? tile % 2 : 0;
    int pieces = 0, phases = 3; // bit i is the phase of stage i
    each_piece(a, s.plan, [&](const Piece& p) {
        if (p.keys == 0) return;
        // Boxes count from the piece's first. Those behind the last key lie on no page, and are read as zeros.
        auto page_of = [&](int box) {
            int key = p.first * 64 + box * BOX;
            return key < min(p.keys, p.end * 64) ? a.page_table.at(p.s, key / PAGE) : -1;
        };
        int now = page_of(lane), later = page_of(32 + lane);
        if (elected()) {
            barrier_wait(&s.q_empty, pieces & 1 ^ 1);
            barrier_expect(&s.q_full, 8 * TILE);
            for (int t = 0; t < 8; t++) tma_load(q + t * TILE, maps.q, &s.q_full, 0, tile * 64, t, p.s);
        }
        pieces++;
        for (int i = 0; i < p.end - p.first; i++) {
            const int stage = i & 1, at = i * BOXES % 32, row = PAGE > 64 ? (p.first + i) * 64 % (int)PAGE : 0;
            if (i > 0 && at == 0) now = later, later = page_of(i * BOXES + 32 + lane);
            u8* to = stages + stage * STAGE;
            int page[BOXES], ahead[BOXES];
            #pragma unroll
            for (int n = 0; n < BOXES; n++) {
                page[n] = __shfl_sync(~0u, now, at + n);
                int next = at + AHEAD * BOXES;
                ahead[n] = AHEAD ? __shfl_sync(~0u, next < 32 ? now : later, next % 32 + n) : 0;
            }
            if (elected()) {
                #pragma unroll
                for (int turn = 0; turn < 2; turn++) {
                    int half = stage ^ turn; // the stage's own warpgroup is done with its half first
                    #pragma unroll
                    for (int g = 0; g < 2; g++) {
                        barrier_wait(&s.empty[stage][half * 2 + g], phases >> stage & 1);
                        u64* full = &s.full[stage][half * 2 + g];
                        barrier_expect(full, 2 * TILE);
                        if (PAIR == 2 && g != rank) continue;
                        #pragma unroll
                        for (int t = half * 4 + g * 2, n = 0; n < BOXES; n++) {
                            copy_to_pair(to + t * TILE + n * BOX * 128, maps.latent, full, row, t, page[n]);
                            if (BOXES > 1) copy_to_pair(to + (t + 1) * TILE + n * BOX * 128, maps.latent, full, row, t + 1, page[n]);
                        }
                    }
                }
                u64* full = &s.full[stage][4];
                barrier_expect(full, TILE);
                if (PAIR == 1 || stage == rank) {
                    #pragma unroll
                    for (int n = 0; n < BOXES; n++) copy_to_pair(to + 8 * TILE + n * BOX * 128, maps.rope, full, row, 8, page[n]);
                }
                if constexpr (AHEAD > 0) {
                    const int next = PAGE > 64 ? (p.first + i + AHEAD) * 64 % (int)PAGE : 0;
                    if (ahead[0] >= 0) {
                        #pragma unroll
                        for (int n = 0; n < BOXES; n++) {
                            for (int t = rank * 2; t < 8; t += BOXES > 1 ? 1 : 2 * PAIR) fetch_ahead(maps.latent, next, t, ahead[n]);
                            if (PAIR == 1 || stage == rank) fetch_ahead(maps.rope, next, 8, ahead[n]);
                        }
                    }
                }
            }
            phases ^= 1 << stage;
        }
    });
}

// Logits of a block of keys, but for the positional tile. The warpgroup's own half of the columns is there first.
DEVICE void score(float (&d)[32], u64 q, u64 k, u64* full, int phase, int w) {
    wgmma_fence();
    #pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        int two = pair ^ w * 2;
        barrier_wait(full + two, phase);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            int at = two * 2 * (TILE >> 4) + i / 4 * (TILE >> 4) + i % 4 * 2;
            wgmma<q_t>(d, q + at, k + at, pair || i);
        }
    }
    wgmma_commit();
}

// The rest, with q in registers.
DEVICE void score_position(float (&d)[32], const u32 (&q)[4][4], u64 k, u64* full, int phase) {
    barrier_wait(full + 4, phase);
    #pragma unroll
    for (int i = 0; i < 4; i++) wgmma_rs<q_t>(d, q[i], k + 8 * (TILE >> 4) + i * 2, 1);
    wgmma_commit();
}

DEVICE void rescale(float (&o)[128], const float (&keep)[2]) {
    #pragma unroll
    for (int i = 0; i < 128; i++) o[i] *= keep[i / 2 % 2];
}

// Warpgroup w, with the weights of blocks w, w + 2, … and columns 256w and on of the output.
DEVICE void consume(const Args& a, MlaShared& s, u8* q, u8* stages, u8* weights, int w) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, row = warp * 16 + lane / 4;
    auto rows_of = [&](int tile) { return min((int)(a.h * Q) - tile * 64, 64); };
    u8 *own = stages + w * STAGE, *other = stages + (1 - w) * STAGE;
    const u64 of_q = along_k(q), of_own = along_k(own), of_weights = along_k(weights + (1 - w) * TILE);
    const u64 of_own_half = across_k(own + w * 4 * TILE, TILE), of_other_half = across_k(other + w * 4 * TILE, TILE);
    float o[128];
    int phases = 0; // bit 0: of the stage that this warpgroup scores; 1: of the other; 2: of q
    each_piece(a, s.plan, [&](const Piece& p) {
        if (p.keys == 0) {
            const int tile = tile_here(), rows = rows_of(tile);
            for (int r = warp; r < rows; r += 4) {
                store<8>((u16*)a.o.row(row_of(a, p.s, tile * 64 + r)) + w * 256 + lane * 8, Vec<u16, 8>{});
                if (w == 0 && lane == 0) put_lse(a, p.s, tile * 64 + r, lowest(), 0.0f);
            }
            return;
        }
        const int blocks = p.end - p.first;
        float top[2] = {lowest(), lowest()}, sum[2] = {0.0f, 0.0f};
        int add = 0; // whether o holds anything
        // Positions are aligned at the end: the last token sees the last key.
        const int q_tile = tile_here();
        int limit[2];
        #pragma unroll
        for (int r = 0; r < 2; r++) limit[r] = Q == 1 ? p.keys : p.keys - (int)(Q - 1) + (q_tile * 64 + row + 8 * r) / (int)a.h;

        u32 q_last[4][4]; // the positional columns of q, which both warpgroups keep in registers
        #pragma unroll
        for (int n = 0; n < 16; n++) {
            const int r = row + n % 2 * 8;
            const q_t* from = a.q.row(row_of(a, p.s, q_tile * 64 + r)) + 512 + n / 4 * 16 + n / 2 % 2 * 8 + lane % 4 * 2;
            q_last[n / 4][n % 4] = r < rows_of(q_tile) ? *(const u32*)from : 0;
        }
        barrier_wait(&s.q_full, phases >> 2);
        auto last_score = [&](bool yes) {
            if (yes && lane == 0) barrier_arrive(&s.q_empty);
        };
        last_score(blocks <= w);

        // Weights of rows behind the last key are zero, but what lies there may be infinite: zeros times that must be zero.
        auto clear = [&](u8* half, int i) {
            int valid = p.keys - (p.first + i) * 64;
            if (valid >= 64) return;
            for (int n = thread; n < (64 - valid) * 32; n += 128) store<4>((u32*)(half + n / 8 % 4 * TILE + (valid + n / 32) * 128 + n % 8 * 16), Vec<u32, 4>{});
            fence_for_copies();
            named_barrier(2 + w, 128);
        };
        // The other warpgroup's block i: its weights, times this one's columns.
        auto take_other = [&](int i, auto is_last) {
            barrier_wait(&s.weights[1 - w], phases >> 1 & 1);
            float keep[2];
            bool grew = false;
            #pragma unroll
            for (int r = 0; r < 2; r++) {
                float next = s.top[1 - w][row + 8 * r];
                keep[r] = next == top[r] ? 1.0f : exp2_fast(top[r] - next);
                grew |= next != top[r], sum[r] *= keep[r], top[r] = next;
            }
            if (__any_sync(~0u, grew)) rescale(o, keep);
            barrier_wait(&s.full[1 - w][w * 2], phases >> 1 & 1);
            barrier_wait(&s.full[1 - w][w * 2 + 1], phases >> 1 & 1);
            if constexpr (is_last.value) clear(other + w * 4 * TILE, i);
            wgmma_fence();
            #pragma unroll
            for (int n = 0; n < 8; n++) {
                const int g = n / 4, k = n % 4;
                wgmma<q_t, false, true>((float(&)[64])o[g * 64], of_weights + k * 2, of_other_half + g * 2 * (TILE >> 4) + k * 128, add || k);
            }
            wgmma_commit();
            add = 1, phases ^= 2;
        };
        auto step = [&](int i, auto is_first) {
            float d[32];
            // What the other warpgroup is done with comes between, so that its stage is free soon, but not first: the weights
            // may not be there yet.
            score(d, of_q, of_own, s.full[w], phases & 1, w);
            if constexpr (!is_first.value) take_other(i - 1, Bool<false>{});
            score_position(d, q_last, of_own, s.full[w], phases & 1);
            if constexpr (!is_first.value) {
                wgmma_wait<1>();
                release<2>(&s.empty[1 - w][w * 2]);
            }
            wgmma_wait<0>();
            last_score(i + 2 >= blocks);

            const int key = (p.first + i) * 64;
            if (key + 64 > p.keys - (int)(Q - 1)) {
                #pragma unroll
                for (int n = 0; n < 32; n++) {
                    if (key + n / 4 * 8 + lane % 4 * 2 + n % 2 >= limit[n / 2 % 2]) d[n] = lowest();
                }
            }
            float keep[2], base[2];
            bool grew = false;
            #pragma unroll
            for (int r = 0; r < 2; r++) {
                float high = fmaxf(d[2 * r], d[2 * r + 1]);
                #pragma unroll
                for (int n = 4; n < 32; n += 4) high = fmaxf(high, fmaxf(d[n + 2 * r], d[n + 2 * r + 1]));
                high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
                high = fmaxf(high, __shfl_xor_sync(~0u, high, 2)) * FACTOR;
                float next = high > top[r] + PATIENCE ? high : top[r];
                keep[r] = next == top[r] ? 1.0f : exp2_fast(top[r] - next);
                grew |= next != top[r], sum[r] *= keep[r], top[r] = next, base[r] = anchor(next);
            }
            #pragma unroll
            for (int n = 0; n < 32; n++) {
                d[n] = exp2_fast(fmaf(d[n], FACTOR, -base[n / 2 % 2]));
                sum[n / 2 % 2] += d[n];
            }
            // The other warpgroup is done with the weights before: this block's keys have come since it said so.
            u32 pairs[4][4];
            #pragma unroll
            for (int n = 0; n < 16; n++) pairs[n / 4][n % 4] = two<q_t>(d[2 * n], d[2 * n + 1]);
            #pragma unroll
            for (int k = 0; k < 4; k++)
                stmatrix4(weights + w * TILE + place_in_tile(warp * 16 + lane % 16, k * 2 + lane / 16), pairs[k][0], pairs[k][1], pairs[k][2], pairs[k][3]);
            if (lane % 4 == 0) s.top[w][row] = top[0], s.top[w][row + 8] = top[1];
            fence_for_copies();
            __syncwarp();
            if (lane == 0) barrier_arrive(&s.weights[w]);

            if (__any_sync(~0u, grew)) rescale(o, keep);
            if (i + 1 == blocks) clear(own + w * 4 * TILE, i);
            wgmma_fence();
            // This warpgroup's next keys start from here: the first two tiles are free before the others are done.
            #pragma unroll
            for (int g = 0; g < 2; g++) {
                #pragma unroll
                for (int k = 0; k < 4; k++) wgmma_rs<q_t, true>((float(&)[64])o[g * 64], pairs[k], of_own_half + g * 2 * (TILE >> 4) + k * 128, add || k);
                wgmma_commit();
            }
            add = 1, phases ^= 1;
            wgmma_wait<1>();
            release<1>(&s.empty[w][w * 2]);
            wgmma_wait<0>();
            release<1>(&s.empty[w][w * 2 + 1]);
        };
        int i = w;
        if (w == 0) step(0, Bool<true>{}), i = 2;
        for (; i < blocks; i += 2) step(i, Bool<false>{});
        if ((blocks - 1) % 2 != w) {
            take_other(blocks - 1, Bool<true>{});
            wgmma_wait<0>();
            release<2>(&s.empty[1 - w][w * 2]);
        }

        // Each warpgroup has added up the weights of its own blocks.
        float(&sums)[2][64] = s.sum[phases >> 2];
        phases ^= 4;
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
            sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
            if (lane % 4 == 0) sums[w][row + 8 * r] = sum[r];
        }
        both_groups();
        #pragma unroll
        for (int r = 0; r < 2; r++) sum[r] = sums[0][row + 8 * r] + sums[1][row + 8 * r];

        const int part = part_here(), tile = tile_here(), rows = rows_of(tile);
        const Sharers shared = sharers_of(s.plan, p, part);
        const int sharers = shared.count();
        const bool begins = part == shared.from;
        const int joins = shared.to - shared.joins + 1;
        const Meeting meeting{counter_of(a, shared.from, tile), (u32)(sharers > 2 ? sharers : 1), (u32)(sharers > 2 ? sharers + joins : 2)};
        if (sharers > 2 || sharers == 2 && begins) {
            put_part(part_at(a, part, begins, tile), rows, o, w, top, sum);
            part_done(meeting);
            if (sharers > 2 && part >= shared.joins) {
                await_parts(meeting);
                combine(a, p.s, shared, part, tile, rows, q, 28 * TILE); // the last piece of the part: nothing is on its way
                #pragma unroll
                for (int i = 0; i < 128; i++) o[i] = 0.0f; // so that its registers are free until here
            }
            return;
        }
        if (sharers == 2) {
            await_parts(meeting);
            add_part(part_at(a, shared.from, true, tile), rows, o, w, top, sum);
        }
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const float inverse = inverse_of(sum[r]);
            const bool there = row + 8 * r < rows;
            o_t* to = a.o.row(row_of(a, p.s, tile * 64 + row + 8 * r)) + w * 256 + lane % 4 * 8;
            #pragma unroll
            for (int n = 0; n < 32; n += 4) {
                u32 pairs[4];
                #pragma unroll
                for (int e = 0; e < 4; e++) pairs[e] = two<o_t>(o[(n + e) * 4 + 2 * r] * inverse, o[(n + e) * 4 + 2 * r + 1] * inverse);
                const Vec<u32, 4> group = whole_group(pairs);
                if (there) store<4>((u32*)(to + n * 8), group);
            }
            if (there && w == 0 && lane % 4 == 0) put_lse(a, p.s, tile * 64 + row + 8 * r, top[r], sum[r]);
        }
    });
}

KERNEL __launch_bounds__(MLA_THREADS, 1) mla_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    __shared__ MlaShared s;
    u8 *q = raw + (1024 - shared_address(raw) % 1024) % 1024, *stages = q + 8 * TILE, *weights = stages + 2 * STAGE;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 10; i++) barrier_init(&s.full[0][0] + i, 1);
        for (int i = 0; i < 8; i++) barrier_init(&s.empty[0][0] + i, 4 * PAIR);
        barrier_init(&s.weights[0], 4), barrier_init(&s.weights[1], 4), barrier_init(&s.q_full, 1), barrier_init(&s.q_empty, 8);
        barrier_fence_init();
        tma_prefetch(maps.q), tma_prefetch(maps.latent), tma_prefetch(maps.rope);
    }
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (threadIdx.x / 32 > 8) fetch_pages(a);
    if (threadIdx.x / 32 == 8) {
        Plan plan = plan_part(a);
        if (threadIdx.x % 32 == 0) s.plan = plan;
    }
    __syncthreads();
    if constexpr (PAIR == 2) cluster_meet();
    if (group == 2) {
        fewer_registers<COPIER>();
        if (threadIdx.x / 32 == 8) produce(a, maps, s, q, stages);
    } else {
        more_registers<252 - COPIER / 2>();
        consume(a, s, q, stages, weights, group);
    }
    if constexpr (PAIR == 2) cluster_meet(); // no block leaves while the other may still reach into it
}
