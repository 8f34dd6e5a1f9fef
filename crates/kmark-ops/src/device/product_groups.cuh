// Which rows of a tile belong to which group. A grid has a tile of `tile` rows for each so many rows of d; where groups
// lie in slots of full size, tiles start anew in every slot.
#pragma once
#include "product.cuh"

template <class A> DEVICE u32 row_tiles(const A& a, int tile) {
    return FORM == FORM_masked ? (u32)a.g * tiles(a.m, tile) : tiles(a.a.rows, tile);
}

// Calls f(group, first row, row behind the last) for the groups that have rows in row tile `at`; converged.
template <class A, class F> DEVICE void each_group(const A& a, u32 at, int tile, F f) {
    if constexpr (FORM == FORM_masked) {
        u32 per_group = tiles(a.m, tile);
        i64 g = at / per_group, slot = g * a.m, first = slot + (i64)(at % per_group) * tile;
        i64 end = slot + a.count.ptr[g];
        if (first < end) f(g, first, end - first < tile ? end : first + tile);
    } else {
        i64 top = (i64)at * tile;
        int rows = (int)(a.a.rows - top < tile ? a.a.rows - top : tile), lane = threadIdx.x % 32;
        const int* group = a.group.ptr + top;
        // The rows of a group lie together; padding has -1.
        for (int from = 0;;) {
            int first = tile, count = 0;
            for (int r = lane; r < rows; r += 32)
                if (r >= from && r < first && group[r] >= 0) first = r;
            first = -warp_all<Max>(-first);
            if (first == tile) break;
            for (int r = lane; r < rows; r += 32) count += group[r] == group[first];
            count = warp_all<Add>(count);
            f((i64)group[first], top + first, top + first + count);
            from = first + count;
        }
    }
}
