// Truth of quantisation: a block of threads for what shares a scale; then the round trip over what the kernel stored.
// kmark: kernel judge grid=scale.rows*scale.cols block=256
#include "fp8.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<q_t> q(a.q_gate);
    Judge<scale_t> scale(a.scale_gate);
    i64 rows = GRANULARITY == GRANULARITY_128x128 ? 128 : 1, columns = GRANULARITY == GRANULARITY_row ? a.n : 128;
    i64 across = (a.n + columns - 1) / columns, at_row = blockIdx.x / across, at_col = blockIdx.x % across;
    i64 row = at_row * rows, col = at_col * columns;
    i64 down = min(rows, a.m - row), wide_by = min(columns, a.n - col);
    // Powers of two are exact, and so is the quotient. Otherwise scale, its inverse and the product round in f32.
    double largest = Format<q_t>::max, off = POW2 ? 0.0 : 4.0 * unit<float>();

    double amax = 0.0;
    for (i64 i = threadIdx.x; i < down * wide_by; i += blockDim.x) {
        amax = fmax(amax, fabs(wide(a.x.at(row + i / wide_by, col + i % wide_by))));
    }
    double s = fmax(block_max(amax), CLAMP) / largest;
    if (POW2) s = power_above(s);

    // Scales are a vector if rows share them.
    constexpr bool by_row = GRANULARITY == GRANULARITY_row;
    i64 scale_row = by_row ? 0 : at_row, scale_col = by_row ? at_row : at_col;
    if (threadIdx.x == 0) scale.put(scale_row, scale_col, s, off * s);
    bool check = q.gate.mode == JUDGE_TALLY;
    double stored = check ? wide(scale.gate.out[scale_row * scale.gate.pitch + scale_col]) : 1.0;
    for (i64 i = threadIdx.x; i < down * wide_by; i += blockDim.x) {
        i64 r = row + i / wide_by, c = col + i % wide_by;
        double x = wide(a.x.at(r, c)), expect = fmin(fmax(x / s, -largest), largest);
        q.put(r, c, expect, off * fabs(expect));
        if (!check) continue;
        // q times the scale that was stored with it is x, but for half a spacing of the format.
        double half = stored * 0.5 * spacing<q_t>(x / stored);
        double allowed = half * (1.0 + 1e-6) + 8.0 * unit<float>() * fabs(x);
        double error = fabs(x - wide(q.gate.out[r * q.gate.pitch + c]) * stored);
        if (error > allowed || !isfinite(error) || !isfinite(allowed)) broken(a.property, (u64)(r * a.n + c));
    }
    q.finish();
    scale.finish();
}
