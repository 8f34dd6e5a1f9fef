// Tiles of 128 rows of one group on Hopper's tensor cores, by pairs of blocks that stay and share
// what both read: columns where a group fills two tiles, rows where it may not.
// kmark: arch sm_90a
// kmark: only dtype=bf16,f16
// kmark: require form.masked||align%128==0
// kmark: let ACROSS_A = 0
// kmark: let ACROSS_B = 0
// kmark: let CM = (lengths.equal&&m%256==0)||(form.masked&&m>=1024)?2:1
// kmark: let CN = 3-CM
// kmark: let SWAP = 0
// kmark: let WG = 2
// kmark: let DIRECT = 0
// kmark: let H = 1
// kmark: let BK = 64
// kmark: let BN = least(W,128,256,64,ceil(n,CN*W)*max(4*W,3*W+256))
// kmark: let SPLIT = 1
// kmark: let PUT = 64
// kmark: let LATE = k>192
// kmark: let STAGES = min(8,(max_shared-33*1024-512)/((128+BN)*128))
// kmark: let SLOT = form.masked?m:d.rows
// kmark: map a = a box=64,128/CN swizzle=128
// kmark: map b = b box=64,BN/CM swizzle=128
// kmark: map d = d box=PUT,16,1 dims=n,SLOT,d.rows/SLOT strides=d.pitch,d.pitch*SLOT swizzle=128
// kmark: kernel grouped_wgmma grid=sms/2*2 block=384 cluster=2 shared=STAGES*(128+BN)*128+33*1024
#include "groups_wgmma.cuh"

struct Place {
    int row, col, slot;
};

KERNEL __launch_bounds__(WGMMA_THREADS, 1) grouped_wgmma(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ u8 raw[];
    ProductShared s = product_shared(raw);
    product_begin(s, maps);
    int rank = cluster_rank(), group = __shfl_sync(~0u, threadIdx.x / 128, 0), steps = (int)((a.k + BK - 1) / BK);
    if (group == 0) {
        fewer_registers<40>();
        Ring<STAGES> ring{0, 1};
        if (elected(0)) each_group_tile(a, rank, steps, [&](const GroupPiece& piece) { produce(ring, s, maps, rank, piece); });
    } else {
        more_registers<232>();
        Ring<STAGES> ring{0, 0};
        int half = group - 1;
        Late<Place> late;
        auto put = [&](const Place& at, u8* from, int c, int r) { tma_store(maps.d, from, at.col + c, at.row + half * 64 + r, at.slot); };
        each_group_tile(a, rank, steps, [&](const GroupPiece& piece) {
            float d[BN / 2];
            consume<LATE ? LATE_STEPS : 0>(d, ring, s, half, piece, [&](int step) { late.store(s, half, step, put); });
            Place at{piece.in_slot, piece.col, FORM == FORM_masked ? piece.group : 0};
            auto value = [](float v, int, int) { return v; };
            if constexpr (LATE) late.keep(d, at, value);
            else put_tile(d, s, half, value, [&](u8* from, int c, int r) { put(at, from, c, r); });
        });
        late.store_all(s, half, put);
        if (elected()) tma_wait<0>();
    }
    cluster_meet();
}
