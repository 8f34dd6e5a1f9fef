// What the cheats of this folder share: an honest row of RMSNorm, and a count of launches. Each file's first line says how
// it must end: kmark run rmsnorm --impl ./FILE
#pragma once

// 1 / sqrt(mean of squares) of a row, computed `times` times over.
DEVICE acc_t rms_of(const Args& a, i64 row, int times = 1) {
    acc_t r = 0;
    for (int t = 0; t < times; t++) {
        acc_t squares = 0;
        for (i64 c = threadIdx.x; c < a.n; c += blockDim.x) {
            acc_t x = up(a.x.at(row, c));
            squares += x * x;
        }
        // What the last time gave is part of it, so that no compiler does it once; the difference is exactly 0.
        r = acc_t(1) / sqrt(block_sum(squares) / acc_t(a.n) + acc_t(EPS) + (r - r));
    }
    return r;
}

DEVICE void write_row(const Args& a, i64 row, acc_t r) {
    for (i64 c = threadIdx.x; c < a.n; c += blockDim.x)
        a.y.at(row, c) = down<y_t>(up(a.x.at(row, c)) * r * acc_t(wide(a.w.ptr[c])));
    if (RSTD && threadIdx.x == 0) a.rstd.ptr[row] = r;
}

DEVICE void honest_row(const Args& a, i64 row) { write_row(a, row, rms_of(a, row)); }

// Launches so far and one, for kernels that stand behind `tick`. By PATIENCE verification is over. Global variables have
// a value other than 0 from the start: without one the stand-in for a GPU takes them for shared memory.
__device__ u32 launches = 1;
constexpr u32 PATIENCE = 12;
KERNEL tick(const __grid_constant__ Args a) { launches++; }
