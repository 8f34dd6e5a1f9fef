// Two vectors of gate and two of up per thread; halves of packed rows are tensors that share a pitch.
// kmark: kernel swiglu grid=ceil(m*ceil(n,16/size)+1,512) block=256
#include "gate_act.cuh"
#include "map.cuh"

KERNEL __launch_bounds__(256, sizeof(y_t) == 8 ? 2 : 5) swiglu(const __grid_constant__ Args a) {
    constexpr bool packed = FORM == FORM_packed;
    const Rows<const y_t> in[2] = {packed ? rows_of(a.x) : rows_of(a.gate), packed ? rows_of(a.x, a.n) : rows_of(a.up)};
    const Rows<y_t> out[1] = {rows_of(a.y)};
    map_rows<2>(a.m, a.n, in, out, [](const acc_t (&x)[2], acc_t (&y)[1]) { y[0] = x[0] * sigmoid(x[0]) * x[1]; });
}
