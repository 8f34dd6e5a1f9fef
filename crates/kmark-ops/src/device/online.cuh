// Maximum and sum of exponentials of a row in one pass (Milakov and Gimelshein 2018): each thread keeps its own, and
// scales its sum when its maximum grows. Rows are of compile-time length N.
#pragma once
#include "fast_exp.cuh"
#include "spans.cuh"

// Stands for no element: its exponential is 0.
template <class T> DEVICE T nothing() { return down<T>((acc_t)double_of(0xfff0000000000000ull)); }
template <class T, int V> DEVICE Pack<T, V> no_elements() {
    Vec<T, V> v;
#pragma unroll
    for (int j = 0; j < V; j++) v.v[j] = nothing<T>();
    return pack(v);
}

// ---- Rows ----------------------------------------------------------------------------------------------------------

// A row of N elements as the 16-byte vectors of memory that lie inside it, and at most V - 1 elements before them (the
// head) and V - 1 behind. If ALIGNED, rows start at a vector; if LASTING, L2 is to keep them (spans.cuh).
template <class T, i64 N, bool ALIGNED, bool LASTING = false> struct Cut {
    static constexpr int V = lanes<T>;
    static constexpr bool aligned = ALIGNED, edges = !ALIGNED || N % V != 0;
    // Vectors that every row has, wherever it starts.
    static constexpr int least = ALIGNED ? (int)(N / V) : N < V ? 0 : (int)((N - V + 1) / V);
    const T* row;
    int head, vectors;

    __device__ __forceinline__ explicit Cut(const T* row) : row(row), head(0), vectors((int)(N / V)) {
        if constexpr (!ALIGNED) {
            head = (int)(-(u64)row / sizeof(T) % V);
            if (head > N) head = (int)N;
            vectors = ((int)N - head) / V;
        }
    }
    // Vectors i, i + team, …, where i < before + team; no elements where the row has no such vector.
    template <int team, int before = 0, int U> __device__ __forceinline__ void get_all(Pack<T, V> (&p)[U], int i) const {
        const T* from = row + head + i * V;
#pragma unroll
        for (int k = 0; k < U; k++) {
            constexpr int sure = least - before;
            if ((k + 1) * team > sure) p[k] = no_elements<T, V>();
            if ((k + 1) * team <= sure || i + k * team < vectors) p[k] = load_once<V, LASTING>(from + k * team * V);
        }
    }
    // The same where nothing is known of i.
    template <int team, int U> __device__ __forceinline__ void get(Pack<T, V> (&p)[U], int i) const {
        const T* from = row + head + i * V;
        if (i + (U - 1) * team < vectors) {
#pragma unroll
            for (int k = 0; k < U; k++) p[k] = load_once<V, LASTING>(from + k * team * V);
        } else {
#pragma unroll
            for (int k = 0; k < U; k++) {
                p[k] = no_elements<T, V>();
                if (i + k * team < vectors) p[k] = load_once<V, LASTING>(from + k * team * V);
            }
        }
    }
    // Where the elements of the edges are, 2 V places of which the head's come first; -1 where there is none.
    __device__ __forceinline__ int edge(int e) const {
        int at = e < V ? e : head + (vectors - 1) * V + e;
        return (e < V ? at < head : at < (int)N) ? at : -1;
    }
    // Edge elements lane, lane + team, …: so many at most, and at least one, as there are no arrays of nothing.
    template <int team> static constexpr int edge_share = edges ? (2 * V + team - 1) / team : 1;
    template <int E> __device__ __forceinline__ void get_edges(T (&p)[E], int lane, int team) const {
#pragma unroll
        for (int k = 0; k < E; k++) {
            int at = lane + k * team < 2 * V ? edge(lane + k * team) : -1;
            p[k] = at >= 0 ? row[at] : nothing<T>();
        }
    }
};

// ---- Maximum and sum -----------------------------------------------------------------------------------------------

// Element j of a vector. The upper one of two bf16 needs no shift.
template <class T, int V> DEVICE acc_t element(const Pack<T, V>& p, int j) {
    if constexpr (is<T, bf16>) return float_of(j % 2 == 0 ? p.w[j / 2] << 16 : p.w[j / 2] & 0xffff0000u);
    else return up(unpack(p).v[j]);
}

struct Online {
    acc_t max = acc_t(-1e30); // finite, so that no difference of infinities arises
    acc_t sum = 0;

    template <class T, int V, int U> __device__ __forceinline__ void add(const Pack<T, V> (&x)[U]) {
        acc_t top = max;
        if constexpr (sizeof(T) == 2) {
            u32 tops[4];
#pragma unroll
            for (int w = 0; w < 4; w++) {
                tops[w] = x[0].w[w];
#pragma unroll
                for (int k = 1; k < U; k++) tops[w] = larger_pair(tops[w], x[k].w[w], T{});
            }
            u32 both[1] = {larger_pair(larger_pair(tops[0], tops[1], T{}), larger_pair(tops[2], tops[3], T{}), T{})};
            Vec<T, 2> v;
            memcpy(&v, both, 4);
            top = larger(top, larger(up(v.v[0]), up(v.v[1])));
        } else {
#pragma unroll
            for (int k = 0; k < U; k++) {
#pragma unroll
                for (int j = 0; j < V; j++) top = larger(top, element(x[k], j));
            }
        }
        constexpr int P = U < 4 ? U : 4;
        acc_t part[P] = {}, at = scaled(top);
#pragma unroll
        for (int k = 0; k < U; k++) {
#pragma unroll
            for (int j = 0; j < V; j++) part[k % P] += exp_less(element(x[k], j), at);
        }
        sum *= exp_down(max - top);
        max = top;
#pragma unroll
        for (int k = 0; k < P; k++) sum += part[k];
    }
    // What another thread found, or one element.
    __device__ __forceinline__ void add(const Online& other) {
        acc_t top = larger(max, other.max);
        sum = sum * exp_down(max - top) + other.sum * exp_down(other.max - top);
        max = top;
    }
    __device__ __forceinline__ void add(acc_t x) { add(Online{x, acc_t(1)}); }

    // Over `count` neighbouring lanes, a power of two: every one gets those of all.
    template <int count> __device__ __forceinline__ void join_lanes() {
        acc_t top = max;
#pragma unroll
        for (int step = count / 2; step > 0; step /= 2) top = larger(top, __shfl_xor_sync(0xffffffffu, top, step));
        sum *= exp_down(max - top);
        max = top;
#pragma unroll
        for (int step = count / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    // Over the `team` threads of a row: a power of two up to 32, or the whole block. Once in a kernel. Every thread of
    // the row gets the result, or only the block's first warp.
    template <int team, bool first_warp = false> __device__ __forceinline__ void join() {
        join_lanes<(team < 32 ? team : 32)>();
        if constexpr (team > 32) {
            constexpr int warps = team / 32, places = warps > 16 ? 32 : warps > 8 ? 16 : warps > 4 ? 8 : warps > 2 ? 4 : 2;
            __shared__ acc_t maxima[warps], sums[warps];
            int warp = threadIdx.x / 32, from = threadIdx.x % places;
            if (threadIdx.x % 32 == 0) maxima[warp] = max, sums[warp] = sum;
            __syncthreads();
            if (first_warp && warp > 0) return;
            max = from < warps ? maxima[from] : acc_t(-1e30);
            sum = from < warps ? sums[from] : acc_t(0);
            join_lanes<places>();
        }
    }
};
