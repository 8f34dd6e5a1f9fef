// Exponentials and reciprocals without branches, so that many are under way at a time.
#pragma once
#include "kmark.cuh"

// 2^x, two units of the last place off at most; what is too small for a normal number is 0.
#ifndef KMARK_EMULATE
DEVICE float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#else
DEVICE float exp2_fast(float x) { return exp2f(x); }
#endif

// 1 / x, one unit of the last place off at most; 0 if x is beyond 2^126.
#ifndef KMARK_EMULATE
DEVICE float inverse_fast(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#else
DEVICE float inverse_fast(float x) { return fabsf(x) > 8.507059173023462e37f ? 0.0f : 1.0f / x; }
#endif

// 1 / x of positive x, nearly as a division rounds it: one step of Newton's, whose NaN for infinite x becomes 0.
DEVICE float inverse_near(float x) {
    float y = inverse_fast(x);
    return fmaxf(fmaf(y, fmaf(-x, y, 1.0f), y), 0.0f);
}
DEVICE double inverse_near(double x) { return 1.0 / x; }

constexpr float LOG2_E = 1.4426950408889634f, LOG2_E_REST = 1.9259629911e-8f; // together 1 / ln 2

// exp(x - top) is `exp_less(x, scaled(top))`. In f64 nothing is gained by base 2.
DEVICE float scaled(float top) { return top * LOG2_E; }
DEVICE double scaled(double top) { return top; }
DEVICE float exp_less(float x, float scaled_top) { return exp2_fast(fmaf(x, LOG2_E, -scaled_top)); }
DEVICE double exp_less(double x, double scaled_top) { return exp(x - scaled_top); }

// exp(x) of x <= 0: off by x units for the rounded argument, and by the two places of exp2_fast. exp(0) is 1.
DEVICE float exp_down(float x) { return exp2_fast(fmaf(x, LOG2_E, x * LOG2_E_REST)); }
DEVICE double exp_down(double x) { return exp(x); }

// One unit of the last place off, whatever the argument.
DEVICE float exp_near(float x) { return expf(x); }
DEVICE double exp_near(double x) { return exp(x); }
DEVICE float log_near(float x) { return logf(x); }
DEVICE double log_near(double x) { return log(x); }
DEVICE float larger(float a, float b) { return fmaxf(a, b); }
DEVICE double larger(double a, double b) { return fmax(a, b); }
