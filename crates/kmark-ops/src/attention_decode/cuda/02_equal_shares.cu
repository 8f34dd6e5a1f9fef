// Blocks that stay take equal shares of all keys, whatever the lengths, and every warp keeps copies of its next keys and
// values under way. Warps take 16 keys in turn, each with its own ring in shared memory, which runs on into the next
// sequence while results are written; the last block to finish with a sequence puts its parts together, in the same launch.
// kmark: only dtype=bf16,f16 memory=dense,strided
// kmark: constants hq,hkv,d
// kmark: let GROUP = hq/hkv*q
// kmark: let TILES = GROUP<=8?1:2
// kmark: let ROWS = 8*TILES
// kmark: let PAIRS = hkv*ceil(GROUP,ROWS)
// kmark: let SPANS = ceil(d,64)
// kmark: let LARGE = max_shared>=200000&&d<=128
// kmark: tune WARPS = 8, 4 when WARPS==4||LARGE
// kmark: let BLOCKS = LARGE?8/WARPS*(d<=64&&TILES==1?2:1):1
// kmark: let SLOTS = WARPS/2*ROWS*SPANS*256
// kmark: let STAGES = min(4,(max_shared/BLOCKS-2048-SLOTS)/(WARPS*SPANS*4096))
// kmark: let PARTS = sms*BLOCKS
// kmark: let PART = ceil(ROWS*(d+2),32)*32
// kmark: let OVERHEAD = 4
// kmark: let LEAST = 16
// kmark: require d<=256 && d%8==0 && STAGES>=2
// kmark: workspace ceil(PARTS*4,256)*256+PARTS*2*PART*4 zeroed
// kmark: kernel decode_shares grid=PARTS block=WARPS*32 shared=WARPS*STAGES*SPANS*4096+SLOTS
#include "decode_pieces.cuh"
#include "decode_rows.cuh"

// What a warp copies ahead: its tiles of all pieces, in order.
struct Feed {
    const Args& a;
    Walk walk;
    Piece p;
    int warp, tile, page; // the next tile, and the page of its key lane % 16, looked up a tile ahead
    bool any;

    __device__ __forceinline__ Feed(const Args& args, const Walk& all, int w) : a(args), walk(all), warp(w) {
        p.end = tile = page = 0;
        seek();
    }
    __device__ __forceinline__ void seek() {
        any = true;
        while (tile >= p.end) {
            any = walk.next(p);
            if (!any) return;
            tile = p.first + warp;
        }
        const int key = min(tile * 16 + (int)threadIdx.x % 16, p.keys - 1);
        page = a.page_table.at(p.s, key / (int)PAGE);
    }
    // Rows behind the last key become zeros: what lies there may be anything.
    __device__ __forceinline__ void copy(u8* to) {
        if (any) {
            const int lane = threadIdx.x % 32, key = tile * 16, head = p.pair / (int)(PAIRS / HKV);
            constexpr bool WHOLE = PAGE % 16 == 0; // a tile lies on one page
            const i64 first = ((i64)page * PAGE + key % (int)PAGE) * HKV + head;
            const q_t *k = a.k_cache.row(first), *v = a.v_cache.row(first);
            const int k_step = (int)(HKV * a.k_cache.pitch), v_step = (int)(HKV * a.v_cache.pitch);
#pragma unroll
            for (int i = 0; i < (EIGHTS + 1) / 2; i++) {
                const int n = i * 32 + lane, row = n / EIGHTS, eight = n % EIGHTS;
                const q_t *from_k = k + row * k_step, *from_v = v + row * v_step;
                if constexpr (!WHOLE) {
                    const int own = __shfl_sync(0xffffffffu, page, row % 16);
                    const i64 at = ((i64)own * PAGE + (key + row) % (int)PAGE) * HKV + head;
                    from_k = a.k_cache.row(at), from_v = a.v_cache.row(at);
                }
                if (EIGHTS % 2 && row >= 16) continue;
                const bool valid = key + row < p.keys;
                copy_async16(to + key_at(row, eight), from_k + eight * 8, valid);
                copy_async16(to + value_at(row, eight), from_v + eight * 8, valid);
            }
            tile += WARPS;
            seek();
        }
        copy_commit();
    }
};

// The warps of a block meet, and then, if it has not seen all keys, blocks.
DEVICE void finish(const Args& a, const Piece& p, const Queries& queries, Rows<q_t>& rows, float* slots, int part) {
    __shared__ float total[ROWS][2];
    const int thread = threadIdx.x, warp = thread / 32;
    meet(rows, total, slots);
    const bool shared = p.sharers() > 1;
    float* to = part_at(a, part, part == p.from);
    for (int i = thread; i < queries.rows * (D / 4); i += WARPS * 32) {
        const int r = i / (D / 4), col = i % (D / 4) * 4;
        Vec<float, 4> all = four_of(slots, r, col);
        if (shared) {
            store<4>(to + r * D + col, all);
        } else {
            const float inverse = total[r][1] > 0.0f ? 1.0f / total[r][1] : 0.0f;
#pragma unroll
            for (int e = 0; e < 4; e++) all.v[e] *= inverse;
            put_four(a, queries.row(r), col, all);
        }
    }
    if (thread < queries.rows) {
        if (shared) store<2>(stats_at(to, thread), Vec<float, 2>{{total[thread][0], total[thread][1]}});
        else put_lse(a, queries.row(thread), total[thread][0], total[thread][1]);
    }
    if (!shared || !last_of(a, p)) return;
    for (int r = warp; r < queries.rows; r += WARPS) {
        const i64 row = queries.row(r);
        combine_row(a, p, r, [&](int col, const Vec<float, 4>& v) { put_four(a, row, col, v); },
                    [&](float top, float sum) { put_lse(a, row, top, sum); });
    }
}

KERNEL __launch_bounds__(WARPS * 32, BLOCKS) decode_shares(const __grid_constant__ Args a) {
    extern __shared__ __align__(128) u8 memory[];
    constexpr int STAGE = 32 * PITCH;
    const int warp = threadIdx.x / 32, part = blockIdx.x;
    u8* ring = memory + warp * STAGES * STAGE;
    float* slots = reinterpret_cast<float*>(memory + WARPS * STAGES * STAGE);
    const float factor = logit_factor(SCALE_AUTO ? 1.0 / sqrt((double)D) : SCALE, 0.0f);
    Walk walk(a, part);
    Feed feed(a, walk, warp);
    for (int i = 0; i < STAGES - 1; i++) feed.copy(ring + i * STAGE);

    Piece p;
    Rows<q_t> rows;
    int stage = 0;
    while (walk.next(p)) {
        const Queries queries(p.s, p.pair, p.keys);
        rows.begin(a, queries);
        for (int tile = p.first + warp; tile < p.end; tile += WARPS) {
            copy_wait<STAGES - 2>();
            __syncwarp(); // all lanes' copies are there, and the stage before has been read
            feed.copy(ring + (stage == 0 ? STAGES - 1 : stage - 1) * STAGE);
            rows.step(ring + stage * STAGE, tile * 16, factor);
            stage = stage == STAGES - 1 ? 0 : stage + 1;
        }
        finish(a, p, queries, rows, slots, part);
    }
}
