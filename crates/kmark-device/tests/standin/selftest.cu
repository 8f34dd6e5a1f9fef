// Kernels of selftest.cpp: each shows one thing that the stand-in must get right.
// Not a kernel: KERNEL in_a_comment(int x) or extern "C" __global__ void in_a_comment(int x).
#include "kmark.cuh"
#include "mma.cuh"
#include "extra/more.cuh"

const char* const TEXT = "KERNEL in_a_string(";

struct Args {
    const float* x;
    float* y;
    i64 n;
};

KERNEL scale(const __grid_constant__ Args a) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n) a.y[i] = 2.0f * a.x[i] + FACTOR;
}

KERNEL __launch_bounds__(256) row_sums(const __grid_constant__ Args a) {
    float sum = 0;
    for (i64 i = threadIdx.x; i < a.n; i += blockDim.x) sum += a.x[blockIdx.x * a.n + i];
    sum = block_sum(sum);
    double largest = block_max((double)threadIdx.x);
    if (threadIdx.x == 0) a.y[blockIdx.x] = sum + (float)largest - (float)(blockDim.x - 1);
}

// 40 threads: the last warp has 8.
extern "C" __global__ void __launch_bounds__(64, 1) shuffles(u32* out, int width, i64* wide) {
    u32 t = threadIdx.x;
    out[0 * 40 + t] = __shfl_up_sync(0xffffffffu, t, 1);
    out[1 * 40 + t] = __shfl_xor_sync(0xffffffffu, t, 4, width);
    out[2 * 40 + t] = __ballot_sync(0xffffffffu, t % 2);
    out[3 * 40 + t] = __all_sync(0xffffffffu, t < 32) + 2 * __any_sync(0xffffffffu, t == 39);
    out[4 * 40 + t] = (u32)__shfl_sync(0xffffffffu, (double)t, 3);
    wide[t] = __shfl_down_sync(0xffffffffu, (i64)t << 40, 2);
    if (t % 32 < 4) out[5 * 40 + t] = __shfl_sync(0xfu, t, 3); // a part of the warp
    __syncwarp();
    if (t == 35) return; // the others do not wait for it
    __syncthreads();
    out[6 * 40 + t] = __ballot_sync(0xffffffffu, 1);
}

// d[16x8] = a[16x16] * b[16x8]: a row by row through ldmatrix4, b row by row through ldmatrix4_trans.
template <class T> DEVICE void product(const T* a, const T* b, float* d) {
    __shared__ __align__(16) T sa[16 * 16], sb[16 * 8];
    int lane = threadIdx.x;
    copy_async16(&sa[lane * 8], a + lane * 8);
    copy_commit();
    copy_async16(&sb[lane % 16 * 8], b + lane % 16 * 8, true);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    u32 ra[4], rb[4];
    ldmatrix4(ra, &sa[lane % 16 * 16 + lane / 16 * 8]);
    ldmatrix4_trans(rb, &sb[lane % 16 * 8]);
    float sum[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    mma(sum, ra, rb[0], rb[1], T{});
    for (int i = 0; i < 4; i++) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i] - 1.0f;
}
KERNEL product_f16(const f16* a, const f16* b, float* d) { product(a, b, d); }
KERNEL product_bf16(const bf16* a, const bf16* b, float* d) { product(a, b, d); }

template <class T> DEVICE T* dynamic() {
    extern __shared__ __align__(16) u8 shared[];
    return (T*)shared;
}
KERNEL transpose(const __grid_constant__ Args a) {
    float(*tile)[33] = (float(*)[33])dynamic<float>();
    i64 x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = a.x[(y + j) * a.n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) a.y[(y + j) * a.n + x] = tile[threadIdx.x][threadIdx.y + j];
}

// Shared memory as a block finds it: static, then dynamic; and one byte too far if asked.
template <class T> DEVICE T swap_stale(T v) {
    __shared__ alignas(16) T of_template;
    T old = of_template;
    of_template = v;
    return old;
}
KERNEL stale(u32* out, int too_far) {
    __shared__ u32 fixed[4];
    out[2] = swap_stale(out[0]);
    extern __shared__ __align__(16) u8 shared[];
    out[0] = fixed[0];
    out[1] = ((u32*)shared)[1];
    fixed[0] = 1;
    ((u32*)shared)[1] = 1;
    if (too_far) shared[128] = 0;
}

KERNEL unwaited(u32* out, const u32* from) {
    __shared__ __align__(16) u32 to[4];
    copy_async16(to, from);
    copy_commit();
    copy_wait<1>(); // one too few
    out[0] = to[0];
    copy_wait<0>();
    out[1] = to[0];
}

KERNEL blocker(const u32* flag, u64* times) {
    times[0] = global_ns();
    while (load_system(flag) == 0) {}
    times[1] = global_ns();
}

__device__ u32 started = 0; // with a value, so it is not taken for shared memory
template <class T> DEVICE void count(T* p, T by) { atomicAdd(p, by); }
KERNEL count(u32* p) { count(p, 1u); }
KERNEL count_all(u32* p) { *p = atomicAdd(&started, 1u) + 1; }
KERNEL bad_address(u32* p) { p[threadIdx.x == 7 ? 1024 : 0] = 1; }
KERNEL stack_overflow(u32* p) { volatile u8 big[1 << 20]; big[threadIdx.x] = 1; *p = big[*p % 7]; }
KERNEL deadlock(u32* p) {
    if (threadIdx.x < 5) __syncwarp();
    else __syncthreads();
    *p = 1;
}
KERNEL misaligned(u8* p) {
    __shared__ __align__(16) u8 to[32];
    copy_async16(to + 1, p);
}
KERNEL barriers(u32* p) {
    for (int i = 0; i < 10; i++) {
        __syncthreads();
        p[threadIdx.x] += 1;
    }
}
KERNEL many_shuffles(float* p) {
    float v = p[threadIdx.x];
    for (int i = 0; i < 100; i++) v += __shfl_xor_sync(0xffffffffu, v, 1);
    p[threadIdx.x] = v;
}
KERNEL many_products(float* p) {
    float d[4] = {};
    u32 a[4] = {0x3c003c01, 0x3c003802, 0x3c00bc01, 0x3c003801};
    for (int i = 0; i < 100; i++) mma(d, a, 0x38013802, 0x3803b804, f16{});
    p[threadIdx.x] = d[0];
}

#ifndef KMARK_EMULATE // Hopper, by its PTX
#include "cluster.cuh"

struct alignas(64) TensorMap { u64 words[16]; };
#include "hopper/bulk.cuh"
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"

// Each block sends its number to the next one of its cluster; out has what was there before and what came.
KERNEL ring(u32* out) {
    __shared__ float slot;
    __shared__ u64 arrived;
    if (threadIdx.x == 0) barrier_init(&arrived, 1), barrier_fence_init(), barrier_expect(&arrived, 4);
    cluster_meet();
    int next = (cluster_rank() + 1) % 4;
    if (threadIdx.x == 0) {
        send_to_block(&slot, (float)blockIdx.x, &arrived, next);
        cluster_arrive();
    } else {
        cluster_arrive();
    }
    cluster_wait();
    if (threadIdx.x == 0) out[2 * blockIdx.x] = bits_of(*(volatile float*)&slot);
    barrier_wait(&arrived, 0);
    if (threadIdx.x == 0) out[2 * blockIdx.x + 1] = (u32)slot;
}

// The first block waits for the last: no later block would ever begin if one came after the other.
KERNEL last_first(u32* out) {
    if (blockIdx.x == gridDim.x - 1) store_system(out, 1);
    while (load_system(out) == 0) {}
    atomicAdd(out + 1, 1u);
}

// A box of 64x8 from (x, y), swizzled; out has it in order. Stored again one row lower.
KERNEL box(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to, u16* out, int x, int y) {
    __shared__ __align__(1024) u8 tile[1024];
    __shared__ u64 there;
    if (threadIdx.x == 0) {
        barrier_init(&there, 1);
        barrier_expect(&there, 1024);
        tma_load(tile, from, &there, x, y);
        out[0] = *(volatile u16*)tile; // too early
    }
    __syncthreads();
    barrier_wait(&there, 0);
    for (int i = threadIdx.x; i < 512; i += 32) out[1 + i] = *(u16*)(tile + (i / 64 * 128 + (i % 64 * 2 ^ i / 64 * 16)));
    if (elected()) tma_store(to, tile, x, y + 1), tma_commit();
    if (elected()) tma_wait<0>();
}

// d[64x16] = a[64x64] b[16x64]^T; first what stands there before the wait.
KERNEL warpgroup(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, float* before) {
    __shared__ __align__(1024) u8 left[64 * 128], right[16 * 128];
    __shared__ u64 there;
    if (threadIdx.x == 0) {
        barrier_init(&there, 1);
        barrier_expect(&there, 80 * 128);
        for (int r = 0; r < 64; r += 8) tma_load(left + r * 128, a, &there, 0, r);
        for (int r = 0; r < 16; r += 8) tma_load(right + r * 128, b, &there, 0, r);
    }
    __syncthreads();
    barrier_wait(&there, 0);
    float sum[8];
    for (float& s : sum) s = -1.0f;
    wgmma_fence();
    for (int k = 0; k < 4; k++) wgmma<bf16>(sum, along_k(left) + 2 * k, along_k(right) + 2 * k, k);
    wgmma_commit();
    if (threadIdx.x == 0) *before = sum[0];
    wgmma_wait<0>();
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    for (int i = 0; i < 8; i++) d[(row + i / 2 % 2 * 8) * 16 + i / 4 * 8 + col + i % 2] = sum[i];
}

// The second launch may begin before the first has ended.
KERNEL lets_begin(u32* out) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (threadIdx.x == 0) atomicAdd(out, 7u);
}
KERNEL begins_early(u32* out) {
    u32 early = *(volatile u32*)out;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (early == 0) out[1] = 1; // at least the thread that was first
    if (threadIdx.x == 0) out[3 + blockIdx.x] = *(volatile u32*)out;
}

KERNEL twice(u32*) {
    __shared__ u64 barrier;
    if (threadIdx.x == 0) barrier_init(&barrier, 1), barrier_expect(&barrier, 16);
    __syncthreads();
    if (threadIdx.x == 1) barrier_arrive(&barrier);
}
// A copy comes to where all threads have read.
template <bool FENCE> DEVICE void overtake(const u32* from) {
    __shared__ __align__(16) u8 tile[512];
    __shared__ u64 there;
    u32 read[4];
    if (threadIdx.x == 0) barrier_init(&there, 1), barrier_expect(&there, 512);
    ldmatrix4(read, tile + threadIdx.x % 32 * 16);
    if (FENCE) fence_for_copies();
    __syncthreads();
    if (threadIdx.x == 0) bulk_load(tile, from, 512, &there);
    barrier_wait(&there, 0);
}
KERNEL fenced(u32* from) { overtake<true>(from); }
KERNEL no_fence(u32* from) { overtake<false>(from); }
KERNEL no_barrier(u32*) {
    __shared__ u64 barrier;
    barrier_wait(&barrier, 0);
}
// All rows of the left operand are the first eight, and no more is there.
KERNEL short_operand(u32*) {
    extern __shared__ __align__(1024) u8 eight_rows[];
    float sum[8] = {};
    u64 rows = shared_address(eight_rows) >> 4;
    wgmma_fence();
    wgmma<bf16>(sum, rows, rows, 0);
    wgmma_commit();
    wgmma_wait<0>();
}
KERNEL unknown(u32* out) { asm("tensormap.cp_fenceproxy.sync %0;" : "=r"(*out)); }
#endif
