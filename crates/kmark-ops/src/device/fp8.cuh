// Floats to 8-bit floats in fours, and the scales that make them fit.
#pragma once
#include "fast_exp.cuh"
#include "spans.cuh"

// v rounded to nearest even; what is beyond the largest becomes the largest.
template <class Q> DEVICE u32 f8_saturated(float v) {
    constexpr int fraction = Format<Q>::precision - 1, drop = 23 - fraction, min_exp = Format<Q>::min_exp;
    constexpr u32 magic_bits = (u32)(127 + 23 + min_exp - fraction) << 23, least = (u32)(127 + min_exp) << 23;
    u32 sign = bits_of(v) >> 24 & 0x80;
    float size = fminf(fabsf(v), (float)Format<Q>::max);
    u32 b = bits_of(size);
    // Below the normal numbers: a sum whose last place is the format's.
    if (b < least) return sign | (bits_of(size + float_of(magic_bits)) - magic_bits);
    b += (1u << (drop - 1)) - 1 + (b >> drop & 1);
    return sign | ((b >> drop) - ((u32)(126 + min_exp) << fraction));
}

// Four neighbours, the first in the lowest byte.
template <class Q> DEVICE u32 f8_quad(float a, float b, float c, float d) {
#if !defined(KMARK_EMULATE) && __CUDA_ARCH__ >= 890
    u16 low, high;
    if constexpr (is<Q, e4m3>) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    } else {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
    }
    return (u32)low | (u32)high << 16;
#else
    return f8_saturated<Q>(a) | f8_saturated<Q>(b) << 8 | f8_saturated<Q>(c) << 16 | f8_saturated<Q>(d) << 24;
#endif
}

// The smallest power of two that is not less than v, a normal positive number.
DEVICE double power_above(double v) {
    u64 fraction = (1ull << 52) - 1, below = bits_of(v) & ~fraction;
    return double_of(bits_of(v) == below ? below : below + fraction + 1);
}

struct Scale {
    float scale, inverse;
};

// Of a block whose largest magnitude is `amax`. The inverse is not made from the rounded scale: fewer roundings. A
// power of two comes from the bits of amax: the largest of both formats is 1.75 times one.
template <class Q, bool power> DEVICE Scale scale_of(float amax, double clamp) {
    if constexpr (power) {
        constexpr u32 largest = is<Q, e4m3> ? 8 : 15;
        u32 e = (bits_of(amax) >> 23) - largest + ((bits_of(amax) & 0x7fffff) > 0x600000);
        if ((double)amax < clamp) e = bits_of((float)power_above(clamp / Format<Q>::max)) >> 23;
        return Scale{float_of(e << 23), float_of((254 - e) << 23)};
    } else {
        float top = fmaxf(amax, (float)clamp);
        // largest / top by a reciprocal and what it leaves over, both scaled so that no top is too large for it.
        float t = top * (1.0f / 256.0f), l = (float)(Format<Q>::max / 256.0), y = inverse_fast(t), q = l * y;
        return Scale{top * (float)(1.0 / Format<Q>::max), fmaf(fmaf(-t, q, l), y, q)};
    }
}

// V elements at a multiple of their size, or one behind.
template <int V, bool behind, bool lasting, class T> DEVICE Pack<T, V> load_vector(const T* from) {
    if constexpr (behind) return load_behind<V, lasting>(from);
    else return load_once<V, lasting>(from);
}

// A vector of x as 8-bit floats.
template <class Q, int V, class T> DEVICE Pack<Q, V> quantised(const Pack<T, V>& packed, float inverse) {
    Vec<T, V> x = unpack(packed);
    Pack<Q, V> q;
#pragma unroll
    for (int j = 0; j < V; j += 4) {
        q.w[j / 4] = f8_quad<Q>(up(x.v[j]) * inverse, up(x.v[j + 1]) * inverse, up(x.v[j + 2]) * inverse,
                                up(x.v[j + 3]) * inverse);
    }
    return q;
}

template <int V, class T> DEVICE float largest_of(const Pack<T, V>& packed, float so_far) {
    Vec<T, V> x = unpack(packed);
#pragma unroll
    for (int j = 0; j < V; j++) so_far = fmaxf(so_far, fabsf(up(x.v[j])));
    return so_far;
}
