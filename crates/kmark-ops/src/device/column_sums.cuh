// Sums over all rows for every column, as gradients of weights need them: partial sums in the workspace, then their
// sum. The order of additions depends only on the sizes and the number of multiprocessors.
#pragma once
#include "rows.cuh"

// From Hopper on, a launch may let the next one start (with=overlap), which then waits for the end of it by itself.
#if !defined(KMARK_EMULATE) && __CUDA_ARCH__ >= 900
DEVICE void next_may_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void wait_for_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
DEVICE void next_may_start() {}
DEVICE void wait_for_last() {}
#endif

// Partial sums [parts][sums][pitch] behind a header that says how many parts there are.
template <int sums, i64 columns> struct Parts {
    static constexpr i64 pitch = ceil_div(columns, 32) * 32;
    DEVICE i64& count(u8* workspace) { return *reinterpret_cast<i64*>(workspace); }
    DEVICE acc_t* at(u8* workspace, i64 part, int sum) {
        return reinterpret_cast<acc_t*>(workspace + 256) + (part * sums + sum) * pitch;
    }
};

// Adds up what the teams of a block summed in layout L. Calls each(f) with f(k, column) for every access of a thread, which also has the
// sum of column `end`, if that is one, and then put(column, sum). `all` is shared memory, up to a row for each warp or team.
template <class L, class Put, class Each>
DEVICE void add_teams(acc_t (&mine)[L::count][L::step], acc_t* all, Put put, Each each, int end = -1, acc_t end_sum = 0) {
    using T = typename L::Team;
    // Teams of one warp first, by shuffles; then one row of shared memory per warp or per team of warps.
    constexpr int owners = T::per < 32 ? T::threads / 32 : T::rows;
    __syncthreads(); // it may still be read
    if constexpr (T::per < 32) {
#pragma unroll
        for (int k = 0; k < L::count; k++)
#pragma unroll
            for (int i = 0; i < L::step; i++)
#pragma unroll
                for (int step = 16; step >= T::per; step /= 2)
                    mine[k][i] += __shfl_xor_sync(0xffffffffu, mine[k][i], step);
    }
    int owner = T::per < 32 ? threadIdx.x / 32 : T::index();
    if (owner < owners && (T::per >= 32 || threadIdx.x % 32 < T::per)) {
        each([&](int k, int column) {
#pragma unroll
            for (int i = 0; i < L::step; i++)
                if (L::has(k, column + i)) all[owner * L::length + column + i] = mine[k][i];
        });
        if (end >= 0) all[owner * L::length + end] = end_sum;
    }
    __syncthreads();
#pragma unroll
    for (int first = 0; first < L::length; first += T::threads) {
        int column = first + threadIdx.x;
        if (column >= L::length) break;
        acc_t sum = 0;
#pragma unroll
        for (int i = 0; i < owners; i++) sum += all[i * L::length + column];
        put(column, sum);
    }
}
template <class L, class Put> DEVICE void add_teams(acc_t (&mine)[L::count][L::step], acc_t* all, Put put) {
    add_teams<L>(mine, all, put, [](auto f) { L::template each_of<L::count>(f); });
}

// Writes what the threads of a block summed, all its teams together, as add_teams does. Teams of a whole block store vectors.
template <class L, class Each>
DEVICE void put_part(acc_t (&mine)[L::count][L::step], Each each, int end, acc_t end_sum, acc_t* part, acc_t* all) {
    if constexpr (L::Team::rows > 1) {
        add_teams<L>(mine, all, [&](int column, acc_t sum) { part[column] = sum; }, each, end, end_sum);
    } else {
        each([&](int k, int column) {
            Vec<acc_t, L::step> v;
#pragma unroll
            for (int i = 0; i < L::step; i++) v.v[i] = mine[k][i];
            L::put(part, k, column, v);
        });
    }
}

// Block (32, 32): the sums of 32 columns over all parts. Calls put(sum, column, value).
template <int sums, i64 columns, class F> DEVICE void add_parts(u8* workspace, F put) {
    using P = Parts<sums, columns>;
    __shared__ acc_t tile[32][33];
    wait_for_last();
    i64 parts = P::count(workspace), first = (i64)blockIdx.x * 32;
    for (int s = 0; s < sums; s++) {
        acc_t sum = 0;
#pragma unroll 8
        for (i64 part = threadIdx.y; part < parts; part += 32) sum += P::at(workspace, part, s)[first + threadIdx.x];
        __syncthreads();
        tile[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        sum = warp_all<Add>(tile[threadIdx.x][threadIdx.y]);
        if (threadIdx.x == 0 && first + threadIdx.y < columns) put(s, first + threadIdx.y, sum);
    }
}
