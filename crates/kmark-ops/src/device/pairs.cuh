// Two elements of 16 bits in one register, the first in the low half.
#pragma once
#include "kmark.cuh"

#ifndef KMARK_EMULATE
// Each rounded once.
DEVICE u32 rounded_pair(float first, float second, bf16) { u32 p; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(second), "f"(first)); return p; }
DEVICE u32 rounded_pair(float first, float second, f16) { u32 p; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(second), "f"(first)); return p; }
// The larger of the first ones, and of the second ones.
DEVICE u32 larger_pair(u32 a, u32 b, bf16) { u32 p; asm("max.bf16x2 %0, %1, %2;" : "=r"(p) : "r"(a), "r"(b)); return p; }
DEVICE u32 larger_pair(u32 a, u32 b, f16) { u32 p; asm("max.f16x2 %0, %1, %2;" : "=r"(p) : "r"(a), "r"(b)); return p; }
#else
template <class T> DEVICE u32 rounded_pair(float first, float second, T) {
    return down<T>(first).bits | (u32)down<T>(second).bits << 16;
}
template <class T> DEVICE u32 larger_pair(u32 a, u32 b, T) {
    auto larger = [](u16 a, u16 b) { return up(T{a}) > up(T{b}) ? a : b; };
    return larger((u16)a, (u16)b) | (u32)larger((u16)(a >> 16), (u16)(b >> 16)) << 16;
}
#endif
