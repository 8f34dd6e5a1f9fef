// Truth of SwiGLU, element by element.
// kmark: kernel judge grid=min(ceil(m*n,256),32*sms) block=256
#include "gate_act.cuh"

KERNEL judge(const __grid_constant__ Args a) {
    Judge<y_t> judge(a.y_gate);
    double u = unit<acc_t>();
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < a.m * a.n; i += (i64)gridDim.x * blockDim.x) {
        i64 row = i / a.n, col = i % a.n;
        bool packed = FORM == FORM_packed;
        double gate = packed ? wide(a.x.at(row, col)) : wide(a.gate.at(row, col));
        double up = packed ? wide(a.x.at(row, a.n + col)) : wide(a.up.at(row, col));
        GateTruth g = gate_truth(gate);
        // The sigmoid, then two products.
        double slack = fabs(gate * up) * (g.sigmoid * (g.off + 2.0 * u) + g.flush);
        // Rounded on the way: the sigmoid, and its product with the gate.
        double loose = rounding<y_t>(gate * g.sigmoid) * fabs(up) + rounding<y_t>(g.sigmoid) * fabs(gate * up);
        judge.put(row, col, gate * g.sigmoid * up, slack, 0, loose);
    }
    judge.finish();
}
