// A warp, and what its lanes do together.
#pragma once
#include "fiber.h"
#include "numbers.h"

struct Warp {
    unsigned live, ready, polls,
        arrived; // lanes not at their end, that can go on, that poll, that wait in a collective
    uint64_t word_in[32], word_out[32];
    void* row_in[32];
    unsigned wide_in[32][10], wide_out[32][4];

    // What the lanes of `group` do together, once all of them are there. False: it takes the whole warp.
    bool together(emu_Op op, unsigned group) {
        uint64_t votes = 0;
        for (unsigned left = group; left; left &= left - 1) {
            unsigned i = __builtin_ctz(left);
            word_out[i] = word_in[i];
            votes |= (word_in[i] & 1) << i;
        }
        switch (op) {
        case EMU_SYNC: return true;
        case EMU_SHUFFLE:
            for (unsigned i = 0; i < 32; i++) // what a missing lane gives is undefined
                if (!(live >> i & 1)) memset(&word_out[i], GARBAGE, 8);
            return true;
        case EMU_BALLOT:
            for (unsigned i = 0; i < 32; i++)
                if (group >> i & 1) word_out[i] = votes | (uint64_t)group << 32;
            return true;
        default: break;
        }
        if (group != ~0u) return false;
        if (op == EMU_MMA_F16 || op == EMU_MMA_BF16 || op == EMU_MMA_TF32)
            mma(format(op == EMU_MMA_TF32 ? "tf32" : op == EMU_MMA_BF16 ? "bf16" : "f16"));
        else if (op == EMU_HELD)
            for (unsigned i = 0; i < 32; i++) memcpy(wide_out[i], wide_in[i], 16);
        else
            matrices(op == EMU_STMATRIX || op == EMU_STMATRIX_TRANS,
                     op == EMU_LDMATRIX_TRANS || op == EMU_STMATRIX_TRANS);
        return true;
    }

private:
    // Four matrices of 8x8: `out` to memory, else from there.
    void matrices(bool out, bool transposed) {
        for (unsigned i = 0; i < 4; i++)
            for (unsigned lane = 0; lane < 32; lane++)
                for (unsigned j = 0; j < 2; j++) {
                    unsigned row = lane / 4, col = lane % 4 * 2 + j;
                    uint16_t* there = (uint16_t*)row_in[8 * i + (transposed ? col : row)] + (transposed ? row : col);
                    if (out)
                        *there = ((const uint16_t*)&wide_in[lane][i])[j];
                    else
                        ((uint16_t*)&wide_out[lane][i])[j] = *there;
                }
    }

    // The whole product at once, each sum in the order of k: 16 of it, or 8 of TF32, of which a word has one number.
    void mma(const Format& f) {
        float a[16][16] = {}, b[16][8] = {}, d[16][8];
        for (unsigned lane = 0; lane < 32; lane++) {
            const unsigned* in = wide_in[lane];
            unsigned g = lane / 4, c = lane % 4 * 2;
            for (unsigned i = 0; i < 6 && f.bits == 32; i++) {
                float v = float_of(in[4 + i] & ~0u << (23 - f.fraction));
                (i < 4 ? a[g + i % 2 * 8][c / 2 + i / 2 * 4] : b[c / 2 + i % 2 * 4][g]) = v;
            }
            for (unsigned j = 0; j < 2; j++) {
                d[g][c + j] = float_of(in[j]);
                d[g + 8][c + j] = float_of(in[2 + j]);
                if (f.bits == 32) continue;
                unsigned shift = 16 * j;
                a[g][c + j] = widen(in[4] >> shift & 0xffff, f);
                a[g + 8][c + j] = widen(in[5] >> shift & 0xffff, f);
                a[g][c + 8 + j] = widen(in[6] >> shift & 0xffff, f);
                a[g + 8][c + 8 + j] = widen(in[7] >> shift & 0xffff, f);
                b[c + j][g] = widen(in[8] >> shift & 0xffff, f);
                b[c + 8 + j][g] = widen(in[9] >> shift & 0xffff, f);
            }
        }
        for (int i = 0; i < 16; i++)
            for (int k = 0; k < 16; k++)
                for (int j = 0; j < 8; j++) d[i][j] += a[i][k] * b[k][j];
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned g = lane / 4, c = lane % 4 * 2;
            memcpy(&wide_out[lane][0], &d[g][c], 8);
            memcpy(&wide_out[lane][2], &d[g + 8][c], 8);
        }
    }
};
