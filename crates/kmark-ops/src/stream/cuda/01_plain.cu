// The plain way: blocks that stay and go from vector to vector of 16 bytes, one at a time. A sum is one block's.
// kmark: kernel stream grid=sums.cols>0?sums.cols:min(ceil(n,256*16/size),8*sms) block=256

constexpr i64 CHUNK = 65536; // elements to a sum

KERNEL __launch_bounds__(256) stream(const __grid_constant__ Args a) {
    constexpr int V = 16 / sizeof(x_t);
    if constexpr (KIND == KIND_read) {
        i64 start = blockIdx.x * CHUNK, end = min(start + CHUNK, a.n), whole = end / V * V;
        acc_t sum = 0;
        for (i64 i = start + threadIdx.x * V; i < whole; i += blockDim.x * V) {
            Vec<x_t, V> v = load<V>(a.x.ptr + i);
#pragma unroll
            for (int j = 0; j < V; j++) sum += up(v.v[j]);
        }
        if (threadIdx.x < end - whole) sum += up(a.x.ptr[whole + threadIdx.x]);
        sum = block_sum(sum);
        if (threadIdx.x == 0) a.sums.ptr[blockIdx.x] = sum;
    } else {
        acc_t s = KIND == KIND_copy ? acc_t(0) : up(a.s.ptr[0]);
        i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x, stride = (i64)gridDim.x * blockDim.x;
        for (i64 i = at * V; i + V <= a.n; i += stride * V) {
            Vec<y_t, V> y;
            if constexpr (KIND == KIND_copy) y = load<V>(a.x.ptr + i);
            if constexpr (KIND == KIND_write) {
#pragma unroll
                for (int j = 0; j < V; j++) y.v[j] = down<y_t>(s);
            }
            if constexpr (KIND == KIND_triad) {
                Vec<y_t, V> va = load<V>(a.a.ptr + i), vb = load<V>(a.b.ptr + i);
#pragma unroll
                for (int j = 0; j < V; j++) y.v[j] = down<y_t>(up(va.v[j]) + s * up(vb.v[j]));
            }
            store<V>(a.y.ptr + i, y);
        }
        // What no vector holds.
        i64 i = a.n / V * V + at;
        if (i < a.n) {
            if constexpr (KIND == KIND_copy) a.y.ptr[i] = a.x.ptr[i];
            if constexpr (KIND == KIND_write) a.y.ptr[i] = a.s.ptr[0];
            if constexpr (KIND == KIND_triad) a.y.ptr[i] = down<y_t>(up(a.a.ptr[i]) + s * up(a.b.ptr[i]));
        }
    }
}
