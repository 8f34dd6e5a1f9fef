// The gate of SwiGLU: for the oracles as in truth/mod.rs, and as kernels compute it.
#pragma once
#include "fast_exp.cuh"
#include "loose_truth.cuh"

struct GateTruth {
    double sigmoid;
    double rest;  // 1 - sigmoid, without cancellation
    double off;   // relative error: exp of a rounded argument, a sum, a reciprocal
    double flush; // absolute error: kernels divide by an exp that overflows
};

DEVICE GateTruth gate_truth(double x) {
    double e = exp(-fabs(x)), small = e / (1.0 + e);
    double sigmoid = x < 0.0 ? small : 1.0 - small, rest = x < 0.0 ? 1.0 - small : small;
    return GateTruth{sigmoid, rest, unit<acc_t>() * (6.0 + (4.0 + 2.0 * fabs(x)) * rest), least<acc_t>()};
}

// Off by six units at most, and by what a rounded exponent costs; an exp that overflows makes it 0.
DEVICE float sigmoid(float x) { return inverse_fast(1.0f + exp2_fast(x * -LOG2_E)); }
DEVICE double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
