"""Five ops as a newcomer would write them, each with an honest impl (`right_*`) and a wrong one."""

import kmark
import numpy as np


@kmark.op("x: m n logits -> p: m k, at: m k i64", dtypes="f32", configs=["16x200"])
def topk_softmax(x, k=8):
    """The softmax of the k largest logits of a row, and where they are."""
    at = np.argsort(-x, axis=-1, kind="stable")[:, :k]
    top = np.take_along_axis(x, at, -1)
    e = np.exp(top - top[:, :1])
    return e / e.sum(-1, keepdims=True), at


@topk_softmax.impl
def right_topk(x, k):
    at = np.argsort(-x, axis=-1, kind="stable")[:, :k]
    top = np.take_along_axis(x, at, -1)
    e = np.exp(top - top[:, :1])
    return e / e.sum(-1, keepdims=True, dtype=np.float32), at


@topk_softmax.mutant
def over_all(x, k):
    """Divides by the sum over the whole row."""
    at = np.argsort(-x, axis=-1, kind="stable")[:, :k]
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.take_along_axis(e / e.sum(-1, keepdims=True), at, -1), at


@kmark.op("x: b c n+t-1, w: c t -> y: b c n", dtypes="f32", configs=["2x4x100x3"])
def conv1d(x, w):
    """A depthwise convolution along the last axis."""
    n, taps = x.shape[-1] - w.shape[-1] + 1, w.shape[-1]
    return sum(x[..., i : i + n] * w[:, i : i + 1] for i in range(taps))


@conv1d.impl
def right_conv(x, w, y):
    y[...] = 0
    for i in range(w.shape[-1]):
        y += x[..., i : i + y.shape[-1]] * w[:, i : i + 1]


@conv1d.mutant
def flipped(x, w):
    n = x.shape[-1] - w.shape[-1] + 1
    return sum(x[..., i : i + n] * w[:, ::-1][:, i : i + 1] for i in range(w.shape[-1]))


@kmark.op("x: n d, starts: s+1 i32 indptr(n) -> y: s d", dtypes="f32", configs=["500x8x9"])
def segmented_sum(x, starts):
    """Sums of rows between one start and the next."""
    return np.stack([x[a:b].sum(0) for a, b in zip(starts[:-1], starts[1:])])


@segmented_sum.impl
def right_segments(x, starts, y):
    for i, (a, b) in enumerate(zip(starts[:-1], starts[1:])):
        y[i] = x[a:b].sum(0)


@segmented_sum.mutant
def by_reduceat(x, starts):
    """An empty segment gets the row at its start."""
    return np.add.reduceat(x, np.minimum(starts[:-1], len(x) - 1), axis=0)


@kmark.op("p: n inout, g: n, m: n inout, v: n uniform(0,1) inout", dtypes="f32", configs=["1000"])
def adam(p, g, m, v, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, step=10):
    """One step of Adam, in place."""
    m[:] = b1 * m + (1 - b1) * g
    v[:] = b2 * v + (1 - b2) * g * g
    p[:] = p - lr * (m / (1 - b1**step)) / (np.sqrt(v / (1 - b2**step)) + eps)


@adam.impl
def right_adam(p, g, m, v, lr, b1, b2, eps, step):
    f = np.float32
    m += f(1 - b1) * (g - m)
    v += f(1 - b2) * (g * g - v)
    p -= f(lr / (1 - b1**step)) * m / (np.sqrt(v / f(1 - b2**step)) + f(eps))


@adam.mutant
def uncorrected(p, g, m, v, lr, b1, b2, eps, step):
    f = np.float32
    m += f(1 - b1) * (g - m)
    v += f(1 - b2) * (g * g - v)
    p -= f(lr) * m / (np.sqrt(v) + f(eps))


@kmark.op("x: b t d, a: b t d uniform(0.5,0.999) -> h: b t d", dtypes="f32", configs=["2x64x16"])
def rg_lru(x, a):
    """A gated linear recurrence: h = a h + sqrt(1 - a²) x."""
    h, out = np.zeros_like(x[:, 0]), np.empty_like(x)
    for i in range(x.shape[1]):
        h = a[:, i] * h + np.sqrt(1 - a[:, i] ** 2) * x[:, i]
        out[:, i] = h
    return out


@rg_lru.impl
def right_scan(x, a, h):
    last = np.zeros_like(x[:, 0])
    for i in range(x.shape[1]):
        last = a[:, i] * last + np.sqrt(1 - a[:, i] * a[:, i]) * x[:, i]
        h[:, i] = last


@rg_lru.mutant
def restarted(x, a):
    """Forgets the state in the middle."""
    out, last = np.empty_like(x), np.zeros_like(x[:, 0])
    for i in range(x.shape[1]):
        last = (a[:, i] * last if i != x.shape[1] // 2 else 0) + np.sqrt(1 - a[:, i] ** 2) * x[:, i]
        out[:, i] = last
    return out
