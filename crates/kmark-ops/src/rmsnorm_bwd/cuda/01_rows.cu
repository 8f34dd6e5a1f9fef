// Rows in registers, the next ones on their way into shared memory, dw summed on the way; long rows in two passes.
// See norm_bwd.cuh.
// kmark: constants n
// kmark: let WALKS = n*size<=32768
// kmark: workspace 256+(sms*(32768/size+64)+n+32)*max(size,4)
// kmark: kernel dx_dw grid=WALKS?min(ceil(m,4),n*size>8192?sms:sms*2):0 block=512 shared=98304
// kmark: kernel dx grid=WALKS?0:m block=1024
// kmark: kernel dw grid=WALKS?0:ceil(n*size,2048),min(ceil(m,4),max(1,sms*8/ceil(n*size,2048))) block=128
// kmark: kernel add grid=ceil(n,32) block=32,32
#include "norm_bwd.cuh"

using Norm = NormBwd<false, 1, WALKS>;

KERNEL __launch_bounds__(Norm::threads, Norm::blocks) dx_dw(const __grid_constant__ Args a) {
    if constexpr (WALKS) Norm::walk(a);
}

KERNEL __launch_bounds__(1024) dx(const __grid_constant__ Args a) {
    if constexpr (!WALKS) Norm::row(a);
}

KERNEL __launch_bounds__(128) dw(const __grid_constant__ Args a) {
    if constexpr (!WALKS) Norm::columns(a);
}

KERNEL __launch_bounds__(1024) add(const __grid_constant__ Args a) {
    add_parts<1, N>(a.workspace, [&](int, i64 column, acc_t sum) { a.dw.ptr[column] = down<dw_t>(sum); });
}
