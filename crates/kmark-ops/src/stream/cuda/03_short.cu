// Two vectors a thread and no loop: the shortest way between a load and its store, and many blocks to hide it. Reads and
// writes then come to the memory in long runs, which suits a copy better than many loads in flight. Of much more than the
// caches hold, what is read lasts in L2 (spans.cuh).
// kmark: let LARGE = (kind.copy?2:3)*n*size>8*l2
// kmark: kernel stream grid=ceil(n,512*16/size) block=256
// kmark: only kind=copy,triad
#include "spans.cuh"

constexpr int V = 16 / sizeof(y_t);

DEVICE y_t triad(y_t a, y_t b, acc_t s) { return down<y_t>(up(a) + s * up(b)); }

DEVICE Vec<y_t, V> get(const y_t* from) { return unpack(load_once<V, LARGE != 0>(from)); }
DEVICE Vec<y_t, V> vector(const Args& a, i64 i, acc_t s) {
    if constexpr (KIND == KIND_copy) return get(a.x.ptr + i);
    Vec<y_t, V> va = get(a.a.ptr + i), vb = get(a.b.ptr + i);
#pragma unroll
    for (int j = 0; j < V; j++) va.v[j] = triad(va.v[j], vb.v[j], s);
    return va;
}

KERNEL __launch_bounds__(256) stream(const __grid_constant__ Args a) {
    i64 first = (blockIdx.x * 512ll + threadIdx.x) * V, second = first + 256 * V;
    acc_t s = KIND == KIND_copy ? acc_t(0) : up(a.s.ptr[0]);
    if ((blockIdx.x + 1ll) * 512 * V <= a.n) {
        Vec<y_t, V> one = vector(a, first, s), two = vector(a, second, s);
        store<V>(a.y.ptr + first, one);
        store<V>(a.y.ptr + second, two);
        return;
    }
    // The last block: vectors that are whole, then elements.
    if (first + V <= a.n) store<V>(a.y.ptr + first, vector(a, first, s));
    if (second + V <= a.n) store<V>(a.y.ptr + second, vector(a, second, s));
    for (i64 i = a.n / V * V + threadIdx.x; i < a.n; i += 256) {
        if constexpr (KIND == KIND_copy) a.y.ptr[i] = a.x.ptr[i];
        else a.y.ptr[i] = triad(a.a.ptr[i], a.b.ptr[i], s);
    }
}
