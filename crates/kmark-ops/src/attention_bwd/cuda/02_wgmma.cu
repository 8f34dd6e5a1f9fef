// The gradients of attention on Hopper's tensor cores: a block owns 128 keys and makes p and ds once for all five products.
// Two warpgroups keep dk and dv of 64 keys each; a third adds the block's part of dq to sums in memory.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16
// kmark: require d<=128 && d%8==0
// kmark: constants d
//
// Columns of a head, padded with zeros; queries that meet the keys at once, of which tiles of 128 keys are a multiple: registers would
// hold 80 for 128 columns, but masked tiles then compute 1 to 6 % more.
// kmark: let HEAD = d<=64?64:128
// kmark: let QUERIES = d<=64?128:64
// kmark: let STAGES = 3
// kmark: let STEPS = ceil(sq,QUERIES)
// kmark: let TILES = ceil(sk,128)
// kmark: let GROUP = hq/hkv
//
// Masked tiles differ in length. Those of TOGETHER heads take turns, the longest first: as many heads as the L2 cache holds
// queries of. The last heads, behind EARLY, have one turn, so that its tiles are two for each multiprocessor and the shortest
// come last: with fewer, most multiprocessors would wait for the longest, with more, the cache could not hold their queries. Tiles
// begin with the last queries, which most of them see (BACKWARD), and so read and add to the same ones at a time.
// Where every launch must leave the same bits, blocks add their parts of dq in turns. Blocks with masks come in the order
// of turns, the last keys first. Others begin with different queries, if all blocks of a head run at once.
// kmark: let MASKED = causal||window>0
// kmark: let ROTATES = deterministic&&!MASKED&&TILES<=sms
// kmark: let BACKWARD = MASKED&&!deterministic
// kmark: let TOGETHER = MASKED?max(1,min(16,l2/2/(sq*HEAD*8))):1
// kmark: let LAST = MASKED?min(hkv*b,ceil(2*sms,TILES)):0
// kmark: let EARLY = (hkv*b-LAST)/TOGETHER*TOGETHER
//
// From a row of a head to the next one, and to the same row of the next head.
// kmark: let ROW(HEADS,P) = layout.bshd?HEADS*P:P
// kmark: let HEAD_STEP(LEN,P) = layout.bshd?P:LEN*P
// kmark: map q = q box=64,QUERIES,1,1 swizzle=128 dims=d,sq,hq,b strides=ROW(hq,q.pitch),HEAD_STEP(sq,q.pitch),hq*sq*q.pitch
// kmark: map dout = dout box=64,QUERIES,1,1 swizzle=128 dims=d,sq,hq,b strides=ROW(hq,dout.pitch),HEAD_STEP(sq,dout.pitch),hq*sq*dout.pitch
// kmark: map k = k box=64,128,1,1 swizzle=128 dims=d,sk,hkv,b strides=ROW(hkv,k.pitch),HEAD_STEP(sk,k.pitch),hkv*sk*k.pitch
// kmark: map v = v box=64,128,1,1 swizzle=128 dims=d,sk,hkv,b strides=ROW(hkv,v.pitch),HEAD_STEP(sk,v.pitch),hkv*sk*v.pitch
// kmark: map dk = dk box=64,64,1,1 swizzle=128 dims=d,sk,hkv,b strides=ROW(hkv,dk.pitch),HEAD_STEP(sk,dk.pitch),hkv*sk*dk.pitch
// kmark: map dv = dv box=64,64,1,1 swizzle=128 dims=d,sk,hkv,b strides=ROW(hkv,dv.pitch),HEAD_STEP(sk,dv.pitch),hkv*sk*dv.pitch
// kmark: workspace STEPS*hq*b*(QUERIES*(HEAD+4)+deterministic)*4
// kmark: kernel query_stats grid=STEPS*hq*b block=256
// kmark: kernel gradients_wgmma grid=TILES*hkv*b block=384 shared=1024+512*HEAD+STAGES*QUERIES*(4*HEAD+16)+QUERIES*512+1024
// kmark: kernel round_dq grid=STEPS*hq*b block=256
#include "attention_bwd_wgmma.cuh"

// Half a number as three of 8 bits each, which add up to it.
DEVICE void put_stat(u16* to, float v) {
    v *= 0.5f;
    #pragma unroll
    for (int i = 0; i < 3; i++) {
        u32 part = rounded_pair(v, 0.0f, bf16{}) & 0xffff;
        to[i] = (u16)part, v -= float_of(part << 16);
    }
}

// What a block of 256 threads does for QUERIES queries of a head: dq starts from zero, and the stats are made: what is added to a
// logit so that, scaled, it is the weight's power of two, with the gain; and -delta = -sum(dout * o). Queries that are not there
// meet zeros, those that see nothing are masked: their lse must only be finite here.
KERNEL __launch_bounds__(256) query_stats(const __grid_constant__ Args a, const __grid_constant__ Maps) {
    Step step(a, blockIdx.x);
    int thread = threadIdx.x;
    #pragma unroll
    for (int i = 0; i < QUERIES * HEAD; i += 1024) store<4>(step.dq + i + thread * 4, Vec<float, 4>{});
    if (DETERMINISTIC && thread == 0) *step.turn = 0;
    constexpr int CHUNKS = HEAD / 8, ROWS = 256 / CHUNKS, PASSES = QUERIES / ROWS; // 16 bytes a thread, rows at a time
    Head<const o_t> o = dense_head(a.o, HEADS_FIRST, step.b, a.hq, a.sq, step.head);
    Head<const dout_t> dout = dense_head(a.dout, HEADS_FIRST, step.b, a.hq, a.sq, step.head);
    int column = thread % CHUNKS * 8;
    Vec<u32, 4> x[PASSES] = {}, y[PASSES] = {};
    #pragma unroll
    for (int n = 0; n < PASSES; n++) {
        int i = step.first + n * ROWS + thread / CHUNKS;
        if (i >= a.sq || column >= D) continue;
        x[n] = load<4>((const u32*)(o.row(i) + column)), y[n] = load<4>((const u32*)(dout.row(i) + column));
    }
    #pragma unroll
    for (int n = 0; n < PASSES; n++) {
        float delta = 0.0f;
        #pragma unroll
        for (int e = 0; e < 4; e++) {
            Vec<float, 2> of_o = both(x[n].v[e], o_t{}), of_dout = both(y[n].v[e], dout_t{});
            delta = fmaf(of_o.v[0], of_dout.v[0], fmaf(of_o.v[1], of_dout.v[1], delta));
        }
        #pragma unroll
        for (int lanes = 1; lanes < CHUNKS; lanes *= 2) delta += __shfl_xor_sync(~0u, delta, lanes);
        if (column == 0) put_stat(step.stats + (n * ROWS + thread / CHUNKS) * 8 + 3, -delta);
    }
    if (thread >= QUERIES) return;
    float lse = step.first + thread < a.sq ? a.lse.at(step.b * a.hq + step.head, step.first + thread) : (float)-infinity();
    float lacking = (GAIN_BITS - lse * (float)LOG2_E) / (float)(logit_scale(D) * LOG2_E);
    put_stat(step.stats + thread * 8, lse == (float)-infinity() ? -1e30f : lacking);
    step.stats[thread * 8 + 6] = step.stats[thread * 8 + 7] = 0;
}

KERNEL __launch_bounds__(384, 1) gradients_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    __shared__ Barriers barriers;
    Room room(raw);
    room.begin();
    if (threadIdx.x == 0) {
        barriers.init();
        tma_prefetch(maps.k), tma_prefetch(maps.q), tma_prefetch(maps.dout), tma_prefetch(maps.v);
        tma_prefetch(maps.dv), tma_prefetch(maps.dk);
    }
    __syncthreads();
    Tile tile(a);
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (group == 2) {
        fewer_registers<504 - 2 * KEY_REGISTERS>();
        query_side(a, maps, room, barriers, tile);
    } else {
        more_registers<KEY_REGISTERS>();
        key_side(maps, room, barriers, tile, group);
    }
}

// Sums of dq become dq, QUERIES rows by 256 threads. They lie as the threads of a warpgroup held dq^T: by 64 columns, then by
// 8 queries, then by threads, four each.
KERNEL __launch_bounds__(256) round_dq(const __grid_constant__ Args a, const __grid_constant__ Maps) {
    constexpr int PITCH32 = HEAD + 4; // no two lanes of a warp write to one bank
    __shared__ alignas(16) float rows[QUERIES * PITCH32];
    Step step(a, blockIdx.x);
    int thread = threadIdx.x;
    constexpr int LOADS = QUERIES * HEAD / 1024;
    Vec<float, 4> sums[LOADS];
    #pragma unroll
    for (int i = 0; i < LOADS; i++) sums[i] = load<4>(step.dq + (i * 256 + thread) * 4);
    #pragma unroll
    for (int i = 0; i < LOADS; i++) {
        int at = i * 256 + thread, part = at / 128, warp = at / 32 % 4, lane = at % 32;
        int column = part / (QUERIES / 8) * 64 + warp * 16 + lane / 4, query = part % (QUERIES / 8) * 8 + lane % 4 * 2;
        float* to = rows + query * PITCH32 + column;
        to[0] = sums[i].v[0], to[PITCH32] = sums[i].v[1], to[8] = sums[i].v[2], to[PITCH32 + 8] = sums[i].v[3];
    }
    __syncthreads();
    constexpr int CHUNKS = HEAD / 8, ROWS = 256 / CHUNKS;
    Head<dq_t> dq = dense_out(a.dq, HEADS_FIRST, step.b, a.hq, a.sq, step.head);
    int column = thread % CHUNKS * 8;
    float by = (float)logit_scale(D) / GAIN;
    #pragma unroll
    for (int n = thread / CHUNKS; n < QUERIES; n += ROWS) {
        if (step.first + n >= a.sq || column >= D) continue;
        Vec<float, 4> low = load<4>(rows + n * PITCH32 + column), high = load<4>(rows + n * PITCH32 + column + 4);
        Vec<u32, 4> out;
        #pragma unroll
        for (int e = 0; e < 2; e++) {
            out.v[e] = rounded_pair(low.v[2 * e] * by, low.v[2 * e + 1] * by, dq_t{});
            out.v[2 + e] = rounded_pair(high.v[2 * e] * by, high.v[2 * e + 1] * by, dq_t{});
        }
        store<4>((u32*)(dq.row(step.first + n) + column), out);
    }
}
