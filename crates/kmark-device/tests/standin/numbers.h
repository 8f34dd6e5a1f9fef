// Small floating point formats.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <string>

#include "ptx.h"

inline float float_of(u32 bits) {
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
inline u32 bits_of(float v) {
    u32 bits;
    memcpy(&bits, &v, 4);
    return bits;
}
inline float reciprocal(float v) { return 1.0f / v; }
inline float root_reciprocal(float v) { return 1.0f / sqrtf(v); }

// Bits in all and of the fraction, bias of the exponent, whether the largest exponent stands for infinity, largest value. What is
// converted to 8 bits ends at the largest value.
struct Format {
    const char* name;
    int bits, fraction, bias;
    bool infinite, ends;
    float largest;
};
inline const Format& format(const std::string& name) {
    static const Format ALL[] = {{"f16", 16, 10, 15, true, false, 65504.0f},
                                 {"bf16", 16, 7, 127, true, false, 3.38953139e38f},
                                 {"tf32", 32, 10, 127, true, false, 3.40282347e38f}, // the upper 19 bits
                                 {"e4m3", 8, 3, 7, false, true, 448.0f},
                                 {"e5m2", 8, 2, 15, true, true, 57344.0f},
                                 {"", 0, 0, 0, false, false, 0}};
    const Format* f = ALL;
    while (f->bits && name != f->name) f++;
    return *f;
}

inline float widen(u32 bits, const Format& f) {
    u32 sign = bits >> (f.bits - 1) & 1, fraction = bits & ((1u << f.fraction) - 1);
    int top = (1 << (f.bits - 1 - f.fraction)) - 1, e = (int)(bits >> f.fraction) & top;
    float v;
    if (e == 0)
        v = ldexpf((float)fraction, 1 - f.bias - f.fraction);
    else if (f.infinite && e == top)
        v = fraction ? NAN : INFINITY;
    else if (!f.infinite && e == top && fraction == (1u << f.fraction) - 1)
        v = NAN;
    else
        return float_of(sign << 31 | (u32)(e + 127 - f.bias) << 23 |
                        fraction << (23 - f.fraction)); // bf16 and all others
    return sign ? -v : v;
}

inline u32 narrow(float v, const Format& f) {
    u32 sign = (bits_of(v) >> 31) << (f.bits - 1), top = (1u << (f.bits - 1 - f.fraction)) - 1;
    u32 nan = f.bits == 16 ? 0x7fff : f.infinite ? top << f.fraction | 1u << (f.fraction - 1) : 0x7f;
    if (isnan(v)) return f.bits == 16 ? nan : sign | nan;
    float a = fabsf(v);
    int e = a == 0 ? 1 - f.bias : ilogbf(a);
    if (isinf(a) || e < 1 - f.bias) e = isinf(a) ? f.bias : 1 - f.bias;
    double steps = nearbyint(ldexp((double)a, f.fraction - e)); // to even
    if (isinf(a) || ldexp(steps, e - f.fraction) > f.largest) {
        if (f.ends) return sign | narrow(f.largest, f);
        return sign | top << f.fraction;
    }
    u32 n = (u32)steps;
    if (n >> (f.fraction + 1)) n >>= 1, e++;
    if (!(n >> f.fraction)) return sign | n; // too small for a leading one
    return sign | (u32)(e + f.bias) << f.fraction | (n & ((1u << f.fraction) - 1));
}
