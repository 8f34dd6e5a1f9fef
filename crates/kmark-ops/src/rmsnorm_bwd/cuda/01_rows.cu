// Rows in registers, the next ones on their way into shared memory, dw summed on the way; long rows in two passes.
// See norm_bwd.cuh.
// kmark: constants n
// kmark: require m<=2000000000
// kmark: let VECTORS = ceil(n*size,16)
// Threads to a row: as many as it has vectors, or an equal part of that.
// kmark: let SHARES = VECTORS>640&&VECTORS<=768?1:ceil(VECTORS,512)
// kmark: let ACROSS = VECTORS>16?ceil(VECTORS,SHARES*32)*32:VECTORS>8?16:VECTORS>4?8:VECTORS>2?4:VECTORS
// kmark: let THREADS = ACROSS*max(1,512/ACROSS)
// kmark: let RESIDENT = SHARES==1?max(1,1024/THREADS):SHARES==2&&THREADS<=320?2:1
// kmark: let STAGE = SHARES*THREADS*32
// kmark: let WEIGHTS = SHARES*THREADS*(w.f32?64/size:16)
// Rows that start one element behind a vector have their last elements behind those of a stage.
// kmark: let LASTS = memory.unaligned&&n*size%16==0&&VECTORS>=32?ceil(THREADS/ACROSS*2*max(size,4),128)*128:0
// kmark: let STAGES = min(max(3,98304/STAGE),((max_shared+1024)/RESIDENT-4096-WEIGHTS)/(STAGE+LASTS))
// kmark: let WALKS = n*size<=32768&&STAGES>0
// Rows that are not whole vectors start alike, as far as lines of memory go, if they are so many apart; short ones are read by elements.
// kmark: let EVERY = VECTORS<32||n*size%16==0||memory.strided?1:n*size%8==0?16:n*size%4==0?32:64
// kmark: workspace 256+(max(sms,64)*(32768/size+64)+n+32)*max(size,4)
// kmark: kernel dx_dw grid=WALKS?min(ceil(m,4*EVERY),max(1,sms*RESIDENT/EVERY))*EVERY:0 block=THREADS shared=STAGES*(STAGE+LASTS)+WEIGHTS
// kmark: kernel dx grid=WALKS?0:m block=1024
// kmark: kernel dw grid=WALKS?0:ceil(n*size,2048),min(ceil(m,4),max(1,sms*8/ceil(n*size,2048))) block=128
// kmark: kernel add grid=max_cluster>1?0:ceil(n,32) block=32,32
// kmark: kernel add grid=max_cluster>1?ceil(n,32):0 block=32,32 with=overlap
#include "norm_bwd.cuh"

using Norm = NormBwd<false, 1>;

KERNEL __launch_bounds__(THREADS, RESIDENT) dx_dw(const __grid_constant__ Args a) {
    if constexpr (WALKS) Norm::Walking<ACROSS, THREADS, RESIDENT, STAGES, EVERY>::walk(a);
}

KERNEL __launch_bounds__(1024) dx(const __grid_constant__ Args a) {
    if constexpr (!WALKS) Norm::row(a);
}

KERNEL __launch_bounds__(128) dw(const __grid_constant__ Args a) {
    if constexpr (!WALKS) Norm::columns(a);
}

KERNEL __launch_bounds__(1024) add(const __grid_constant__ Args a) {
    add_parts<1, N>(a.workspace, [&](int, i64 column, acc_t sum) { a.dw.ptr[Norm::column<WALKS != 0>(column)] = down<dw_t>(sum); });
}
