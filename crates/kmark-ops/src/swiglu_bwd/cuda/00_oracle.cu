// Truth of SwiGLU's backward, element by element.
// kmark: kernel judge grid=min(ceil(m*n,256),32*sms) block=256
#include "gate_act.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    constexpr bool packed = FORM == FORM_packed;
    Judge<dx_t> dx(a.dx_gate);
    Judge<dgate_t> dgate(a.dgate_gate);
    Judge<dup_t> dup(a.dup_gate);
    double u = unit<acc_t>();
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < a.m * a.n; i += (i64)gridDim.x * blockDim.x) {
        i64 row = i / a.n, col = i % a.n;
        double gate = packed ? wide(a.x.at(row, col)) : wide(a.gate.at(row, col));
        double up = packed ? wide(a.x.at(row, a.n + col)) : wide(a.up.at(row, col));
        double dy = wide(a.dy.at(row, col));
        GateTruth g = gate_truth(gate);
        double factor = 1.0 + gate * g.rest;
        // 1 - s is off by what s is off, and is rounded; the sum with 1 may cancel; then three products.
        double factor_off = fabs(gate) * (g.sigmoid * g.off + 2.0 * u * g.rest) + u;
        double relative = fabs(factor) * (g.off + 3.0 * u) + factor_off;
        double gate_slack = fabs(dy * up) * (g.sigmoid * relative + g.flush * (1.0 + fabs(gate)));
        double up_slack = fabs(dy * gate) * (g.sigmoid * (g.off + 2.0 * u) + g.flush);
        double for_gate = dy * up * g.sigmoid * factor, for_up = dy * gate * g.sigmoid;
        // Rounded on the way: the sigmoid (which 1 - s and the factor inherit), the products dy * up and gate * s, the
        // factor and its parts, and each gradient once more.
        double half = sizeof(dy_t) == 2 ? unit<dy_t>() : 0.0, least = rounding<dy_t>(0.0), size = fabs(gate);
        double parts = 2.0 * rounding<dy_t>(g.sigmoid) * (1.0 + size) + half * g.sigmoid * (1.0 + 3.0 * size * g.rest);
        double gate_loose = rounding<dy_t>(dy * up) * g.sigmoid * (1.0 + size * g.rest) + fabs(dy * up) * parts;
        gate_loose += rounding<dy_t>(for_gate) + least * (2.0 + size);
        double up_loose = rounding<dy_t>(gate * g.sigmoid) * fabs(dy) + rounding<dy_t>(g.sigmoid) * fabs(dy * gate);
        up_loose += rounding<dy_t>(for_up);
        if constexpr (packed) {
            dx.put(row, col, for_gate, gate_slack, 0, gate_loose);
            dx.put(row, a.n + col, for_up, up_slack, 0, up_loose);
        } else {
            dgate.put(row, col, for_gate, gate_slack, 0, gate_loose);
            dup.put(row, col, for_up, up_slack, 0, up_loose);
        }
    }
    if constexpr (packed) {
        dx.finish();
    } else {
        dgate.finish();
        dup.finish();
    }
}
