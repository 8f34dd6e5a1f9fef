// A tile per block and no loop, eight loads per thread under way before the first is waited for, nothing left in the
// caches. A sum is one large block's, in batches.
// kmark: kernel stream grid=sums.cols>0?sums.cols:ceil(n,2048*16/size) block=sums.cols>0?512:256
#include "spans.cuh"

constexpr int V = lanes<x_t>, U = 8, THREADS = KIND == KIND_read ? 512 : 256;
constexpr i64 CHUNK = 65536, BATCH = U * THREADS * V; // elements to a sum, and those that a block has under way

// This thread's vectors of the batch that begins at element `start`, far apart so that each load is the block's next
// piece of memory. The tensors of this op are aligned; only the end sticks out.
template <class T> DEVICE void get_batch(Pack<T, V> (&p)[U], const T* from, i64 start, i64 end) {
    if (start + BATCH <= end) {
        const T* at = from + start + threadIdx.x * V;
#pragma unroll
        for (int k = 0; k < U; k++) p[k] = load_once<V>(at + k * THREADS * V);
    } else {
        Span<const T>(from + start, end - start, 0).get(p, threadIdx.x, THREADS, T{});
    }
}
template <class T> DEVICE void put_batch(T* to, i64 start, i64 end, const Pack<T, V> (&p)[U]) {
    if (start + BATCH <= end) {
        T* at = to + start + threadIdx.x * V;
#pragma unroll
        for (int k = 0; k < U; k++) store_once<V>(at + k * THREADS * V, p[k]);
    } else {
        Span<T>(to + start, end - start, 0).put(p, threadIdx.x, THREADS);
    }
}

DEVICE void read_chunk(const Args& a) {
    i64 start = blockIdx.x * CHUNK, end = min(start + CHUNK, a.n);
    acc_t part[U] = {};
    for (; start < end; start += BATCH) {
        Pack<x_t, V> x[U];
        get_batch(x, a.x.ptr, start, end);
#pragma unroll
        for (int k = 0; k < U; k++) {
            Vec<x_t, V> v = unpack(x[k]);
#pragma unroll
            for (int j = 0; j < V; j++) part[k] += up(v.v[j]);
        }
    }
    acc_t sum = 0;
#pragma unroll
    for (int k = 0; k < U; k++) sum += part[k];
    sum = block_sum(sum);
    if (threadIdx.x == 0) a.sums.ptr[blockIdx.x] = sum;
}

DEVICE void write_tile(const Args& a) {
    i64 start = blockIdx.x * BATCH;
    Pack<y_t, V> y[U];
    if constexpr (KIND == KIND_copy) {
        get_batch(y, a.x.ptr, start, a.n);
    } else if constexpr (KIND == KIND_write) {
        Vec<y_t, V> v;
#pragma unroll
        for (int j = 0; j < V; j++) v.v[j] = a.s.ptr[0];
#pragma unroll
        for (int k = 0; k < U; k++) y[k] = pack(v);
    } else {
        Pack<y_t, V> b[U];
        get_batch(y, a.a.ptr, start, a.n);
        get_batch(b, a.b.ptr, start, a.n);
        acc_t s = up(a.s.ptr[0]);
#pragma unroll
        for (int k = 0; k < U; k++) {
            Vec<y_t, V> va = unpack(y[k]), vb = unpack(b[k]), v;
#pragma unroll
            for (int j = 0; j < V; j++) v.v[j] = down<y_t>(up(va.v[j]) + s * up(vb.v[j]));
            y[k] = pack(v);
        }
    }
    put_batch(a.y.ptr, start, a.n, y);
}

KERNEL __launch_bounds__(THREADS) stream(const __grid_constant__ Args a) {
    if constexpr (KIND == KIND_read) read_chunk(a);
    else write_tile(a);
}
