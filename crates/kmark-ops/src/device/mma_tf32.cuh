// Tensor cores through mma.sync for f32, of which they read the upper 19 bits.
#pragma once
#include "mma.cuh"

#ifndef KMARK_EMULATE
// d[16x8] += a[16x8] * b[8x8] of f32, of which the upper 19 bits are multiplied. Lane l holds of a: rows l/4 and l/4+8 of
// column l%4, then of column l%4+4; of b: rows l%4 and l%4+4 of column l/4; of d as for other types.
DEVICE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, float) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
