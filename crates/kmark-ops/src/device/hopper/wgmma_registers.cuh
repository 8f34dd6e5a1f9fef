// Products whose left operand lies in registers: 64 rows of A, 16 of k at a time, by N columns of B in shared memory. a[] of a
// thread are pairs of neighbours in k: row 16*warp + lane/4, k 2*(lane%4); 8 rows below; the first row, 8 of k on; 8 rows below
// that. So the results of one product, d[8i] to d[8i+7] in pairs, are step i of the next one's A. 16-bit types only.
#pragma once
#include "hopper/wgmma.cuh"

#define KM_WGMMA_RS(N, TYPES, REGS, A0, A1, A2, A3, B, ADD, TB) \
    "{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPES \
    " {" REGS "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", add, 1, 1, %" #TB ";\n}"
// R is N / 2; A0 to TB are the numbers of the operands behind the R results.
#define KM_PRODUCT_RS(N, R, A0, A1, A2, A3, B, ADD, TB) \
    template <class T, bool ACROSS_B = false> DEVICE void wgmma_rs(float (&d)[R], const u32 (&a)[4], u64 b, int add) { \
        if constexpr (is<T, bf16>) \
            asm volatile(KM_WGMMA_RS(N, "bf16.bf16", KM_REGS##R, A0, A1, A2, A3, B, ADD, TB) : KM_OUTS##R : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(ACROSS_B)); \
        else \
            asm volatile(KM_WGMMA_RS(N, "f16.f16", KM_REGS##R, A0, A1, A2, A3, B, ADD, TB) : KM_OUTS##R : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(ACROSS_B)); \
    }
KM_PRODUCT_RS(16, 8, 8, 9, 10, 11, 12, 13, 14)
KM_PRODUCT_RS(32, 16, 16, 17, 18, 19, 20, 21, 22)
KM_PRODUCT_RS(48, 24, 24, 25, 26, 27, 28, 29, 30)
KM_PRODUCT_RS(64, 32, 32, 33, 34, 35, 36, 37, 38)
KM_PRODUCT_RS(80, 40, 40, 41, 42, 43, 44, 45, 46)
KM_PRODUCT_RS(96, 48, 48, 49, 50, 51, 52, 53, 54)
KM_PRODUCT_RS(112, 56, 56, 57, 58, 59, 60, 61, 62)
KM_PRODUCT_RS(128, 64, 64, 65, 66, 67, 68, 69, 70)
KM_PRODUCT_RS(144, 72, 72, 73, 74, 75, 76, 77, 78)
KM_PRODUCT_RS(160, 80, 80, 81, 82, 83, 84, 85, 86)
KM_PRODUCT_RS(176, 88, 88, 89, 90, 91, 92, 93, 94)
KM_PRODUCT_RS(192, 96, 96, 97, 98, 99, 100, 101, 102)
KM_PRODUCT_RS(208, 104, 104, 105, 106, 107, 108, 109, 110)
KM_PRODUCT_RS(224, 112, 112, 113, 114, 115, 116, 117, 118)
KM_PRODUCT_RS(240, 120, 120, 121, 122, 123, 124, 125, 126)
KM_PRODUCT_RS(256, 128, 128, 129, 130, 131, 132, 133, 134)
