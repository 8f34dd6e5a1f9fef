// The weights of Hopper's attention, by one warp and plain sums, so that they can be tried where there are no such tensor cores:
// 16 queries, blocks of BN keys from the last to the first.
// kmark: only dtype=f16,bf16
// kmark: constants d
// kmark: let BN = 32
// kmark: kernel by_weights grid=ceil(sq,16)*hq*b block=32
#include "attention_weights.cuh"

constexpr bool HEADS_FIRST = LAYOUT == LAYOUT_bhsd;

KERNEL by_weights(const __grid_constant__ Args a) {
    __shared__ float weights[16][BN], rescale[16], totals[16];
    int tiles = ((int)a.sq + 15) / 16, first = (int)blockIdx.x % tiles * 16, lane = threadIdx.x, row = lane / 4;
    i64 head = blockIdx.x / tiles % a.hq, b = blockIdx.x / tiles / a.hq, kv_head = head / (a.hq / a.hkv);
    Sequence seq{(int)a.sq, (int)a.sk};
    Head<const q_t> q = dense_head(a.q, HEADS_FIRST, b, a.hq, a.sq, head);
    Head<const k_t> k = dense_head(a.k, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Head<const v_t> v = dense_head(a.v, HEADS_FIRST, b, a.hkv, a.sk, kv_head);
    Head<o_t> to = dense_out(a.o, HEADS_FIRST, b, a.hq, a.sq, head);
    float o[16][(D + 31) / 32] = {}, logits[BN / 2], by[2], scale = (float)(logit_scale(D) * LOG2_E);
    RowPair rows;
    rows.clear();
    for (int key = ((int)a.sk - 1) / BN * BN; key >= 0; key -= BN) {
        bool all = true;
        auto multiply = [&] {
            for (int n = 0; n < BN / 2; n++) {
                int i = first + row + n / 2 % 2 * 8, j = key + n / 4 * 8 + lane % 4 * 2 + n % 2;
                bool seen = i >= a.sq || seq.sees(i, j);
                float sum = 0.0f;
                for (int x = 0; x < D && i < a.sq && seen; x++) sum = fmaf(to_float(q.row(i)[x]), to_float(k.row(j)[x]), sum);
                logits[n] = seen ? sum : (float)-infinity();
                all = all && seen;
            }
        };
        multiply();
        bool quick = __all_sync(~0u, all) && key + BN < (int)a.sk && rows.meet_quickly(logits, by, scale, 0);
        if (!quick) {
            multiply();
            rows.meet(logits, by, scale);
        }
        for (int n = 0; n < BN / 2; n++) weights[row + n / 2 % 2 * 8][n / 4 * 8 + lane % 4 * 2 + n % 2] = to_float(down<q_t>(logits[n]));
        for (int h = 0; h < 2; h++) rescale[row + 8 * h] = by[h];
        __syncwarp();
        for (int i = 0; i < 16; i++) {
            for (int x = lane; x < D; x += 32) {
                float sum = o[i][x / 32] * rescale[i];
                for (int j = 0; j < BN && key + j < a.sk; j++) sum = fmaf(weights[i][j], to_float(v.row(key + j)[x]), sum);
                o[i][x / 32] = sum;
            }
        }
        __syncwarp();
    }
    for (int h = 0; h < 2; h++) {
        float total = rows.total[h];
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        totals[row + 8 * h] = total;
        int i = first + row + 8 * h;
        if (LSE && lane % 4 == 0 && i < a.sq) a.lse.row(b * a.hq + head)[i] = (float)LN_2 * (rows.base[h] + log2f(total));
    }
    __syncwarp();
    for (int i = 0; i < 16 && first + i < a.sq; i++) {
        for (int x = lane; x < D; x += 32) to.row(first + i)[x] = down<o_t>(totals[i] > 0.0f ? o[i][x / 32] / totals[i] : 0.0f);
    }
}
