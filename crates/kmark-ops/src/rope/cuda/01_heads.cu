// A thread turns the same dimensions of four heads: cosines and sines are read once for all of them, and the vectors of
// all four are under way together.
// kmark: kernel rope grid=ceil(b*s*(ceil(hq,4)+(k.rows>0?ceil(hk,4):0))*ceil(d,32/size),256) block=256
#include "spans.cuh"

constexpr int U = 4, WIDE = lanes<q_t>;

// q or k, and where the result goes.
struct Heads {
    const q_t* in;
    q_t* out;
    i64 in_pitch, out_pitch, heads;
};
template <class In, class Out> DEVICE Heads heads_of(const In& in, const Out& out, i64 heads) {
    return Heads{in.ptr, out.ptr, in.pitch, out.pitch, heads};
}

// 16 bytes, or one element. In place, what is read is written later: no load that takes memory for constant.
template <int V> DEVICE Pack<q_t, V> take(const q_t* p) {
    if constexpr (FORM == FORM_inplace) return *reinterpret_cast<const Pack<q_t, V>*>(p);
    else return load_once<V>(p);
}
template <int V, class T> DEVICE void table(acc_t (&to)[V], const T* from) {
    constexpr int W = V < lanes<T> ? V : lanes<T>;
#pragma unroll
    for (int j = 0; j < V; j += W) {
        Vec<T, W> t = load<W>(from + j);
#pragma unroll
        for (int i = 0; i < W; i++) to[j + i] = t.v[i];
    }
}

// V pairs in two vectors: the members of a pair stand at the same place of both, or beside each other.
template <int V> DEVICE void turn(Pack<q_t, V> (&packs)[2], const acc_t (&cos)[V], const acc_t (&sin)[V]) {
    constexpr bool neox = STYLE == STYLE_neox;
    Vec<q_t, V> x[2] = {unpack(packs[0]), unpack(packs[1])};
#pragma unroll
    for (int j = 0; j < V; j++) {
        q_t& first = neox ? x[0].v[j] : x[2 * j / V].v[2 * j % V];
        q_t& second = neox ? x[1].v[j] : x[(2 * j + 1) / V].v[(2 * j + 1) % V];
        acc_t x1 = up(first), x2 = up(second);
        first = down<q_t>(x1 * cos[j] - x2 * sin[j]);
        second = down<q_t>(x2 * cos[j] + x1 * sin[j]);
    }
    packs[0] = pack(x[0]), packs[1] = pack(x[1]);
}

// Heads head .. head + U of one place (sequence and position), part `part` of their dimensions: first come parts of V
// pairs that are turned, then those of up to twice V dimensions that are not.
template <int V> DEVICE void one_part(const Args& a, const Heads& h, i64 r, i64 place, i64 head, i64 part) {
    constexpr bool neox = STYLE == STYLE_neox;
    i64 half = r / 2, turned = half / V;
    i64 first = part >= turned ? r + (part - turned) * 2 * V : neox ? part * V : part * 2 * V;
    i64 second = part >= turned || !neox ? first + V : first + half;
    Pack<q_t, V> x[U][2];
#pragma unroll
    for (int k = 0; k < U; k++) {
        const q_t* row = h.in + (place * h.heads + head + k) * h.in_pitch;
        if (head + k < h.heads) x[k][0] = take<V>(row + first);
        if (head + k < h.heads && second < a.d) x[k][1] = take<V>(row + second);
    }
    if (part < turned) {
        acc_t cos[V], sin[V];
        i64 position = place % a.s;
        table<V>(cos, a.cos.row(position) + part * V);
        table<V>(sin, a.sin.row(position) + part * V);
#pragma unroll
        for (int k = 0; k < U; k++) turn<V>(x[k], cos, sin);
    }
#pragma unroll
    for (int k = 0; k < U; k++) {
        q_t* row = h.out + (place * h.heads + head + k) * h.out_pitch;
        if (head + k < h.heads) store_once<V>(row + first, x[k][0]);
        if (head + k < h.heads && second < a.d) store_once<V>(row + second, x[k][1]);
    }
}

// The grid has a thread for each part if vectors are whole; then this loops once.
template <int V> DEVICE void all_parts(const Args& a, const Heads& q, const Heads& k, i64 r) {
    u32 parts = (u32)(r / 2 / V);
    if (FORM == FORM_out) parts += (u32)((a.d - r + 2 * V - 1) / (2 * V)); // in place the others stay
    i64 of_q = a.b * a.s * ((q.heads + U - 1) / U) * parts, of_k = a.b * a.s * ((k.heads + U - 1) / U) * parts;
    i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x;
    for (; at < of_q + of_k; at += (i64)gridDim.x * blockDim.x) {
        Heads h = at < of_q ? q : k;
        i64 i = at < of_q ? at : at - of_q;
        u32 at_place = (u32)((h.heads + U - 1) / U) * parts;
        i64 place = of_q + of_k < 1ll << 32 ? (u32)i / at_place : i / at_place;
        u32 rest = (u32)(i - place * at_place);
        one_part<V>(a, h, r, place, (i64)(rest / parts) * U, rest % parts);
    }
}

// A template, so that only the form of this case is compiled: in place, q and k are not constant.
template <class A> DEVICE void rotate(const A& a) {
    i64 r = ROTARY == 0 ? a.d : ROTARY, hk = a.k.ptr ? a.hk : 0;
    Heads q, k;
    bool wide = r / 2 % WIDE == 0 && a.cos.aligned(16) && a.sin.aligned(16) && a.q.aligned(16) && a.k.aligned(16);
    if constexpr (FORM == FORM_inplace) {
        q = heads_of(a.q, a.q, a.hq), k = heads_of(a.k, a.k, hk);
    } else {
        q = heads_of(a.q, a.q_out, a.hq), k = heads_of(a.k, a.k_out, hk);
        wide = wide && (a.d - r) % WIDE == 0 && a.q_out.aligned(16) && a.k_out.aligned(16);
    }
    if (wide) all_parts<WIDE>(a, q, k, r);
    else all_parts<1>(a, q, k, r);
}

KERNEL __launch_bounds__(256, 2) rope(const __grid_constant__ Args a) { rotate(a); }
