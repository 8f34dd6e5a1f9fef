// A vector of gate and of up per thread; halves of packed rows are tensors that share a pitch.
// kmark: constants m,n
// kmark: let LANES = 16/size
// Halves of packed rows are cut alike where n is a multiple of the vector.
// kmark: let FIT = !form.packed||n%LANES==0?LANES:n%4==0&&LANES>4?4:n%2==0&&LANES>2?2:1
// kmark: let V = m*n<=sms*65536?min(4,FIT):FIT
// kmark: let LEAD = memory.unaligned&&V>1
// kmark: let JOINED = m==1||(!memory.strided&&!form.packed)
// kmark: let VECTORS = JOINED?ceil(m*n+LEAD,V):m*ceil(n+LEAD,V)
// kmark: let LARGE = 3*m*n*size>8*l2
// kmark: let THREADS = 256
// kmark: kernel swiglu grid=ceil(VECTORS,THREADS) block=THREADS
#include "gate_act.cuh"
#include "map.cuh"

KERNEL __launch_bounds__(THREADS) swiglu(const __grid_constant__ Args a) {
    constexpr bool packed = FORM == FORM_packed;
    const Rows<const y_t> in[2] = {packed ? rows_of(a.x) : rows_of(a.gate), packed ? rows_of(a.x, N) : rows_of(a.up)};
    const Rows<y_t> out[1] = {rows_of(a.y)};
    Tiles<y_t, M, N, JOINED, V, LEAD, THREADS> tiles;
    map_tiles<LARGE != 0>(tiles, in, out, [](const acc_t (&x)[2], acc_t (&y)[1]) { y[0] = x[0] * sigmoid(x[0]) * x[1]; });
}
