// Small products: tiles of 64 rows, or of 64 columns of the result (SWAP), by one warpgroup that multiplies and a ring of many stages, so
// that all multiprocessors have a tile and much is under way to each. See product_tiles.cuh.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16,f32
// kmark: require size==2||(tf32&&layout.nt)
// kmark: require ceil(m,64)*ceil(n,64)<=4*sms
// kmark: let ACROSS_A = layout.tn+layout.tt
// kmark: let ACROSS_B = layout.nn+layout.tn
// kmark: let WG = 1
// kmark: let H = 1
// kmark: let BK = 128/size
// kmark: let BYTES = out.f32||(out.same&&size==4)?4:2
// kmark: let DIRECT = d.pitch*BYTES%16>0
//
// Clusters of kind K: two blocks one below the other, two side by side, four one below the other, four side by side, one block.
// kmark: let DOWN(K) = K==0?2:K==2?4:1
// kmark: let SIDE(K) = K==1?2:K==3?4:1
// kmark: let ONCE(K) = K==4?sms:K>1?sms/4-sms/40:sms/2
// kmark: let TILES(S,K,W) = ceil(S?n:m,64*DOWN(K))*ceil(S?m:n,W*SIDE(K))
//
// What they cost, in clocks, beside 6300 of a launch. A step of k takes as long as the longer of multiplying and reading through the
// L2 cache, and four fifths of the other. A row of operands costs more where it does not begin with a line of 128 bytes (LINE, in
// hundredths). Blocks by themselves read the same lines at about the same time, and the cache answers several at once.
// Fitted to 630 times of 29 shapes and layouts on an H200: 5 % off in the mean; what it chooses of those is 1.7 % slower than the best.
// kmark: let STEPS = ceil(k,BK)
// kmark: let ODD(K) = K==4?447:336
// kmark: let LINE(X,K) = X*size%128==0?100:X*size%32==0?(300+2*ODD(K))/5:ODD(K)
// Columns that run across k come by 64, from multiples of the width on.
// kmark: let BY_64(S) = S?ACROSS_A:ACROSS_B
// kmark: let HELD(S,W) = BY_64(S)?64*ceil(W,64):W
// kmark: let LINE_ROWS(S,K) = LINE(S?b.pitch:a.pitch,K)
// kmark: let LINE_COLS(S,K,W) = max(LINE(S?a.pitch:b.pitch,K),BY_64(S)?LINE(W,K):100)
// kmark: let READ_ROWS(S,K) = 64/SIDE(K)*LINE_ROWS(S,K)*(K==4?71:55)
// kmark: let READ_COLS(S,K,W) = HELD(S,W)/DOWN(K)*LINE_COLS(S,K,W)*(K==4?51:76)
// kmark: let CACHE(S,K,W,C) = (READ_ROWS(S,K)+READ_COLS(S,K,W))*C*DOWN(K)*SIDE(K)/1000000
// kmark: let MULTIPLY(K,W) = max(216-7*W/10,K==4?127+77*W/100:SIDE(K)>1?178+60*W/100:145+104*W/100)
// kmark: let STEP(X,Y) = max(X,Y)+min(X,Y)*4/5
// kmark: let TIME(S,K,W,C) = STEPS*STEP(CACHE(S,K,W,C),MULTIPLY(K,W))+(BYTES==4?3200:DIRECT?1700:0)
// kmark: let ROUNDS(S,K,W) = TILES(S,K,W)/ONCE(K)*TIME(S,K,W,ONCE(K))
// kmark: let COST(S,K,W) = ROUNDS(S,K,W)+(TILES(S,K,W)%ONCE(K)>0)*TIME(S,K,W,TILES(S,K,W)%ONCE(K))+14*W+370*S
// Columns by 64 cost a tenth more where tiles do not begin at multiples of them, rows across k a fifth where blocks share them.
// kmark: let MORE(S,K,W) = 10*(BY_64(S)&&W%64>0)+20*(BY_64(!S)&&SIDE(K)>1)
// kmark: let SUM(S,K,W) = COST(S,K,W)*(100+MORE(S,K,W))
// kmark: let LEAST(S) = max(32,min(64,8*ceil(S?m:n,8)))
// kmark: let WIDTH(S,K) = least(W,LEAST(S),160,8,SUM(S,K,W))
// kmark: let CHOICE = least(I,0,BYTES==4?4:9,1,SUM(I/5,I%5,WIDTH(I/5,I%5)))
// kmark: let SWAP = CHOICE/5
// kmark: let CM = DOWN(CHOICE%5)
// kmark: let CN = SIDE(CHOICE%5)
// kmark: let BN = WIDTH(SWAP,CHOICE%5)
// kmark: let SPLIT = 1
// Measured: 8 and 33 rows of tiles, 3 and 6 % faster by bands of four; 5, 6 and 13, 1 to 5 % slower.
// kmark: let ROWS = ceil(SWAP?n:m,64*CM)
// kmark: let BAND = CM==1&&CN==1&&ROWS>=8&&ROWS%8<=1?4:8
// kmark: let ALL = TILES(SWAP,CHOICE%5,BN)
// kmark: let USED = ceil(ALL,ceil(ALL,ONCE(CHOICE%5)))
// kmark: let LATE = BYTES==2&&STEPS>=4
//
// kmark: let PUT = BYTES==4||BN<64?32:64
// kmark: let STAGE = (64+HELD(SWAP,BN))*128
// kmark: let STAGES = min(14,(max_shared-17*1024-512)/STAGE)
// kmark: map a = a box=ACROSS_A?64:BK,(ACROSS_A?BK:SWAP?BN:64)/(SWAP?CM:CN) swizzle=128
// kmark: map b = b box=ACROSS_B?64:BK,(ACROSS_B?BK:SWAP?64:BN)/(SWAP?CN:CM) swizzle=128
// kmark: map d = d box=SWAP?64:PUT,SWAP?PUT:16 dims=DIRECT?64:n,DIRECT?1:m strides=DIRECT?64:d.pitch swizzle=SWAP?128:PUT*BYTES
// kmark: kernel gemm_small grid=USED*CM*CN block=256 cluster=CM*CN shared=STAGES*STAGE+17*1024
#include "product_tiles.cuh"

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_small(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    multiply_tiles(a, maps);
}
