// What rounding to 16 bits costs attention: the same as in truth/attention/rounding.rs, which explains it.
#pragma once
#include "kmark.cuh"

constexpr double SIGMAS = 2.5, SIGMAS_EQUAL = 5.0, NARROW = 4.0;

// Unit roundoff of weights that a kernel rounds to 16 bits, and what rounding below their normal numbers costs.
template <class T> DEVICE double weight_unit() { return sizeof(T) == 2 ? unit<T>() : 0.0; }
template <class T> DEVICE double weight_tiny() { return sizeof(T) == 2 ? 0.5 * spacing<T>(0.0) : 0.0; }

// Whether the weights of a query whose logits spread by `spread` are nearly equal.
template <class T> DEVICE bool is_narrow(double spread) { return spread <= NARROW * weight_unit<T>(); }

// Sums over the keys of one query, for one column of the output, and what is known of the query. T: the tensors' type.
template <class T> struct Column {
    double o, pv2, p2v2, p2v, p2, keys, key_rms, spread, q_part, q_scaled;

    __device__ double deviation() const { return sqrt(fmax(pv2 - o * o, 1e-9 * pv2)); }

    __device__ double weights() const {
        double most = sqrt(pv2), walk = sqrt(p2v2);
        double likely = is_narrow<T>(spread) ? SIGMAS_EQUAL * walk + q_part * most : SIGMAS * walk;
        return weight_unit<T>() * fmin(likely, most) + subnormal();
    }

    __device__ double subnormal() const { return SIGMAS * weight_tiny<T>() * sqrt(keys) * key_rms; }

    __device__ double on_the_way() const {
        double parts = fmin(2.0 * sqrt(p2v2), sqrt(pv2));
        double pull = sqrt(fmax(p2v2 - 2.0 * o * p2v + o * o * p2, 1e-12 * p2v2));
        double moved = expm1(2.0 * weight_unit<T>() * spread);
        return weight_unit<T>() * (parts + q_scaled * pv2) + moved * pull + subnormal();
    }
};
