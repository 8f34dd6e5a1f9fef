// FlashAttention-3 on Hopper over ragged sequences: blocks stay and take tiles of queries one by one from a list of those that
// there are, which every block makes for itself; the tiles that see most keys come first. Heads that share keys share tiles, so
// that short sequences fill them.
// kmark: arch sm_90a
// kmark: only dtype=f16,bf16
// kmark: require d<=256&&d%8==0
// kmark: constants d
// kmark: let SHARE = hq/hkv
// kmark: let PACK = 64%SHARE==0?SHARE:1
// kmark: let ROWS = s*PACK
// kmark: let GROUPS = ROWS<=64?1:d<=64&&ceil(ROWS,192)*15<=ceil(ROWS,128)*12?3:2
// kmark: let IN_REGISTERS = d>64&&d<=128
// kmark: let BN = d<=128?128:d<=192?112:80
// kmark: let ROW = ceil(d,64)*128
// kmark: let AHEAD = d<=64?2:1
// kmark: let TURNS = GROUPS>1&&(d<=64||d>192)
// kmark: let STAGES = min(4,(max_shared-2048-AHEAD*GROUPS*64*ROW)/(2*BN*ROW))
// kmark: let TILES = ceil(ROWS,64*GROUPS)*b
//
// Tiles go by sections whose keys and values fit in the L2 cache: some sequences, or a part of the heads of one; FIT heads of
// the longest, or as many as give every block some tiles.
// kmark: let LONGEST = s+prefix
// kmark: let FIT = max(l2/2/(LONGEST*d*4),ceil(4*sms,ceil(ROWS,64*GROUPS)*(SHARE/PACK)))
// kmark: let PARTS = FIT>=hkv||hkv%2>0?1:FIT*2>=hkv||hkv%4>0?2:FIT*4>=hkv||hkv%8>0?4:8
// kmark: let WIDE = hq/PACK/PARTS
// kmark: let TOGETHER = max(1,min(b,FIT/hkv))
// kmark: map q = q box=64,PACK,64/PACK,1 dims=d,hq,q.rows/hq,1 strides=q.pitch,hq*q.pitch,hq*q.pitch swizzle=128
// kmark: map k = k box=64,BN,1,1 dims=d,k.rows/hkv,hkv,1 strides=hkv*k.pitch,k.pitch,hkv*k.pitch swizzle=128
// kmark: map v = v box=64,BN,1,1 dims=d,v.rows/hkv,hkv,1 strides=hkv*v.pitch,v.pitch,hkv*v.pitch swizzle=128
// kmark: workspace 16+TILES*PARTS*8 zeroed
// kmark: kernel varlen_wgmma grid=min(TILES*(hq/PACK),sms) block=128*(GROUPS+1) shared=(AHEAD*64*GROUPS+2*STAGES*BN)*ROW+1024
#include "attention_wgmma.cuh"

// Rows behind the end of a sequence are those of the next one. Queries among them are not written and keys are masked; values
// get the weight 0, which is enough because all of them are finite. Behind the last sequence there are zeros.
struct Ragged {
    int start_q, start_k;
    Sequence seq;
    __device__ __forceinline__ Ragged(const Args& a, int s) : start_q(a.cu_q.ptr[s]), start_k(a.cu_k.ptr[s]) {
        seq = Sequence{a.cu_q.ptr[s + 1] - start_q, a.cu_k.ptr[s + 1] - start_k};
    }
    // The first tile of which the last query sees `keys` keys or more, a window aside. Those behind it do so too.
    __device__ __forceinline__ int from(int keys) const {
        if (seq.keys < keys) return (seq.queries + QUERIES - 1) / QUERIES;
        return CAUSAL ? max(0, (keys - seq.shift() + QUERIES - 1) / QUERIES - 1) : 0;
    }
};

// Some heads of a tile: `at` is the tile's number in the sequence times PARTS, plus which part of the heads.
struct Entry {
    int sequence, at;
};

// Makes the list, and returns its length. All blocks write the same to the same places. Of a section, thread i lists the tiles
// in class i; class 0 sees most keys.
DEVICE int list_tiles(const Args& a, Entry* list) {
    constexpr int CLASSES = 256, STEP = LONGEST / CLASSES + 1;
    __shared__ int sums[CLASSES / 32];
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, total = 0;
    bool counts = thread < CLASSES;
    auto begin = [&](const Ragged& r) { return r.from(thread == CLASSES - 1 ? -FAR : (CLASSES - 1 - thread) * STEP); };
    auto end = [&](const Ragged& r) { return r.from(thread == 0 ? FAR : (CLASSES - thread) * STEP); };
    for (int first = 0; first < a.b; first += TOGETHER) {
        int last = min(first + TOGETHER, (int)a.b), own = 0, section = 0;
        for (int s = first; counts && s < last; s++) {
            Ragged r(a, s);
            own += end(r) - begin(r);
        }
        int place = own;
        #pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            int before = __shfl_up_sync(~0u, place, by);
            if (lane >= by) place += before;
        }
        __syncthreads(); // everybody has read the sums of the section before
        if (counts && lane == 31) sums[warp] = place;
        __syncthreads();
        place -= own;
        #pragma unroll
        for (int w = 0; w < CLASSES / 32; w++) {
            if (w < warp) place += sums[w];
            section += sums[w];
        }
        for (int s = first; own > 0 && s < last; s++) {
            Ragged r(a, s);
            for (int tile = begin(r); tile < end(r); tile++, place++) {
                for (int part = 0; part < PARTS; part++) list[total + part * section + place] = Entry{s, tile * PARTS + part};
            }
        }
        total += PARTS * section;
    }
    __syncthreads();
    return total;
}

// What the producer leaves in shared memory of a tile.
struct Slot {
    Sequence seq;
    int first, start_q, start_k, head;
};

KERNEL __launch_bounds__(FLASH_THREADS, 1) varlen_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    __shared__ Slot slots[SLOTS];
    FlashShared s = flash_shared(raw);
    Entry* list = (Entry*)((u8*)a.workspace + 16);
    int tiles = list_tiles(a, list) * WIDE;
    auto find = [&](int number) {
        Entry entry = list[number / WIDE];
        Ragged r(a, entry.sequence);
        return Slot{r.seq, entry.at / PARTS * QUERIES, r.start_q, r.start_k, (entry.at % PARTS * WIDE + number % WIDE) * PACK};
    };
    auto tile_of = [&](int id) {
        const Slot& t = slots[id % SLOTS];
        Head<float> lse{nullptr, 1};
        if constexpr (LSE) lse = Head<float>{a.lse.row(t.start_q) + t.head, a.lse.pitch};
        int kv_head = t.head / (int)(a.hq / a.hkv);
        return Tile{t.seq, t.first, t.start_q, t.start_k, t.head, kv_head, 0, ragged_out(a.o, t.start_q, a.hq, t.head), lse, a.o.pitch, 1};
    };
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (group == 0) {
        fewer_registers<GROUPS == 3 ? 32 : 40>();
        if (elected(0)) flash_produce(s, maps, Counter{(u32*)a.workspace, tiles}, slots, find, tile_of);
    } else {
        more_registers<GROUPS == 3 ? 160 : 232>();
        flash_consume(s, group - 1, tile_of);
    }
}
