// Runs of elements as 16-byte vectors of the memory they lie in, wherever they start, and loads and stores that leave
// the caches to others.
#pragma once
#include "pairs.cuh"

// ---- Bytes that are used once --------------------------------------------------------------------------------------

#ifndef KMARK_EMULATE
// Only of memory that the kernel does not write.
DEVICE void load16(u32 (&w)[4], const void* p) {
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p));
}
// The same, and L2 keeps it longer than what is stored meanwhile: stores then leave in longer runs. From half a gigabyte on
// that is 1 to 2 % on an H200; below it costs as much.
DEVICE void load16_lasting(u32 (&w)[4], const void* p) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
    u64 last;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p), "l"(last));
#else
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(p));
#endif
}
// What was computed from the words before this is not kept in registers for after it.
DEVICE void forget(u32 (&w)[4]) { asm volatile("" : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])); }
DEVICE void forget(u32 (&w)[2]) { asm volatile("" : "+r"(w[0]), "+r"(w[1])); }
DEVICE void forget(u32 (&w)[1]) { asm volatile("" : "+r"(w[0])); }
template <class T> DEVICE void forget(T& one) { asm volatile("" : "+h"(one.bits)); }
DEVICE void store16(void* p, const u32 (&w)[4]) {
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};"
                 ::"l"(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
#else
DEVICE void load16(u32 (&w)[4], const void* p) { memcpy(w, p, 16); }
DEVICE void load16_lasting(u32 (&w)[4], const void* p) { memcpy(w, p, 16); }
template <class W> DEVICE void forget(W&) {}
DEVICE void store16(void* p, const u32 (&w)[4]) { memcpy(p, w, 16); }
#endif

// V elements in the registers they fill: a Vec of small elements that waits in registers may take one for each.
template <class T, int V> struct alignas(V * sizeof(T)) Pack {
    u32 w[V * sizeof(T) / 4];
};
template <class T> struct Pack<T, 1> {
    T w;
};
template <class T, int V> DEVICE Vec<T, V> unpack(const Pack<T, V>& p) {
    Vec<T, V> v;
    if constexpr (V > 1 && sizeof(T) == 2) { // so that the upper half becomes a float with one instruction
#pragma unroll
        for (int i = 0; i < V; i++) v.v[i].bits = (u16)(p.w[i / 2] >> i % 2 * 16);
    } else {
        memcpy(&v, &p, sizeof v);
    }
    return v;
}
template <class T, int V> DEVICE Pack<T, V> pack(const Vec<T, V>& v) {
    Pack<T, V> p;
    memcpy(&p, &v, sizeof v);
    return p;
}

// v rounded, two at a time where two fit into a register.
template <class T, int V, class A> DEVICE Pack<T, V> round_all(const A (&v)[V]) {
    if constexpr (V > 1 && sizeof(T) == 2) {
        Pack<T, V> p;
#pragma unroll
        for (int i = 0; i < V / 2; i++) p.w[i] = rounded_pair(v[2 * i], v[2 * i + 1], T{});
        return p;
    } else {
        Vec<T, V> r;
#pragma unroll
        for (int i = 0; i < V; i++) r.v[i] = down<T>(v[i]);
        return pack(r);
    }
}

template <int V, class T> DEVICE Pack<T, V> load_pack(const T* from) { return *reinterpret_cast<const Pack<T, V>*>(from); }
template <int V, bool lasting = false, class T> DEVICE Pack<T, V> load_once(const T* from) {
    if constexpr (V * sizeof(T) == 16) {
        Pack<T, V> p;
        if constexpr (lasting) load16_lasting(p.w, from);
        else load16(p.w, from);
        return p;
    } else {
        return *reinterpret_cast<const Pack<T, V>*>(from);
    }
}
template <int V, class T> DEVICE void store_once(T* to, const Pack<T, V>& p) {
    if constexpr (V * sizeof(T) == 16) store16(to, p.w);
    else *reinterpret_cast<Pack<T, V>*>(to) = p;
}

// Elements N to V - 1, by pieces of N, 2 N, 4 N … elements.
template <int N, int V, class T> DEVICE void store_pieces(T* to, const Pack<T, V>& p) {
    if constexpr (N < V) {
        Pack<T, N> piece;
        if constexpr (N * sizeof(T) < 4) {
            u32 bits = p.w[0] >> 8 * N * sizeof(T);
            memcpy(&piece, &bits, sizeof piece);
        } else {
            memcpy(&piece, reinterpret_cast<const u8*>(&p) + N * sizeof(T), sizeof piece);
        }
        store_once<N>(to + N, piece);
        store_pieces<2 * N>(to, p);
    }
}

// ---- Rows that start one element behind a multiple of their vectors ------------------------------------------------

// Such a row, if it is whole vectors long, is turned by one: its first vector begins one element before it and has the row's last
// element there. All vectors are then read and stored whole, but for the first.
template <class T, int V> DEVICE void put_first(Pack<T, V>& p, T last) {
    if constexpr (V > 1 && sizeof(T) < 4) {
        constexpr u32 mask = (1u << 8 * sizeof(T)) - 1;
        p.w[0] = (p.w[0] & ~mask) | (u32)last.bits;
    } else {
        memcpy(&p, &last, sizeof last);
    }
}
// V elements that lie one behind a multiple of their size.
template <int V, bool lasting = false, class T> DEVICE Pack<T, V> load_behind(const T* from) {
    Pack<T, V> p = load_once<V, lasting>(from - 1);
    u32 last = 0;
    memcpy(&last, from + V - 1, sizeof(T));
#pragma unroll
    for (int i = 0; i < V * (int)sizeof(T) / 4; i++) {
        u32 next = (i + 1) * 4 < V * (int)sizeof(T) ? p.w[i + 1] : last;
        p.w[i] = sizeof(T) < 4 ? p.w[i] >> 8 * sizeof(T) | next << (32 - 8 * sizeof(T)) % 32 : next;
    }
    return p;
}
// The first vector of a row of n elements.
template <int V, class T> DEVICE void store_first(T* row, int n, const Pack<T, V>& p) {
    store_pieces<1>(row - 1, p); // they lie at multiples of their size
    T last;
    memcpy(&last, &p, sizeof last);
    row[n - 1] = last;
}

// All of x is asked for before anything is computed from it. Left alone, the compiler saves registers: it loads some
// only when others have arrived, which takes twice as long. So each word gets a zero that seems to come from all of x.
template <class T, int V, int U, int IN> DEVICE void loads_first(Pack<T, V> (&x)[U][IN]) {
    if constexpr (V > 1 && U * IN > 1) {
        u32 zero = 0;
#pragma unroll
        for (int i = 0; i < U * IN; i++) zero |= x[i / IN][i % IN].w[0];
        zero &= blockIdx.y; // the grid has one dimension, but the compiler does not know
#pragma unroll
        for (int k = 0; k < U; k++) {
#pragma unroll
            for (u32& w : x[k][0].w) w |= zero;
        }
    }
}

// ---- Spans ---------------------------------------------------------------------------------------------------------

// Elements of 16 bytes.
template <class T> constexpr int lanes = 16 / (int)sizeof(T);

template <class T> struct Bare { using type = T; };
template <class T> struct Bare<const T> { using type = T; };

// `n` elements as vectors of V, of which the first and the last may stick out: the first begins `lead` elements before
// the first element. Two spans with the same lead have the same elements in vector i. I holds any index of an element.
template <class T, int V = lanes<T>, class I = i64> struct Span {
    using E = typename Bare<T>::type;
    T* base;
    int lead;
    I end;      // lead + n
    I whole_to; // vectors below lie inside and at multiples of their size, except the first if there is a lead

    // Cut where memory is aligned.
    __device__ __forceinline__ Span(T* start, i64 n) : Span(start, n, (int)((u64)start / sizeof(T) % V)) {}
    // Cut as another span is.
    __device__ __forceinline__ Span(T* start, i64 n, int lead) : base(start - lead), lead(lead), end((I)(lead + n)) {
        whole_to = (u64)base % (V * sizeof(T)) == 0 ? end / V : 0;
    }
    __device__ __forceinline__ I vectors() const { return (end + V - 1) / V; }
    __device__ __forceinline__ bool whole(I i) const { return i >= (lead > 0) && i < whole_to; }
    __device__ __forceinline__ bool holds(I i, int j) const { return i * V + j >= lead && i * V + j < end; }

    // Vector i; `fill` where it sticks out.
    __device__ __forceinline__ Pack<E, V> get(I i, E fill) const {
        if (whole(i)) return load_once<V>(base + i * V);
        Pack<E, V> p;
#pragma unroll
        for (int j = 0; j < V; j++) {
            E e = holds(i, j) ? base[i * V + j] : fill;
            if constexpr (sizeof(E) >= 4) {
                memcpy(p.w + j * (sizeof(E) / 4), &e, sizeof e);
            } else {
                u32 bits = 0, at = j * sizeof(E) / 4, shift = j * 8 * sizeof(E) % 32;
                memcpy(&bits, &e, sizeof e);
                p.w[at] = shift == 0 ? bits : p.w[at] | bits << shift;
            }
        }
        return p;
    }
    __device__ __forceinline__ void put(I i, const Pack<E, V>& p) const {
        if (whole(i)) return store_once<V, E>(base + i * V, p);
        Vec<E, V> v = unpack(p);
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (holds(i, j)) base[i * V + j] = v.v[j];
        }
    }
    // Vectors i, i + step, …: all loads are under way before the first is waited for.
    template <int U> __device__ __forceinline__ void get(Pack<E, V> (&p)[U], I i, I step, E fill) const {
        if (i >= (lead > 0) && i + (U - 1) * step < whole_to) {
#pragma unroll
            for (int k = 0; k < U; k++) p[k] = load_once<V>(base + (i + k * step) * V);
        } else {
#pragma unroll
            for (int k = 0; k < U; k++) p[k] = get(i + k * step, fill);
        }
    }
    template <int U> __device__ __forceinline__ void put(const Pack<E, V> (&p)[U], I i, I step) const {
        if (i >= (lead > 0) && i + (U - 1) * step < whole_to) {
#pragma unroll
            for (int k = 0; k < U; k++) store_once<V, E>(base + (i + k * step) * V, p[k]);
        } else {
#pragma unroll
            for (int k = 0; k < U; k++) put(i + k * step, p[k]);
        }
    }
};
