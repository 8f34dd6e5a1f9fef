// The gate of SwiGLU: for the oracles as in truth/mod.rs, and as kernels compute it.
#pragma once
#include "fast_exp.cuh"

struct GateTruth {
    double sigmoid;
    double rest;  // 1 - sigmoid, without cancellation
    double off;   // relative error: exp of a rounded argument, a sum, a division
    double flush; // absolute error: f32 kernels divide by an exp that overflows
};

DEVICE GateTruth gate_truth(double x) {
    double e = exp(-fabs(x)), small = e / (1.0 + e);
    double sigmoid = x < 0.0 ? small : 1.0 - small, rest = x < 0.0 ? 1.0 - small : small;
    double flush = is<acc_t, double> ? 0.0 : 1.1754943508222875e-38;
    return GateTruth{sigmoid, rest, unit<acc_t>() * (4.0 + 2.0 * fabs(x) * rest), flush};
}

// Two roundings, besides exp's; an exp that overflows makes it 0.
DEVICE acc_t sigmoid(acc_t x) { return inverse_near(acc_t(1) + exp_near(-x)); }
