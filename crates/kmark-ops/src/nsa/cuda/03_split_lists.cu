// Short lists and few tokens: a block for each list, whose warps take 16 keys in turn and meet at the end. All of a list is asked
// for as soon as its entries are known, or as much as finds room, so that it takes two trips to memory and not one for every
// 16 keys.
// kmark: only dtype=f16,bf16 memory=dense,strided
// kmark: constants hq,hkv,d
// kmark: let GROUP = hq/hkv
// kmark: let TILES = GROUP<=8?1:2
// kmark: let ROWS = 8*TILES
// kmark: let PAIRS = hkv*ceil(GROUP,ROWS)
// kmark: let SPANS = ceil(d,64)
// kmark: let LIST = selected*block/16
// kmark: let WARPS = LIST<=4?2:LIST<=16?4:8
// kmark: let EACH = ceil(LIST,WARPS)
// kmark: let SLOTS = WARPS/2*ROWS*SPANS*256
// kmark: let STAGES = min(EACH,max(1,(max_shared/3-2048)/(WARPS*SPANS*4096)))
// kmark: require d<=128&&d%8==0&&block%16==0&&EACH<=32&&b<=65535&&b*s<=2147483647/hq
// kmark: kernel nsa_lists grid=s*PAIRS,b block=WARPS*32 shared=max(WARPS*STAGES*SPANS*4096,SLOTS)
constexpr int Q = 1; // new tokens that share a list
#include "decode_rows.cuh"

constexpr int STAGE = 32 * PITCH; // bytes of 16 keys and values

// What a warp copies ahead: every WARPS-th of the list's tiles of 16 keys. Lane i knows the entry of tile i.
struct Feed {
    const Args& a;
    i64 first; // the sequence's row of k and v
    int keys, entry, tile;

    __device__ __forceinline__ Feed(const Args& args, int token, int pair) : a(args), tile(0) {
        const int head = pair / (int)(PAIRS / HKV), s = (int)a.s, place = place_of(threadIdx.x % 32);
        const i64 begin = (i64)blockIdx.y * s;
        first = begin * HKV + head, keys = CAUSAL ? token + 1 : s;
        entry = place < LIST * 16 ? a.blocks.at((begin + token) * HKV + head, place / (int)BLOCK) : s;
    }
    static __device__ __forceinline__ int place_of(int n) { return ((int)threadIdx.x / 32 + n * (int)WARPS) * 16; }
    // Where the warp's tile n begins; `keys` for an entry that is not used, or lies behind the token.
    __device__ __forceinline__ int key_of(int n) const {
        const i64 key = (i64)__shfl_sync(0xffffffffu, entry, n) * BLOCK + place_of(n) % (int)BLOCK;
        return key < keys ? (int)key : keys;
    }
    // Rows behind the last key become zeros: what lies there may be anything.
    __device__ __forceinline__ void copy(u8* to) {
        const int key = tile < EACH ? key_of(tile) : keys;
        if (key < keys) {
            const int lane = threadIdx.x % 32;
            const q_t *k = a.k.row(first + (i64)key * HKV), *v = a.v.row(first + (i64)key * HKV);
            const int k_step = (int)(HKV * a.k.pitch), v_step = (int)(HKV * a.v.pitch);
#pragma unroll 4 // more would keep as many addresses in registers
            for (int i = 0; i < (EIGHTS + 1) / 2; i++) {
                const int n = i * 32 + lane, row = n / EIGHTS, eight = n % EIGHTS;
                if (EIGHTS % 2 && row >= 16) continue;
                const bool valid = key + row < keys;
                copy_async16(to + key_at(row, eight), k + (valid ? row * k_step : 0) + eight * 8, valid);
                copy_async16(to + value_at(row, eight), v + (valid ? row * v_step : 0) + eight * 8, valid);
            }
        }
        tile++;
        copy_commit();
    }
};

KERNEL __launch_bounds__(WARPS * 32) nsa_lists(const __grid_constant__ Args a) {
    extern __shared__ __align__(128) u8 memory[];
    __shared__ float total[ROWS][2];
    const int thread = threadIdx.x;
    // The last tokens see most: they come first.
    const int pair = blockIdx.x % (u32)PAIRS, token = (int)a.s - 1 - (int)(blockIdx.x / (u32)PAIRS);
    u8* ring = memory + thread / 32 * STAGES * STAGE;
    Feed feed(a, token, pair);
    const Queries queries((int)(blockIdx.y * a.s) + token, pair, feed.keys);
    Rows<q_t> rows;
    rows.begin(a, queries); // before copies wait for entries: the compiler would put these loads off until keys have come
#pragma unroll 1
    for (int i = 0; i < STAGES; i++) feed.copy(ring + i * STAGE);
    const float factor = logit_factor(SCALE_AUTO ? 1.0 / sqrt((double)D) : SCALE, 0.0f);
#pragma unroll 1
    for (int n = 0, stage = 0; n < EACH; n++) {
        copy_wait<STAGES - 1>();
        __syncwarp(); // all lanes' copies are there
        const int key = feed.key_of(n);
        if (key < feed.keys) rows.step(ring + stage * STAGE, key, factor);
        __syncwarp(); // all lanes have read the stage
        feed.copy(ring + stage * STAGE);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    copy_wait<0>();
    float* slots = reinterpret_cast<float*>(memory); // no warp reads its ring any more when they meet
    meet(rows, total, slots);
    for (int i = thread; i < queries.rows * (D / 4); i += WARPS * 32) {
        const int r = i / (D / 4), col = i % (D / 4) * 4;
        Vec<float, 4> all = four_of(slots, r, col);
        const float inverse = total[r][1] > 0.0f ? inverse_fast(total[r][1]) : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; e++) all.v[e] *= inverse;
        put_four(a, queries.row(r), col, all);
    }
    if (thread < queries.rows) put_lse(a, queries.row(thread), total[thread][0], total[thread][1]);
}
