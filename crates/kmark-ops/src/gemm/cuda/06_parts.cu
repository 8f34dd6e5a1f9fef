// Fewer tiles than multiprocessors: the blocks of a cluster multiply parts of a tile's k and exchange their sums. See product_parts.cuh.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16,f32
// kmark: require size==2||(tf32&&layout.nt)
// kmark: require m>64&&n>64&&ceil(m,64)*ceil(n,64)*2<=sms
// kmark: let ACROSS_A = layout.tn+layout.tt
// kmark: let ACROSS_B = layout.nn+layout.tn
// kmark: let WG = 1
// kmark: let H = 1
// kmark: let CM = 1
// kmark: let CN = 1
// kmark: let BK = 128/size
// kmark: let STEPS = ceil(k,BK)
// kmark: require STEPS>=8
// kmark: let BYTES = out.f32||(out.same&&size==4)?4:2
// kmark: let DIRECT = d.pitch*BYTES%16>0
//
// P parts of tiles of 64 rows and W columns, of the turned result if S. So many clusters fit at once.
// kmark: let ONCE(P) = P==2?sms/2:P==4?sms/4-sms/40:sms/8-sms/60
// kmark: let TILES(S,W) = ceil(S?n:m,64)*ceil(S?m:n,W)
// What they cost, in clocks, as in 05_small, beside 3500 of a launch: blocks that run together read different k, and wait for the L2
// cache the longer the more they are. Then the exchange.
// Fitted to 82 times of 14 shapes on an H200: 5 % off in the mean; what it chooses of those is 2.5 % slower than the best.
// kmark: let LINE(X) = X*size%128==0?100:X*size%32==0?145:211
// kmark: let BY_64(S) = S?ACROSS_A:ACROSS_B
// kmark: let HELD(S,W) = BY_64(S)?64*ceil(W,64):W
// kmark: let LINE_COLS(S,W) = max(LINE(S?a.pitch:b.pitch),BY_64(S)?LINE(W):100)
// kmark: let CACHE(S,W,C) = (64*64*LINE(S?b.pitch:a.pitch)+36*HELD(S,W)*LINE_COLS(S,W))*C/1000000
// kmark: let MULTIPLY(W) = 89+51*W/100
// kmark: let STEP(X,Y) = max(X,Y)+min(X,Y)*33/10
// kmark: let EXCHANGE(P,W) = 2520+39*W*(P-1)/P
// kmark: let TIME(S,P,W) = ceil(STEPS,P)*STEP(CACHE(S,W,min(TILES(S,W),ONCE(P))*P),MULTIPLY(W))+EXCHANGE(P,W)
// kmark: let SUM(S,P,W) = ceil(TILES(S,W),ONCE(P))*TIME(S,P,W)+8*W-325*S
// kmark: let WIDTH(S,P) = least(W,max(64,16*P),P==2?256:192,16*P,SUM(S,P,W))
// kmark: let PARTS(I) = I%3==0?2:I%3==1?4:8
// kmark: let CHOICE = least(I,0,BYTES==4?2:5,1,SUM(I/3,PARTS(I),WIDTH(I/3,PARTS(I))))
// kmark: let SWAP = CHOICE/3
// kmark: let SPLIT = PARTS(CHOICE)
// kmark: let BN = WIDTH(SWAP,SPLIT)
//
// kmark: let PUT = min(128/BYTES,BN/SPLIT%64==0?64:BN/SPLIT%32==0?32:16)
// kmark: let STAGE = (64+HELD(SWAP,BN))*128
// kmark: let ROOM = 17*1024+(SPLIT-1)*64*BN/SPLIT*4
// kmark: let STAGES = min(14,(max_shared-ROOM-512)/STAGE)
// kmark: map a = a box=ACROSS_A?64:BK,ACROSS_A?BK:SWAP?BN:64 swizzle=128
// kmark: map b = b box=ACROSS_B?64:BK,ACROSS_B?BK:SWAP?64:BN swizzle=128
// kmark: map d = d box=SWAP?64:PUT,SWAP?PUT:16 dims=DIRECT?64:n,DIRECT?1:m strides=DIRECT?64:d.pitch swizzle=SWAP?128:PUT*BYTES
// kmark: kernel gemm_parts grid=TILES(SWAP,BN)*SPLIT block=256 cluster=SPLIT shared=STAGES*STAGE+ROOM
#include "product_parts.cuh"

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_parts(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    multiply_parts(a, maps);
}
