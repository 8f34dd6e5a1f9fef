"""Products of matrices."""

import numpy as np
from kit import Near, op


def blocks_of_128(scale, axis, length):
    return np.take(np.repeat(scale, 128, axis=axis), np.arange(length), axis=axis)


@op("gemm")
def gemm(c):
    m, n, k = (c.axes[a] for a in "mnk")
    layout, kind = c.attrs["layout"], c.attrs["scale"]
    a = c["a"] if layout[0] == "n" else c["a"].T
    b = c["b"] if layout[1] == "n" else c["b"].T
    if kind != "none":
        sa, sb = c["a_scale b_scale"]
        if kind == "block":
            sa = blocks_of_128(sa, 1, k)
            sb = blocks_of_128(blocks_of_128(sb, 0, n), 1, k).T
        elif kind == "row":
            sa, sb = sa[:, None], sb[None, :]
        a, b = a * sa, b * sb
    bias = c["bias"] if c.has("bias") else np.zeros(n)
    return {"d": Near(a @ b + bias, np.abs(a) @ np.abs(b) + np.abs(bias))}


@op("grouped-gemm")
def grouped_gemm(c):
    n, k = c.axes["n"], c.axes["k"]
    a, b = c["a b"]
    if c.has("a_scale"):
        a = a * blocks_of_128(c["a_scale"], a.ndim - 1, k)
        b = b * blocks_of_128(blocks_of_128(c["b_scale"], 1, n), 2, k)
    if c.attrs["form"] == "masked":
        real = np.arange(a.shape[1]) < c["count"][:, None]
        d, size = np.einsum("gmk,gnk->gmn", a, b), np.einsum("gmk,gnk->gmn", np.abs(a), np.abs(b))
    else:
        group = c["group"].astype(np.int64)
        real = group >= 0
        d, size = np.zeros((len(group), n)), np.zeros((len(group), n))
        for g in np.unique(group[real]):
            mine = group == g
            d[mine], size[mine] = a[mine] @ b[g].T, np.abs(a[mine]) @ np.abs(b[g]).T
    return {"d": Near(np.where(real[..., None], d, np.nan), size)}
