// Up to 4 MB in one launch: a block has some columns of some rows, and blocks tell each other their sums over rows and over columns.
// See norm_bwd_few.cuh.
// kmark: arch sm_90a
// kmark: constants m,n
// kmark: let VECTORS = ceil(n*size,16)
// kmark: let SHORT = VECTORS>16?32:VECTORS>8?16:VECTORS>4?8:VECTORS>2?4:VECTORS
// kmark: let SIDE = VECTORS<=32*sms?SHORT:VECTORS<=64*sms?64:VECTORS<=128*sms?128:VECTORS<=256*sms?256:512
// kmark: let BESIDE = ceil(VECTORS,SIDE)
// kmark: let ROOM = max(1,sms/BESIDE)
// kmark: let HELD = ceil(m,512/SIDE*ROOM)
// kmark: let THREADS = ceil(ceil(m,HELD*ROOM)*SIDE,32)*32
// kmark: let BELOW = ceil(m,HELD*(THREADS/SIDE))
// kmark: require 3*m*n*size<=4194304&&BESIDE<=sms&&HELD<=4&&BELOW<=sms/2
// kmark: workspace ceil(BESIDE*BELOW,64)*256+2*max(size,4)*BESIDE*(m+BELOW*SIDE*16/size) zeroed
// kmark: kernel told grid=BESIDE*BELOW block=THREADS
#include "norm_bwd_few.cuh"

KERNEL __launch_bounds__(THREADS, 1) told(const __grid_constant__ Args a) {
    FewRows<false, 1>::told<SIDE, THREADS, HELD, BESIDE, BELOW>(a);
}
