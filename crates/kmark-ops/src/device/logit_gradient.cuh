// The gradient of a row of logits, dx = scale * exp(x - top), less dloss at the target.
#pragma once
#include "online.cuh"

// Row is a Cut of x's rows by teams of `team` threads; D is the type of dx.
template <class Row, class D, int team> struct Gradient {
    static constexpr int V = Row::V;
    const Row& x;
    D* dx;
    acc_t scale, at, dloss; // at = scaled(top)
    int target;             // -1: none
    bool together;          // vectors of dx are vectors of memory where those of x are

    __device__ __forceinline__ Gradient(const Row& x, D* dx, acc_t scale, acc_t top, acc_t dloss, i64 target)
        : x(x), dx(dx), scale(scale), at(scaled(top)), dloss(dloss), target((int)target) {
        together = Row::aligned || ((u64)dx - (u64)x.row) % 16 == 0;
    }
    // Of vectors i, i + team, …, as in Cut::get_all.
    template <int before = 0, class E, int U> __device__ __forceinline__ void put(const Pack<E, V> (&v)[U], int i) const {
        D* to = dx + x.head + i * V;
#pragma unroll
        for (int k = 0; k < U; k++) {
            if (before + (k + 1) * team > Row::least && i + k * team >= x.vectors) continue;
            Pack<D, V> p;
            if constexpr (sizeof(D) == 2) {
#pragma unroll
                for (int w = 0; w < 4; w++) p.w[w] = rounded_pair(of(element(v[k], 2 * w)), of(element(v[k], 2 * w + 1)), D{});
            } else {
                Vec<D, V> out;
#pragma unroll
                for (int j = 0; j < V; j++) out.v[j] = down<D>(of(element(v[k], j)));
                p = pack(out);
            }
            if (together) {
                store_once<V, D>(to + k * team * V, p);
            } else {
                Vec<D, V> out = unpack(p);
#pragma unroll
                for (int j = 0; j < V; j++) to[k * team * V + j] = out.v[j];
            }
        }
        // The thread that has the target among its elements writes it once more.
        int from = target - x.head - i * V, k = from / (team * V), j = from % (team * V);
        if (from >= 0 && k < U && j < V && target < x.head + x.vectors * V) {
            Pack<E, V> p = v[0];
#pragma unroll
            for (int other = 1; other < U; other++)
                if (k == other) p = v[other];
            acc_t e = element(p, 0);
#pragma unroll
            for (int other = 1; other < V; other++)
                if (j == other) e = element(p, other);
            dx[target] = down<D>(of(e) - dloss);
        }
    }
    // Of the row's edges.
    template <class E, int U> __device__ __forceinline__ void put_edges(const E (&v)[U], int lane) const {
#pragma unroll
        for (int k = 0; k < U; k++) {
            int at = lane + k * team < 2 * V ? x.edge(lane + k * team) : -1;
            if (at >= 0) dx[at] = down<D>(of(up(v[k])) - (at == target ? dloss : acc_t(0)));
        }
    }

private:
    __device__ __forceinline__ acc_t of(acc_t x) const { return scale * exp_less(x, at); }
};
