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
KERNEL misaligned(u8* p) { copy_async16(p + 1, p); }
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
