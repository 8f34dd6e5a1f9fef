// Few rows: blocks have some columns of all rows and add up dw and dbias of those themselves. Little work (256 KB) is
// one launch of one cluster, whose blocks tell each other their sums over rows; more of it takes two launches, the
// first for those sums. See norm_bwd_few.cuh.
// kmark: constants m,n
// kmark: let VECTORS = ceil(n*size,16)
// kmark: let BLOCKS = m*VECTORS<=1024||VECTORS<8?1:min(max_cluster,VECTORS<16?2:VECTORS<32?4:8)
// kmark: let SHARE = ceil(VECTORS,BLOCKS)
// kmark: let TILES = ceil(SHARE,512)
// kmark: let ACROSS = SHARE>16?ceil(SHARE,TILES*32)*32:SHARE>8?16:SHARE>4?8:SHARE>2?4:SHARE
// kmark: let ROWS = ceil(m,512/ACROSS)
// kmark: let THREADS = ceil(ACROSS*ceil(m,ROWS),32)*32
// kmark: let ONCE = m<=256&&ROWS*TILES<=4
// kmark: require ONCE||m<=(n*size>32768?sms:128)
// kmark: kernel in_one grid=ONCE?BLOCKS:0 block=THREADS cluster=BLOCKS
//
// kmark: let LINE = min(256,ceil(VECTORS,32)*32)
// Vectors that a thread has at a time; fewer where they come by parts.
// kmark: let MOST = memory.unaligned||n*size%16>0?4:8
// kmark: let DEPTH = min(MOST,ceil(VECTORS,LINE*max(1,2*sms/m)))
// kmark: let CHUNKS = ceil(VECTORS,LINE*DEPTH)
// kmark: let EACH = ceil(VECTORS,2*sms)
// kmark: let WIDTH = EACH>128?256:EACH>64?128:EACH>32?64:EACH>16?32:EACH>8?16:EACH>4?8:4
// kmark: let TALL = ceil(m,256/WIDTH)
// kmark: let TOGETHER = TALL<=MOST?TALL:MOST/2
// kmark: let TEAM = ceil(WIDTH*ceil(m,TALL),32)*32
// kmark: workspace m*CHUNKS*2*max(size,4)
// kmark: kernel sums grid=ONCE?0:m*CHUNKS block=LINE
// kmark: kernel tiles grid=ONCE||max_cluster>1?0:ceil(VECTORS,WIDTH) block=TEAM
// kmark: kernel tiles grid=ONCE||max_cluster==1?0:ceil(VECTORS,WIDTH) block=TEAM with=overlap
#include "norm_bwd_few.cuh"

using Few = FewRows<true, 1 + BIAS>;

KERNEL __launch_bounds__(THREADS, 1) in_one(const __grid_constant__ Args a) {
    if constexpr (ONCE) Few::cluster<BLOCKS, ACROSS, THREADS, ROWS, TILES>(a);
}

KERNEL __launch_bounds__(LINE, 2) sums(const __grid_constant__ Args a) {
    if constexpr (!ONCE) Few::sum<LINE, DEPTH, CHUNKS>(a);
}

KERNEL __launch_bounds__(TEAM, 2) tiles(const __grid_constant__ Args a) {
    if constexpr (!ONCE) Few::tile<WIDTH, TEAM, TOGETHER, CHUNKS>(a);
}
