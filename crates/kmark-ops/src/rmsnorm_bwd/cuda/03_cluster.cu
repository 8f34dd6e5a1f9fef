// Long rows over clusters of blocks, read once: each block keeps its columns of a row in shared memory until the row's mean is
// known, and sums dw of them as it goes. See norm_bwd_cluster.cuh.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16,f32
// kmark: constants n
// kmark: let ROW = n*size
// kmark: require ROW>32768&&ROW<=524288
// kmark: let BLOCKS = ROW<=65536?2:ROW<131072?4:ROW==131072?8:16
// kmark: let STAGE = ceil(ROW/16,BLOCKS*8)*256+(memory.unaligned||ROW%16>0?256:0)
// kmark: let STAGES = min(6,(max_shared-12288)/STAGE)
// Rows that are so many apart start alike.
// kmark: let EVERY = memory.strided||ROW%16==0?1:ROW%8==0?2:ROW%4==0?4:8
// Every cluster has sums of its own. As many run as the GPU holds; where blocks are small, that may be two to a multiprocessor.
// kmark: let MOST = max(EVERY,2*sms/BLOCKS)
// kmark: workspace 256+min(m,MOST)*(n+32)*4
// kmark: kernel dx_dw grid=min(m,m<=min(clusters,MOST)?m:max(EVERY,min(clusters,MOST)/EVERY*EVERY))*BLOCKS block=512 cluster=BLOCKS shared=STAGES*STAGE
// kmark: kernel add grid=ceil(n,1024) block=256
#include "norm_bwd_cluster.cuh"

using Norm = NormBwdCluster<false, 1, BLOCKS, STAGES>;

KERNEL __launch_bounds__(512, 1) dx_dw(const __grid_constant__ Args a) { Norm::walk(a); }

KERNEL __launch_bounds__(256) add(const __grid_constant__ Args a) {
    add_few_parts<1, N>(a.workspace, [&](int, i64 column, acc_t sum) { a.dw.ptr[Norm::column(column)] = down<dw_t>(sum); });
}
