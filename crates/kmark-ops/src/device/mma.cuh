// Tensor cores through mma.sync, as every GPU since sm_80 has them, and the copies that feed them.
#pragma once
#include "kmark.cuh"

#ifndef KMARK_EMULATE

// Four (two) 8x8 matrices of 16-bit elements from shared memory: lane l gives the address of one row, and gets two
// neighbouring elements of row l/4 of each matrix.
DEVICE void ldmatrix4(u32 (&r)[4], const void* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEVICE void ldmatrix4_trans(u32 (&r)[4], const void* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// d[16x8] += a[16x16] * b[16x8], f32 sums. Lane l holds of a: rows l/4 and l/4+8, columns 2(l%4)+{0,1} and +8, as pairs
// {(row, col), (row+8, col), (row, col+8), (row+8, col+8)}; of b: rows 2(l%4)+{0,1} and +8 of column l/4; of d: rows
// l/4 and l/4+8, columns 2(l%4)+{0,1}.
DEVICE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes from global to shared memory without a register between; `valid` false writes zeros.
DEVICE void copy_async16(void* to, const void* from, bool valid = true) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `left` of the committed groups are under way.
template <int left> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"); }

#endif

// Two 16-bit elements in one register, the first in the low half.
template <class T> DEVICE u32 pair(T first, T second) { return (u32)first.bits | (u32)second.bits << 16; }

// Two 8-bit floats, the first in the low byte, as two f16, exactly.
#ifdef KMARK_EMULATE
template <class T> DEVICE u32 f16_pair(u32 two, T) {
    return pair(to_f16(f8_to_float<T>((u8)two)), to_f16(f8_to_float<T>((u8)(two >> 8))));
}
#elif __CUDA_ARCH__ >= 890
DEVICE u32 f16_pair(u32 two, e4m3) { u32 r; asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((u16)two)); return r; }
DEVICE u32 f16_pair(u32 two, e5m2) { u32 r; asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"((u16)two)); return r; }
#else
// The bits of e4m3 moved into place read as 1/256 of the value, subnormals included; only NaN has no such place.
DEVICE u32 f16_pair(u32 two, e4m3) {
    u32 r, moved = (two & 0x80) << 8 | (two & 0x7f) << 7 | (two & 0x8000) << 16 | (two & 0x7f00) << 15;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(moved), "r"(0x5c005c00));
    if ((two & 0x7f) == 0x7f) r |= 0x7e00;
    if ((two & 0x7f00) == 0x7f00) r |= 0x7e000000;
    return r;
}
// e5m2 is f16 without its low byte.
DEVICE u32 f16_pair(u32 two, e5m2) { return (two & 0xff) << 8 | (two & 0xff00) << 16; }
#endif
