// What the oracles of several ops share about roundings, as in truth/mod.rs.
#pragma once
#include "kmark.cuh"

// What rounding v to T on the way may cost: a unit of it, and half the least spacing below the normal numbers. Nothing
// for wider types.
template <class T> DEVICE double rounding(double v) {
    return sizeof(T) == 2 ? fmax(unit<T>() * fabs(v), 0.5 * spacing<T>(0.0)) : 0.0;
}
template <class T> DEVICE double rounding2(double v) { return rounding<T>(v) * rounding<T>(v); }

// The smallest normal number of an accumulator: an exponential below it may be flushed to zero.
template <class A> DEVICE double least() { return pow2(Format<A>::min_exp); }

// So many times the root of the sum of squared rounding errors is never exceeded.
constexpr double SURE = 2.5;

// How far the sum of y * dy is off if its terms, its partial sums in a tree and the sum itself are rounded to T; `off2`
// is the sum of the squares of what rounding the terms costs.
template <class T> DEVICE double loose_dot(double dot, double off2, i64 n) {
    return rounding<T>(dot) + SURE * sqrt((1.0 + log2((double)n)) * off2);
}
