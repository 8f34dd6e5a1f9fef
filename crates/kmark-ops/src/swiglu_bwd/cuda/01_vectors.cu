// A vector of each of gate, up and dy per thread, both gradients from one sigmoid.
// kmark: constants m,n
// kmark: let LANES = 16/size
// Halves of packed rows are cut alike where n is a multiple of the vector.
// kmark: let FIT = !form.packed||n%LANES==0?LANES:n%4==0&&LANES>4?4:n%2==0&&LANES>2?2:1
// kmark: let V = m*n<=sms*1024?min(4,FIT):FIT
// kmark: let LEAD = memory.unaligned&&V>1
// kmark: let JOINED = m==1||(!memory.strided&&!form.packed)
// kmark: let VECTORS = JOINED?ceil(m*n+LEAD,V):m*ceil(n+LEAD,V)
// kmark: let LARGE = 5*m*n*size>8*l2
// kmark: let THREADS = 256
// kmark: kernel swiglu_bwd grid=ceil(VECTORS,THREADS) block=THREADS
#include "gate_act.cuh"
#include "map.cuh"

KERNEL __launch_bounds__(THREADS) swiglu_bwd(const __grid_constant__ Args a) {
    constexpr bool packed = FORM == FORM_packed;
    const Rows<const dy_t> in[3] = {packed ? rows_of(a.x) : rows_of(a.gate),
                                    packed ? rows_of(a.x, N) : rows_of(a.up), rows_of(a.dy)};
    const Rows<dy_t> out[2] = {packed ? rows_of(a.dx) : rows_of(a.dgate), packed ? rows_of(a.dx, N) : rows_of(a.dup)};
    Tiles<dy_t, M, N, JOINED, V, LEAD, THREADS> tiles;
    map_tiles<LARGE != 0>(tiles, in, out, [](const acc_t (&in)[3], acc_t (&out)[2]) {
        acc_t gate = in[0], up = in[1], dy = in[2], s = sigmoid(gate);
        out[0] = dy * up * s * (acc_t(1) + gate * (acc_t(1) - s));
        out[1] = dy * gate * s;
    });
}
