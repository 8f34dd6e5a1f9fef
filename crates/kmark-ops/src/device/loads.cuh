// Loads that stand where they are written, and loads of what nobody writes.
#pragma once
#include "spans.cuh"

// What no kernel writes. Such a load need not wait for the stores before it, which may be to the same place for all that
// the compiler knows.
template <int N, class E> DEVICE Vec<E, N> load_constant(const E* p) {
    Vec<E, N> v;
#ifdef KMARK_EMULATE
    v = load<N>(p);
#else
    if constexpr (sizeof v % 16 == 0) {
#pragma unroll
        for (int i = 0; i < (int)sizeof v / 16; i++) reinterpret_cast<uint4*>(&v)[i] = __ldg(reinterpret_cast<const uint4*>(p) + i);
    } else if constexpr (sizeof v == 8) {
        *reinterpret_cast<uint2*>(&v) = __ldg(reinterpret_cast<const uint2*>(p));
    } else if constexpr (sizeof v == 4) {
        *reinterpret_cast<u32*>(&v) = __ldg(reinterpret_cast<const u32*>(p));
    } else {
        *reinterpret_cast<u16*>(&v) = __ldg(reinterpret_cast<const u16*>(p));
    }
#endif
    return v;
}

// The same of 16-bit elements, at any place: by words, one more than they fill. There are two elements more behind them, and one
// before.
template <int N, class E> DEVICE Vec<E, N> load_constant_across(const E* p) {
#ifdef KMARK_EMULATE
    Vec<E, N> v;
    memcpy(&v, p, sizeof v);
    return v;
#else
    const u32* from = reinterpret_cast<const u32*>((u64)p / 4 * 4);
    u32 shift = (u32)(u64)p % 4 * 8, words[N / 2 + 1];
#pragma unroll
    for (int i = 0; i <= N / 2; i++) words[i] = __ldg(from + i);
    Pack<E, N> v;
#pragma unroll
    for (int i = 0; i < N / 2; i++) v.w[i] = __funnelshift_r(words[i], words[i + 1], shift);
    return unpack(v);
#endif
}

// A load that stands where it is written, before the others of its kind that follow. Any other the compiler may move to
// where its value is used, behind the sum of what was loaded with it: a launch on little data waits for memory twice then.
template <int N, class E> DEVICE Pack<E, N> load_in_order(const E* p) {
#ifndef KMARK_EMULATE
    Pack<E, N> v;
    constexpr int bytes = N * sizeof(E);
    if constexpr (bytes % 16 == 0) {
#pragma unroll
        for (int i = 0; i < bytes / 4; i += 4)
            asm volatile("ld.relaxed.cta.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v.w[i]), "=r"(v.w[i + 1]), "=r"(v.w[i + 2]), "=r"(v.w[i + 3]) : "l"((const u32*)p + i));
    } else if constexpr (bytes == 8) {
        u32 w[2];
        asm volatile("ld.relaxed.cta.global.v2.u32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p));
        memcpy(&v, w, 8);
    } else if constexpr (bytes == 4) {
        u32 w;
        asm volatile("ld.relaxed.cta.global.u32 %0, [%1];" : "=r"(w) : "l"(p));
        memcpy(&v, &w, 4);
    } else {
        u16 w;
        asm volatile("ld.relaxed.cta.global.u16 %0, [%1];" : "=h"(w) : "l"(p));
        memcpy(&v, &w, 2);
    }
    return v;
#else
    return load_pack<N>(p);
#endif
}

// How the loads of a row are made: as the compiler likes, in_order (above), or lasting in L2 (spans.cuh) and in order.
enum class Loads { any, in_order, lasting };
