// A row of the backward of RMSNorm or LayerNorm. With xh = (x - mean) * rstd and g = dout * w: dx = (g - mean(g) - xh *
// mean(xh * g)) * rstd, dw = sum of dout * xh over the rows, dbias = sum of dout. RMSNorm is the same with mean = 0 and
// without mean(g).
#pragma once
#include "rows.cuh"

template <bool centred> struct RowNorm {
    acc_t mean, r;

    template <class A> __device__ __forceinline__ void norm_of(const A& a, i64 row) {
        mean = 0, r = a.rstd.ptr[row];
        if constexpr (centred) mean = a.mean.ptr[row];
    }
    __device__ __forceinline__ acc_t hat(x_t v) const { return centred ? (up(v) - mean) * r : up(v) * r; }

    // Adds to the sums of xh * g and, if the norm is centred, of g.
    template <int V> __device__ __forceinline__ void add_to(acc_t (&of)[1 + centred], const Vec<x_t, V>& x,
                                                            const Vec<dout_t, V>& dout, const Vec<w_t, V>& w) const {
#pragma unroll
        for (int i = 0; i < V; i++) {
            acc_t g = up(dout.v[i]) * (acc_t)up(w.v[i]);
            if constexpr (centred) of[1] += g;
            of[0] += hat(x.v[i]) * g;
        }
    }
    // dx, from the means of what add_to sums over the row. Calls also(i, dout, xh) for each element.
    template <int V, class F>
    __device__ __forceinline__ Vec<dx_t, V> gradient(const Vec<x_t, V>& x, const Vec<dout_t, V>& dout,
                                                     const Vec<w_t, V>& w, const acc_t (&means)[1 + centred],
                                                     F also) const {
        Vec<dx_t, V> dx;
#pragma unroll
        for (int i = 0; i < V; i++) {
            acc_t d = up(dout.v[i]), xh = hat(x.v[i]), rest = d * (acc_t)up(w.v[i]);
            if constexpr (centred) rest -= means[1];
            dx.v[i] = down<dx_t>((rest - xh * means[0]) * r);
            also(i, d, xh);
        }
        return dx;
    }
};
