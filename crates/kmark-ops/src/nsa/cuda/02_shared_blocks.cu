// Tokens side by side choose many of the same blocks, and a list read by itself is limited by what the L2 cache delivers. So
// the tokens of a thread block go over the blocks that any of them chose: a producer copies each once, into a ring in shared
// memory, and a warp joins in where its own tokens chose. A warp keeps 16 rows, the heads of one token or of several.
// kmark: arch sm_90a
// kmark: only dtype=f16,bf16
// kmark: constants d
// kmark: let GROUP = hq/hkv
// kmark: let TOKENS = max(1,16/GROUP)
// kmark: let PARTS = ceil(GROUP,16)
// kmark: let ALL = b*hkv*ceil(s,TOKENS)*PARTS
// kmark: let LARGE = ALL>=sms*16
// kmark: tune TEAM = 14, 10, 8, 6, 4 when d>64?TEAM!=8&&(LARGE?TEAM>4:TEAM<=6):TEAM==8||TEAM==4
// kmark: let PIECE = block%64==0&&(d<=64||TEAM==10)?64:block%32==0?32:16
// kmark: let PER_SM = d>64?(TEAM>6?1:2):TEAM==8?(d<=32&&PIECE<64?4:2):PIECE==64||GROUP<16&&!LARGE?3:4
// kmark: let STAGE = 2*ceil(d,64)*PIECE*128
// kmark: let LISTS = ceil(s,block)*(TEAM*2+2)
// kmark: let QUERIES = TEAM*16*(ceil(d,16)*16+8)*2
// kmark: let STAGES = min(24,(max_shared/PER_SM-QUERIES-LISTS-3*1024)/STAGE)
// kmark: require d<=128&&d%8==0&&block%16==0&&STAGES>=2&&ceil(s,block)<65536
// kmark: map k = k box=64,PIECE,1,1 dims=d,s,hkv,b strides=hkv*k.pitch,k.pitch,s*hkv*k.pitch swizzle=128
// kmark: map v = v box=64,PIECE,1,1 dims=d,s,hkv,b strides=hkv*v.pitch,v.pitch,s*hkv*v.pitch swizzle=128
// kmark: kernel nsa_shared grid=ceil(ceil(s,TOKENS)*PARTS,TEAM)*b*hkv block=TEAM*32+32 shared=STAGES*STAGE+QUERIES+LISTS+1024
constexpr int WINDOW = 0;
#include "attention_mma.cuh"
#include "hopper/tma_4d.cuh"

constexpr int ALL_THREADS = TEAM * 32 + 32, CHUNKS = ((int)D + 63) / 64, CHUNK_BYTES = PIECE * 128;
constexpr int PIECES = BLOCK / PIECE; // of a block

// 16 rows of a warp: GROUP heads of each of TOKENS tokens, or the part'th 16 heads of one.
struct Rows {
    int token, part, end;
    __device__ __forceinline__ Rows(int tile, int tokens) : token(tile / PARTS * TOKENS), part(tile % PARTS), end(tokens) {}
    __device__ __forceinline__ int nth(int r) const { return PARTS == 1 ? r / GROUP : 0; }
    __device__ __forceinline__ int head(int r) const { return PARTS == 1 ? r % GROUP : part * 16 + r; }
    __device__ __forceinline__ bool has(int r) const { return token + nth(r) < end && (PARTS == 1 ? r < TOKENS * GROUP : head(r) < GROUP); }
};

// Row `r` of 128 bytes, 16 bytes number `c` of it, as copies with swizzle=128 leave it.
DEVICE int swizzled(int r, int c) { return r * 128 + (c ^ r % 8) * 16; }

// The running softmax of two rows of a thread, 8 apart, and their sums.
struct State {
    static constexpr float LAG = 8.0f;
    float o[DP / 8][4], high[2], total[2];

    __device__ __forceinline__ State() {
        high[0] = high[1] = (float)-infinity(), total[0] = total[1] = 0.0f;
        #pragma unroll
        for (int n = 0; n < DP / 8; n++) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
    }

    // PIECE keys, of which the rows see the first limit[0] and limit[1].
    __device__ __forceinline__ void meet(const q_t* own, const u8* k, const u8* v, const int (&limit)[2], float scale) {
        int lane = threadIdx.x % 32;
        float s[PIECE / 8][4];
        #pragma unroll
        for (int n = 0; n < PIECE / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
        own += lane % 16 * PITCH + lane / 16 * 8;
        int row = lane % 8 + lane / 16 * 8;
        #pragma unroll
        for (int c = 0; c < DP; c += 16) {
            u32 q[4], keys[4];
            ldmatrix4(q, own + c);
            #pragma unroll
            for (int n = 0; n < PIECE; n += 16) {
                ldmatrix4(keys, k + c / 64 * CHUNK_BYTES + n * 128 + swizzled(row, c % 64 / 8 + lane / 8 % 2));
                mma(s[n / 8], q, keys[0], keys[1], q_t{});
                mma(s[n / 8 + 1], q, keys[2], keys[3], q_t{});
            }
        }
        if (__any_sync(~0u, min(limit[0], limit[1]) < PIECE)) {
            #pragma unroll
            for (int i = 0; i < PIECE / 2; i++)
                if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= limit[i / 2 % 2]) s[i / 4][i % 4] = (float)-infinity();
        }
        weigh(s, scale);
        row = lane % 16;
        #pragma unroll
        for (int n = 0; n < PIECE; n += 16) {
            const float(&low)[4] = s[n / 8], (&up)[4] = s[n / 8 + 1];
            u32 values[4], weights[4] = {rounded_pair(low[0], low[1], q_t{}), rounded_pair(low[2], low[3], q_t{}),
                                         rounded_pair(up[0], up[1], q_t{}), rounded_pair(up[2], up[3], q_t{})};
            #pragma unroll
            for (int c = 0; c < DP; c += 16) {
                ldmatrix4_trans(values, v + c / 64 * CHUNK_BYTES + n * 128 + swizzled(row, c % 64 / 8 + lane / 16));
                mma(o[c / 8], weights, values[0], values[1], q_t{});
                mma(o[c / 8 + 1], weights, values[2], values[3], q_t{});
            }
        }
    }

    // Products become weights 2^(logit - high). `high` lags behind the maximum by up to LAG, so that sums are seldom rescaled.
    __device__ __forceinline__ void weigh(float (&s)[PIECE / 8][4], float scale) {
        float by[2];
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = s[0][2 * h];
            #pragma unroll
            for (int n = 0; n < PIECE / 8; n++) top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale;
            float to = top > high[h] + LAG ? top : high[h];
            by[h] = to == high[h] ? 1.0f : power2(high[h] - to);
            high[h] = to;
        }
        if (__any_sync(~0u, by[0] != 1.0f || by[1] != 1.0f)) {
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                total[h] *= by[h];
                #pragma unroll
                for (int n = 0; n < DP / 8; n++) o[n][2 * h] *= by[h], o[n][2 * h + 1] *= by[h];
            }
        }
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            // A row that has seen nothing yet: all its products are minus infinity.
            float base = high[h] == (float)-infinity() ? 0.0f : high[h];
            #pragma unroll
            for (int n = 0; n < PIECE / 8; n++) {
                #pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) s[n][e] = power2(fmaf(s[n][e], scale, -base)), total[h] += s[n][e];
            }
        }
    }
};

// Which blocks the tiles of this thread block chose: 16 bits for each block and tile, one for each of its tokens; and a list of
// those that any chose, whose length is returned.
DEVICE int choose(const Args& a, u16* chosen, u16* list, int first, i64 batch, i64 head) {
    __shared__ int length;
    int blocks = (int)((a.s + BLOCK - 1) / BLOCK), lane = threadIdx.x % 32;
    u32* words = (u32*)chosen;
    for (int i = threadIdx.x; i < blocks * TEAM / 2; i += ALL_THREADS) words[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < TEAM * TOKENS * (int)SELECTED; i += ALL_THREADS) {
        int tile = i / (TOKENS * (int)SELECTED), nth = i / (int)SELECTED % TOKENS;
        i64 token = Rows(first + tile, (int)a.s).token + nth;
        if (token >= a.s) continue;
        i64 block = a.blocks.at((batch * a.s + token) * a.hkv + head, i % (int)SELECTED);
        // Unused places hold s, and some blocks may lie behind the token.
        if (block * BLOCK < (CAUSAL ? token + 1 : a.s)) atomicOr(words + (block * TEAM + tile) / 2, 1u << (tile % 2 * 16 + nth));
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        int n = 0;
        for (int from = 0; from < blocks; from += 32) {
            u32 any = 0;
            for (int w = 0; w < TEAM / 2; w++)
                if (from + lane < blocks) any |= words[(from + lane) * (TEAM / 2) + w];
            u32 vote = __ballot_sync(~0u, any != 0);
            if (any) list[n + __popc(vote & ((1u << lane) - 1))] = (u16)(from + lane);
            n += __popc(vote);
        }
        if (lane == 0) length = n;
    }
    __syncthreads();
    return length;
}

KERNEL __launch_bounds__(ALL_THREADS, PER_SM) nsa_shared(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    __shared__ u64 full[STAGES], empty[STAGES];
    u8* ring = raw + (1024 - shared_address(raw) % 1024) % 1024;
    q_t* queries = (q_t*)(ring + STAGES * STAGE);
    u16* chosen = (u16*)((u8*)queries + QUERIES);
    u16* list = chosen + (a.s + BLOCK - 1) / BLOCK * TEAM;
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, heads = (int)(a.b * a.hkv);
    // The last tokens see most: they come first.
    int first = (int)((gridDim.x - 1 - blockIdx.x) / heads) * TEAM, batch = blockIdx.x % heads / (int)a.hkv, head = blockIdx.x % (int)a.hkv;
    Rows rows(first + warp, (int)a.s);
    q_t* own = queries + warp * 16 * PITCH;
    auto row_of = [&](int r) { return ((i64)batch * a.s + rows.token + rows.nth(r)) * a.hq + head * GROUP + rows.head(r); };
    if (warp < TEAM) {
        for (int n = lane; n < 16 * (DP / 8); n += 32) {
            int r = n / (DP / 8), c = n % (DP / 8) * 8;
            bool there = rows.has(r) && c < D;
            copy_async16(own + r * PITCH + c, a.q.row(there ? row_of(r) : 0) + (there ? c : 0), there);
        }
        copy_commit();
    } else if (lane == 0) {
        tma_prefetch(maps.k), tma_prefetch(maps.v);
        for (int i = 0; i < STAGES; i++) barrier_init(full + i, 1), barrier_init(empty + i, TEAM);
        barrier_fence_init();
    }
    int steps = choose(a, chosen, list, first, batch, head) * PIECES;
    if (warp == TEAM) {
        Ring<STAGES> at{0, 1};
        bool one = elected();
        for (int i = 0; i < steps && one; i++, at.next()) {
            int key = list[i / PIECES] * BLOCK + i % PIECES * PIECE;
            u8* to = ring + at.stage * STAGE;
            barrier_wait(empty + at.stage, at.phase);
            barrier_expect(full + at.stage, STAGE);
            #pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                tma_load(to + c * CHUNK_BYTES, maps.k, full + at.stage, c * 64, key, head, batch);
                tma_load(to + (CHUNKS + c) * CHUNK_BYTES, maps.v, full + at.stage, c * 64, key, head, batch);
            }
        }
        return;
    }
    State state;
    float scale = (float)(logit_scale(D) * LOG2_E);
    int end[2], nth[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = lane / 4 + h * 8;
        nth[h] = rows.nth(r);
        end[h] = !rows.has(r) ? 0 : CAUSAL ? rows.token + nth[h] + 1 : (int)a.s;
    }
    copy_wait<0>();
    __syncwarp();
    Ring<STAGES> at{0, 0};
    #pragma unroll 1
    for (int i = 0; i < steps; i++, at.next()) {
        int block = list[i / PIECES], key = block * BLOCK + i % PIECES * PIECE;
        u32 mine = chosen[block * TEAM + warp];
        barrier_wait(full + at.stage, at.phase);
        if (mine) {
            int limit[2];
            #pragma unroll
            for (int h = 0; h < 2; h++) limit[h] = mine >> nth[h] & 1 ? end[h] - key : 0;
            const u8* k = ring + at.stage * STAGE;
            if (__any_sync(~0u, max(limit[0], limit[1]) > 0)) state.meet(own, k, k + CHUNKS * CHUNK_BYTES, limit, scale);
        }
        fence_for_copies();
        __syncwarp();
        if (lane == 0) barrier_arrive(empty + at.stage);
    }
    // The results go where the queries were, and from there in whole rows.
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = lane / 4 + h * 8;
        float total = state.total[h];
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        float by = total > 0.0f ? 1.0f / total : 0.0f;
        if constexpr (LSE) {
            float lse = total > 0.0f ? (float)LN_2 * (state.high[h] + log2f(total)) : (float)-infinity();
            if (lane % 4 == 0 && rows.has(r)) a.lse.at(row_of(r) / a.hq, row_of(r) % a.hq) = lse;
        }
        #pragma unroll
        for (int n = 0; n < DP / 8; n++)
            *(u32*)(own + r * PITCH + n * 8 + lane % 4 * 2) = rounded_pair(state.o[n][2 * h] * by, state.o[n][2 * h + 1] * by, q_t{});
    }
    __syncwarp();
    for (int n = lane; n < 16 * ((int)D / 8); n += 32) {
        int r = n / ((int)D / 8), c = n % ((int)D / 8) * 8;
        if (rows.has(r)) store<8>(a.o.row(row_of(r)) + c, load<8>(own + r * PITCH + c));
    }
}
