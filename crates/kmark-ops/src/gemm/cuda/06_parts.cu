// Fewer tiles than multiprocessors: the blocks of a cluster multiply parts of a tile's k and exchange their sums. See product_parts.cuh.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16,f32
// kmark: require size==2||(tf32&&layout.nt)
// kmark: require m>64&&n>64&&ceil(m,128)*ceil(n,128)*2<=sms
// kmark: let ACROSS_A = layout.tn+layout.tt
// kmark: let ACROSS_B = layout.nn+layout.tn
// kmark: let WG = 2
// kmark: let H = 1
// kmark: let CM = 1
// kmark: let CN = 1
// kmark: let BK = 128/size
// kmark: let STEPS = ceil(k,BK)
// kmark: require STEPS>=8
// kmark: let BYTES = out.f32||(out.same&&size==4)?4:2
// kmark: let DIRECT = d.pitch*BYTES%16>0
//
// P parts of tiles of 128 rows and W columns, of the turned result if S. So many clusters fit at once.
// kmark: let ONCE(P) = P==2?sms/2:P==4?sms/4-sms/40:sms/8-sms/60
// kmark: let TILES(S,W) = ceil(S?n:m,128)*ceil(S?m:n,W)
// What they cost, in clocks, as in 02_wgmma; then the exchange, which is estimated: no times have been fitted.
// kmark: let LINE(PITCH) = PITCH*size%64==0?100:PITCH*size%32==0?125:215
// kmark: let LINE_A = ACROSS_A?100:LINE(a.pitch)
// kmark: let LINE_B = ACROSS_B?100:LINE(b.pitch)
// kmark: let BY_64(S) = S?ACROSS_A:ACROSS_B
// kmark: let HELD(S,W) = BY_64(S)?64*ceil(W,64):W
// kmark: let CACHE(S,W,C) = (128*(S?LINE_B:LINE_A)+HELD(S,W)*(S?LINE_A:LINE_B))*C/7300
// kmark: let MULTIPLY(W) = max(4*W,2*W+175)
// kmark: let STEP(X,Y) = 23+max(X,Y)+min(X,Y)/20
// kmark: let TIME(S,P,W) = ceil(STEPS,P)*STEP(CACHE(S,W,min(TILES(S,W),ONCE(P))*P),MULTIPLY(W))+1500+24*W*(P-1)/P
// kmark: let SUM(S,P,W) = ceil(TILES(S,W),ONCE(P))*TIME(S,P,W)+8*W
// kmark: let WIDTH(S,P) = least(W,max(64,16*P),P==2?256:192,16*P,SUM(S,P,W))
// kmark: let PARTS(I) = I%3==0?2:I%3==1?4:8
// kmark: let CHOICE = least(I,0,BYTES==4?2:5,1,SUM(I/3,PARTS(I),WIDTH(I/3,PARTS(I))))
// kmark: let SWAP = CHOICE/3
// kmark: let SPLIT = PARTS(CHOICE)
// kmark: let BN = WIDTH(SWAP,SPLIT)
//
// kmark: let PUT = min(128/BYTES,BN/SPLIT%64==0?64:BN/SPLIT%32==0?32:16)
// kmark: let STAGE = (128+HELD(SWAP,BN))*128
// kmark: let STAGES = min(8,(max_shared-33*1024-512)/STAGE)
// kmark: map a = a box=ACROSS_A?64:BK,ACROSS_A?BK:SWAP?BN:128 swizzle=128
// kmark: map b = b box=ACROSS_B?64:BK,ACROSS_B?BK:SWAP?128:BN swizzle=128
// kmark: map d = d box=SWAP?64:PUT,SWAP?PUT:16 dims=DIRECT?64:n,DIRECT?1:m strides=DIRECT?64:d.pitch swizzle=SWAP?128:PUT*BYTES
// kmark: kernel gemm_parts grid=TILES(SWAP,BN)*SPLIT block=384 cluster=SPLIT shared=STAGES*STAGE+33*1024
#include "product_parts.cuh"

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_parts(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    multiply_parts(a, maps);
}
