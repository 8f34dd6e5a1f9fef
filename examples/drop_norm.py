"""An op of your own: residual + dropout + layernorm in one pass. A reference, two impls, a mutant (docs/own-ops.md)."""

import kmark
import numpy as np


@kmark.op("x: m n, r: m n, u: m n f32 uniform(0,1), w: n normal(1,0.1) -> y: m n, s: m n",
          dtypes="f32 f16", configs=["256x1024", "33x257"], flops="11*m*n")  # fmt: skip
def drop_norm(x, r, u, w, p=0.25, eps=1e-5):
    """The layernorm of a residual plus what dropout leaves of x, and that sum."""
    s = r + np.where(u < p, 0.0, x / (1 - p))
    d = s - s.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * w, s


@drop_norm.impl
def plain(x, r, u, w, p, eps):
    s = r.astype("f4") + np.where(u < p, np.float32(0), x.astype("f4") / np.float32(1 - p))
    d = s - s.mean(-1, keepdims=True)
    return (d / np.sqrt(np.square(d).mean(-1, keepdims=True) + np.float32(eps)) * w).astype(x.dtype), s.astype(x.dtype)


@drop_norm.impl
def rowwise(x, r, u, w, p, eps, y, s):
    for i in range(len(x)):
        y[i], s[i] = (row[0] for row in plain(x[i : i + 1], r[i : i + 1], u[i : i + 1], w, p, eps))


@drop_norm.mutant
def unscaled(x, r, u, w, p, eps):
    """Forgets to divide what it keeps by 1 - p."""
    return plain(x * x.dtype.type(1 - p), r, u, w, p, eps)
