// Two vectors of each of gate, up and dy per thread, both gradients from one sigmoid.
// kmark: kernel swiglu_bwd grid=ceil(m*ceil(n,16/size)+1,512) block=256
#include "gate_act.cuh"
#include "map.cuh"

KERNEL __launch_bounds__(256, 4) swiglu_bwd(const __grid_constant__ Args a) {
    constexpr bool packed = FORM == FORM_packed;
    const Rows<const dy_t> in[3] = {packed ? rows_of(a.x) : rows_of(a.gate),
                                    packed ? rows_of(a.x, a.n) : rows_of(a.up), rows_of(a.dy)};
    const Rows<dy_t> out[2] = {packed ? rows_of(a.dx) : rows_of(a.dgate), packed ? rows_of(a.dx, a.n) : rows_of(a.dup)};
    map_rows<2>(a.m, a.n, in, out, [](const acc_t (&in)[3], acc_t (&out)[2]) {
        acc_t gate = in[0], up = in[1], dy = in[2], s = sigmoid(gate);
        out[0] = dy * up * s * (acc_t(1) + gate * (acc_t(1) - s));
        out[1] = dy * gate * s;
    });
}
