// A product of 16-bit operands, tile by tile, by the blocks of product_wgmma.cuh. A tile's results wait in registers and are stored
// while the next one is multiplied (LATE). Where whole tiles would leave multiprocessors idle at the end, the last ones are cut
// along k, and their parts exchange sums through memory. The file says BAND, too (see Work).
#pragma once
#include "product_wgmma.cuh"

struct Place {
    int row, col;
};

template <class A> DEVICE void multiply_tiles(const A& a, const Maps& maps) {
    extern __shared__ u8 raw[];
    ProductShared s = product_shared(raw);
    const Work work = product_begin(s, maps, [&] { return Work(SWAP ? a.n : a.m, SWAP ? a.m : a.n, a.k, true, BAND).now(); });
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); // one for the whole warp, and the compiler knows it
    if (group == 0) {
        if (WG == 2) fewer_registers<40>();
        Ring<STAGES> ring{0, 1};
        if (elected(0)) work.each_piece([&](const Piece& piece, auto) { produce(ring, s, maps, work.rank, piece); });
    } else {
        if (WG == 2) more_registers<232>();
        Ring<STAGES> ring{0, 0};
        int half = group - 1;
        Late<Place> late;
        auto put = [&](const Place& at, u8* from, int c, int r) {
            int row = at.row + half * 64 + r, col = at.col + c;
            if constexpr (DIRECT) store_box(a.d, from, SWAP ? col : row, SWAP ? row : col);
            else tma_store(maps.d, from, SWAP ? row : col, SWAP ? col : row);
        };
        work.each_piece([&](const Piece& piece, auto is_part) {
            float d[BN / 2];
            consume<LATE ? LATE_STEPS : 0>(d, ring, s, half, piece, [&](int step) { late.store(s, half, step, put); });
            Place at{piece.row, piece.col};
            int first = SWAP ? at.row + half * 64 : at.col;
            auto value = [&](float v, int r, int c) {
                int col = first + (SWAP ? r : c);
                return BIAS && col < a.n ? v + up(a.bias.ptr[col]) : v;
            };
            auto put_here = [&](u8* from, int c, int r) { put(at, from, c, r); };
            if constexpr (is_part.value) {
                send_sums(d, a.workspace, work, piece.part, half);
                await_sums(a.workspace, work, piece.part, half);
                auto add = [&](float (&v)[PUT / 2], int c) { add_sums(v, a.workspace, work, piece.part, half, c); };
                put_tile(d, s, half, add, value, put_here, first_put(piece.part), first_put(piece.part + 1));
                late.some = false;
            } else if constexpr (LATE) {
                late.keep(d, at, value);
            } else {
                put_tile(d, s, half, value, put_here);
            }
        });
        late.store_all(s, half, put);
        if (elected()) tma_wait<0>();
    }
}
