// Tiles of 128 rows on Hopper's tensor cores, by clusters of two or four blocks that stay and share what they read; or of 128 columns
// of the result (SWAP), whose width then runs along m. See product_tiles.cuh.
// What a launch takes beside its products, in clocks of an H200 with cold caches: 3400 until the first operands are there, 700
// between tiles, and at the end what storing takes, when all blocks store at once: each gets 26 to 38 bytes a clock through.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16,f32
// kmark: require size==2||(tf32&&layout.nt)
// kmark: let ACROSS_A = layout.tn+layout.tt
// kmark: let ACROSS_B = layout.nn+layout.tn
// kmark: let WG = 2
// kmark: let H = 1
// kmark: let BK = 128/size
// kmark: let BYTES = out.f32||(out.same&&size==4)?4:2
// kmark: let DIRECT = d.pitch*BYTES%16>0
//
// Clusters of kind K: two blocks one below the other, two side by side, two by two, four one below the other. So many fit at once.
// kmark: let DOWN(K) = K==3?4:K==1?1:2
// kmark: let SIDE(K) = K==1||K==2?2:1
// kmark: let ONCE(K) = K>1?sms/4-sms/40:sms/2
// Tiles of W columns, swapped if S: how many clusters' there are, and how many are left when no round of them is full.
// kmark: let TILES(S,K,W) = ceil(S?n:m,128*DOWN(K))*ceil(S?m:n,W*SIDE(K))
// kmark: let REST(S,K,W) = TILES(S,K,W)%ONCE(K)
//
// What they cost, in clocks. A step of k takes as long as the slowest of tensor cores, shared memory and the L2 cache, and a twentieth
// of the others. The cache hands out 73 lines of 128 bytes a clock to all C clusters at work; a row of operands is one, or more where
// rows do not begin at halves of lines (LINE, in hundredths).
// Fitted to 168 times of 16 shapes on an H200: 6 % off in the mean; what it chooses of those is 0.2 % slower than the best.
// kmark: let STEPS = ceil(k,BK)
// kmark: let LINE(X) = X*size%64==0?100:X*size%32==0?125:215
// Columns that run across k come by 64, from multiples of the width on.
// kmark: let BY_64(S) = S?ACROSS_A:ACROSS_B
// kmark: let HELD(S,W) = BY_64(S)?64*ceil(W,64):W
// kmark: let LINE_ROWS(S) = LINE(S?b.pitch:a.pitch)
// kmark: let LINE_COLS(S,W) = max(LINE(S?a.pitch:b.pitch),BY_64(S)?LINE(W):100)
// kmark: let CACHE(S,K,W,C) = (128/SIDE(K)*LINE_ROWS(S)+HELD(S,W)/DOWN(K)*LINE_COLS(S,W))*C*DOWN(K)*SIDE(K)/7300
// kmark: let MULTIPLY(W) = max(4*W,2*W+175)
// kmark: let STEP(X,Y) = 23+max(X,Y)+min(X,Y)/20
// kmark: let TIME(S,K,W,C) = STEPS*STEP(CACHE(S,K,W,C),MULTIPLY(W))
// Tiles that are left are cut into parts if it pays. Parts wait for each other, so all must run at once: of clusters of two that many
// do on every GPU, of four it depends on which multiprocessors a GPU has.
// kmark: let PUT_TIME = BYTES==4?4000:DIRECT?2500:700
// kmark: let CUT(S,K,W,P) = TIME(S,K,W,REST(S,K,W)*P)/P+(P>1)*(5400+8*W*(P-1))
// kmark: let FIT(S,K,W) = K>1||REST(S,K,W)==0||STEPS<32||W%16>0?1:min(ONCE(K)/REST(S,K,W),4)
// kmark: let PARTS(S,K,W) = CUT(S,K,W,FIT(S,K,W))<CUT(S,K,W,1)?FIT(S,K,W):1
// kmark: let ROUNDS(S,K,W) = TILES(S,K,W)/ONCE(K)*(TIME(S,K,W,ONCE(K))+PUT_TIME)
// kmark: let COST(S,K,W) = ROUNDS(S,K,W)+(REST(S,K,W)>0)*(CUT(S,K,W,PARTS(S,K,W))+PUT_TIME)+16*W
// Parts of a tile store in boxes that divide its width: narrow ones cost a twentieth. Tiles of less than 256 columns read more for
// the same work, and where power is the limit that costs clocks; of less than 128, one after the other, a tenth more than MULTIPLY
// says. Columns by 64 cost more where tiles do not begin at multiples of them. Side by side, tiles that are not swapped cost more than
// that, and so do narrow ones by fours; why is not known.
// kmark: let MORE(S,K,W) = 5*(PARTS(S,K,W)>1&&W%64>0)+3*(W<256&&TILES(S,K,W)>=2*ONCE(K))+10*(W<128&&TILES(S,K,W)>=2*ONCE(K))+(K>1&&W%16>0)+3*(!S&&K==1)+15*(K>1&&W<80)+2*(S||K>0)+4*(BY_64(S)&&W%64>0)
// kmark: let SUM(S,K,W) = COST(S,K,W)*(100+MORE(S,K,W))
// kmark: let WIDTH(S,K) = least(W,64,256,8,SUM(S,K,W))
// kmark: let CHOICE = least(I,0,BYTES==4?3:7,1,SUM(I/4,I%4,WIDTH(I/4,I%4)))
// kmark: let SWAP = CHOICE/4
// kmark: let KIND = CHOICE%4
// kmark: let CM = DOWN(KIND)
// kmark: let CN = SIDE(KIND)
// kmark: let BN = WIDTH(SWAP,KIND)
// kmark: let SPLIT = PARTS(SWAP,KIND,BN)
// kmark: let BAND = 8
// kmark: let ALL = TILES(SWAP,KIND,BN)
// kmark: let USED = SPLIT==1?ceil(ALL,ceil(ALL,ONCE(KIND))):ALL>=ONCE(KIND)?ONCE(KIND):ALL*SPLIT
// Registers are scarce where a bias comes by rows, or results are stored by threads.
// kmark: let LATE = BYTES==2&&STEPS>=4&&!((SWAP||DIRECT)&&bias.yes&&BN>192)
//
// kmark: let PUT = min(128/BYTES,SPLIT==1||BN%64==0?64:BN%32==0?32:16)
// kmark: let STAGE = (128+HELD(SWAP,BN))*128
// kmark: let STAGES = min(8,(max_shared-33*1024-512)/STAGE)
// kmark: map a = a box=ACROSS_A?64:BK,(ACROSS_A?BK:SWAP?BN:128)/(SWAP?CM:CN) swizzle=128
// kmark: map b = b box=ACROSS_B?64:BK,(ACROSS_B?BK:SWAP?128:BN)/(SWAP?CN:CM) swizzle=128
// kmark: map d = d box=SWAP?64:PUT,SWAP?PUT:16 dims=DIRECT?64:n,DIRECT?1:m strides=DIRECT?64:d.pitch swizzle=SWAP?128:PUT*BYTES
// kmark: workspace SPLIT>1?USED*CM*CN*2*(SPLIT*4+BN*256):0 zeroed
// kmark: kernel gemm_wgmma grid=USED*CM*CN block=384 cluster=CM*CN shared=STAGES*STAGE+33*1024
#include "product_tiles.cuh"

KERNEL __launch_bounds__(WGMMA_THREADS, 1) gemm_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    multiply_tiles(a, maps);
}
