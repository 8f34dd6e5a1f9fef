// What the blocks of a launch tell each other through memory. A value travels in words whose other half is the number of the
// launch: who reads it sees by that whether it has come. So there is no barrier, no fence, and nothing to clear; a value takes
// one store and one load to get there. All blocks have to run at once, and the workspace to be zeroed when it is bound.
#pragma once
#include "rows.cuh"

#ifndef KMARK_EMULATE
DEVICE void put_word(u64* p, u64 v) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
DEVICE u64 get_word(const u64* p) { u64 v; asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v; }
#else
DEVICE void put_word(u64* p, u64 v) { *p = v; }
DEVICE u64 get_word(const u64* p) { return *p; }
#endif

template <class A> struct Told {
    static constexpr int count = sizeof(A) / 4;
    u64 words[count];
};

// Each block counts its launches in a word of its own, so that nobody else has to have read it. `begin` is the first thing that
// all threads do; thread 0 ends it, with a barrier of the block in between.
DEVICE u32 launch_begin(const u8* workspace) { return load_in_order<1>((const u32*)workspace + blockIdx.x).w + 1; }
DEVICE void launch_end(u8* workspace, u32 launch) {
    if (threadIdx.x == 0) ((u32*)workspace)[blockIdx.x] = launch;
}

template <class A> DEVICE void tell(Told<A>* to, A v, u32 launch) {
    u32 parts[Told<A>::count];
    memcpy(parts, &v, sizeof v);
#pragma unroll
    for (int i = 0; i < Told<A>::count; i++) put_word(to->words + i, (u64)launch << 32 | parts[i]);
}

// Waits for `count` values, which are all asked for at once.
template <int count, class A> DEVICE void hear(A (&v)[count], const Told<A>* const (&from)[count], u32 launch) {
    u32 parts[count][Told<A>::count], others;
    do {
        others = 0;
#pragma unroll
        for (int i = 0; i < count * Told<A>::count; i++) {
            u64 word = get_word(from[i / Told<A>::count]->words + i % Told<A>::count);
            parts[i / Told<A>::count][i % Told<A>::count] = (u32)word;
            others |= (u32)(word >> 32) ^ launch;
        }
    } while (others != 0);
#pragma unroll
    for (int i = 0; i < count; i++) memcpy(&v[i], parts[i], sizeof v[i]);
}

// A sum of `parts` values that `lanes` threads hear, each some of them, always the same and in the same order.
template <int parts, int lanes> struct ToldSum {
    static constexpr int each = (int)ceil_div(parts, lanes);
    DEVICE int part(int k) { return k * lanes + (int)threadIdx.x % lanes; }

    // Where this thread's parts stand, `pitch` apart. Who has none listens to the first.
    template <class A> DEVICE void ask(const Told<A>** from, const Told<A>* first, int pitch) {
#pragma unroll
        for (int k = 0; k < each; k++) from[k] = first + (part(k) < parts ? part(k) * pitch : 0);
    }
    template <class A> DEVICE A add(const A* heard) {
        A sum[1] = {0};
#pragma unroll
        for (int k = 0; k < each; k++) sum[0] += part(k) < parts ? heard[k] : 0;
        lanes_all<Add, lanes>(sum);
        return sum[0];
    }
};
