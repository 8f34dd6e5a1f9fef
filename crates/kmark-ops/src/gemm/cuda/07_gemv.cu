// For up to 4 rows of a: b goes from memory straight into the registers of tensor cores. A multiprocessor has a run of b's columns and all
// of a; its warps share k, and their sums meet in shared memory: no copies to set up, no cluster to wait for.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16 layout=nt
// kmark: require m<=4&&k%8==0&&a.pitch%8==0&&b.pitch%8==0&&!memory.unaligned
// Columns are dealt out by eights. A warp takes PIECES times 64 of k of an eight at a time, and has AHEAD of these under way: of all warps
// 128 KB, for which there are just enough registers. By 128 of k (256 bytes of each column) an H200 reads faster than by 64.
// kmark: let WARPS = 16
// kmark: let AHEAD = 4
// kmark: let PIECES = 2
// kmark: let EIGHTS = ceil(n,8)
// kmark: let BLOCKS = min(sms,EIGHTS)
// kmark: let MOST = ceil(EIGHTS,BLOCKS)
// kmark: let ROUND = WARPS*PIECES*64
// kmark: let ROUNDS = ceil(k,ROUND)
// kmark: let A_LINE = ROUNDS*ROUND*2+64
// kmark: let SUMS = WARPS*m*MOST*32
// kmark: require m*A_LINE+SUMS<=max_shared-2048
// kmark: let A_PITCH = a.pitch
// kmark: let B_PITCH = b.pitch
// kmark: constants m,n,k
// kmark: kernel gemm_gemv grid=BLOCKS block=32*WARPS shared=m*A_LINE+SUMS
#include "mma.cuh"
#include "product.cuh"
#include "spans.cuh"

constexpr int COLS = MOST * 8, ROWS = M;
constexpr bool WHOLE = K == (i64)ROUNDS * ROUND;
// Runs of eight elements in a row of a, and how many of them a thread asks for before it asks for b.
constexpr int RUNS = ROUNDS * ROUND / 8, EARLY = ROWS * RUNS > 64 * WARPS ? 4 : ROWS * RUNS > 32 * WARPS ? 2 : 1;

KERNEL __launch_bounds__(32 * WARPS, 1) gemm_gemv(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) u8 shared[];
    float* sums = (float*)(shared + ROWS * A_LINE);
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, place = warp * PIECES * 64 + t * 8;
    const int first = (int)((u32)EIGHTS * blockIdx.x / BLOCKS), eights = (int)((u32)EIGHTS * (blockIdx.x + 1) / BLOCKS) - first;
    const int items = eights * ROUNDS;

    // A load takes 128 bytes of each of four columns, lanes with even g the first half, those with odd g the second. All places along k of
    // an eight come before the next eight.
    const int mine = place + g % 2 * 32;
    int round = 0, col = first * 8 + g / 2;
    const b_t* from = a.b.ptr + (i64)col * B_PITCH + mine;
    u32 under[AHEAD][PIECES][2][4];
    auto fetch = [&](u32 (&to)[PIECES][2][4]) {
        #pragma unroll
        for (int p = 0; p < PIECES; p++)
            #pragma unroll
            for (int four = 0; four < 2; four++) {
                bool there = (N % 8 == 0 || col + four * 4 < N) && (WHOLE || round * ROUND + mine + p * 64 < K);
                if (there) load16(to[p][four], from + four * 4 * B_PITCH + p * 64);
                else to[p][four][0] = to[p][four][1] = to[p][four][2] = to[p][four][3] = 0;
            }
        from += ROUND;
        if (++round == ROUNDS) round = 0, col += 8, from += 8 * B_PITCH - ROUNDS * ROUND;
    };

    // All of a, into shared memory. What a thread asks for first arrives while b is on its way.
    auto ask = [&](u32 (&w)[4], int i) {
        const int r = i / RUNS, at = i % RUNS * 8;
        if (i < ROWS * RUNS && (WHOLE || at < K)) load16(w, a.a.ptr + r * A_PITCH + at);
        else w[0] = w[1] = w[2] = w[3] = 0;
    };
    auto put = [&](const u32 (&w)[4], int i) {
        const int r = i / RUNS, at = i % RUNS * 8;
        if (i < ROWS * RUNS) *reinterpret_cast<uint4*>(shared + r * A_LINE + at * 2) = make_uint4(w[0], w[2], w[1], w[3]);
    };
    u32 early[EARLY][4];
    #pragma unroll
    for (int e = 0; e < EARLY; e++) ask(early[e], threadIdx.x + e * 32 * WARPS);
    #pragma unroll
    for (int s = 0; s < AHEAD; s++)
        if (s < items) fetch(under[s]);
    #pragma unroll
    for (int e = 0; e < EARLY; e++) put(early[e], threadIdx.x + e * 32 * WARPS);
    #pragma unroll 1
    for (int i = threadIdx.x + EARLY * 32 * WARPS; i < ROWS * RUNS; i += 32 * WARPS) {
        u32 w[4];
        ask(w, i);
        put(w, i);
    }
    __syncthreads();

    // A product takes a's rows twice, as rows 0 to 7 with elements 0, 1, 4 and 5 of a run and as rows 8 to 15 with the others, and two words
    // of b: the first two are right for the former (`low`), the last two for the latter (`high`). Of its eight columns those are right whose
    // half of 64 is that of a. So three quarters of the sums are nobody's, but no word has to be moved, and tensor cores have time.
    const u8* row = shared + min(g, ROWS - 1) * A_LINE + place * 2;
    int at = 0, eight = 0;
    float low[2][2][4] = {}, high[2][2][4] = {};
    #pragma unroll 1
    for (int i = 0; i < items; i += AHEAD) {
        #pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            if (i + s >= items) break;
            #pragma unroll
            for (int p = 0; p < PIECES; p++)
                #pragma unroll
                for (int half = 0; half < 2; half++) {
                    const uint4 q = *reinterpret_cast<const uint4*>(row + (at * ROUND + p * 64 + half * 32) * 2);
                    const u32 x[4] = {q.x, q.y, q.z, q.w};
                    #pragma unroll
                    for (int four = 0; four < 2; four++) {
                        const u32(&w)[4] = under[s][p][four];
                        mma(low[four][half], x, w[0], w[1], b_t{});
                        mma(high[four][half], x, w[2], w[3], b_t{});
                    }
                }
            if (i + s + AHEAD < items) fetch(under[s]);
            if (++at < ROUNDS) continue;
            // Lane (g, t) has of row g of a: column t of each four, its first half in the even columns of products, its second in the odd.
            #pragma unroll
            for (int four = 0; four < 2; four++) {
                float sum = low[four][0][0] + high[four][0][2] + low[four][1][1] + high[four][1][3];
                if (g < ROWS) sums[(warp * ROWS + g) * COLS + eight * 8 + four * 4 + t] = sum;
                #pragma unroll
                for (int n = 0; n < 8; n++) low[four][n / 4][n % 4] = high[four][n / 4][n % 4] = 0.0f;
            }
            at = 0, eight++;
        }
    }
    __syncthreads();
    #pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * COLS; i += 32 * WARPS) {
        const int r = i / COLS, c = first * 8 + i % COLS;
        if (i % COLS >= eights * 8 || c >= N) continue;
        float v = 0.0f;
        #pragma unroll
        for (int w = 0; w < WARPS; w++) v += sums[w * ROWS * COLS + i];
        if (BIAS) v += up(a.bias.ptr[c]);
        a.d.at(r, c) = down<d_t>(v);
    }
}
