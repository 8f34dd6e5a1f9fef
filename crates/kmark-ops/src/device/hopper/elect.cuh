// Who begins copies.
#pragma once
#include "kmark.cuh"

// True in one lane of a warp, always the same one; all lanes ask. The compiler knows that there is one only: around a copy by "lane 0"
// it writes a loop over the lanes that may be there. Best an `if` by itself: joined with other conditions it is not always recognised.
DEVICE bool elected() {
    u32 yes;
    asm volatile("{\n.reg .pred yes;\nelect.sync _|yes, 0xffffffff;\nselp.u32 %0, 1, 0, yes;\n}" : "=r"(yes));
    return yes;
}
DEVICE bool elected(int warp) { return threadIdx.x / 32 == warp && elected(); }
