"""The backward of attention, right on every launch; one function adds up in another order every time."""

import kmark
import numpy as np

impl = kmark.impl(op="attention-bwd", devices=("cpu",), arrays="numpy")


def gradients(q, k, v, o, dout, lse, order):
    q, k, v, o, dout = (x[0].astype(np.float64) for x in (q, k, v, o, dout))
    scale = q.shape[-1] ** -0.5
    p = np.exp(scale * q @ k.transpose(0, 2, 1) - lse[..., None].reshape(*q.shape[:2], 1))
    ds = p * (dout @ v.transpose(0, 2, 1) - (dout * o).sum(-1, keepdims=True)) * scale
    dq = np.zeros(q.shape, np.float32)
    for j in order:  # key by key, rounded to f32 each time
        dq += (ds[:, :, j, None] * k[:, None, j]).astype(np.float32)
    dk, dv = ds.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ dout
    return {"dq": dq[None], "dk": dk[None].astype(np.float32), "dv": dv[None].astype(np.float32)}


@impl
def same_order(q, k, v, o, dout, lse):
    return gradients(q, k, v, o, dout, lse, range(k.shape[2]))


@impl
def any_order(q, k, v, o, dout, lse):
    return gradients(q, k, v, o, dout, lse, np.random.default_rng().permutation(k.shape[2]))
