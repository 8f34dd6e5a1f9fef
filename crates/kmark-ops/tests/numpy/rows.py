"""Ops that treat rows or elements on their own: norms, softmax, cross entropy, activations, rope, quantisation."""

import numpy as np
from kit import LARGEST, Near, op, round_to
from scipy import special

# --- norms -----------------------------------------------------------------------------------------------------------


def rstd_of(x, eps):
    return 1 / np.sqrt(np.square(np.linalg.norm(x, axis=1)) / x.shape[1] + eps)


@op("rmsnorm")
def rmsnorm(c):
    x, w = c["x w"]
    rstd = rstd_of(x, c.number("eps"))
    return {"y": np.diag(rstd) @ x * w, "rstd": Near(rstd, rstd)}


@op("rmsnorm-bwd")
def rmsnorm_bwd(c):
    x, w, dout, rstd = c["x w dout rstd"]
    r = rstd[:, None]
    g, xh = dout * w, x * r
    dot = np.einsum("ij,ij->i", xh, g)[:, None] / x.shape[1]
    size = (np.abs(g) + np.abs(xh) * np.mean(np.abs(xh * g), axis=1, keepdims=True)) * r
    return {
        "dx": Near((g - xh * dot) * r, size),
        "dw": Near(np.einsum("ij,ij->j", dout, xh), np.abs(dout * xh).sum(axis=0)),
        "rstd": Near(rstd_of(x, c.number("eps")), rstd),
    }


@op("add-rmsnorm")
def add_rmsnorm(c):
    x, residual, w = c["x residual w"]
    total = x + residual
    z = round_to(c.dtype, total) if c.attrs["sum"] == "rounded" else total
    y = z * rstd_of(z, c.number("eps"))[:, None] * w
    total = Near(total, np.abs(total))
    return {"x": y, "residual": total} if c.attrs["form"] == "inplace" else {"y": y, "z": total}


def layer_stats(x, eps):
    mean = np.mean(x, axis=1)
    return mean, 1 / np.sqrt(np.var(x, axis=1) + eps)


@op("layernorm")
def layernorm(c):
    x, w = c["x w"]
    mean, rstd = layer_stats(x, c.number("eps"))
    b = c["b"] if c.has("b") else np.zeros_like(w)
    size = np.abs(x).max(axis=1)
    y = (x - mean[:, None]) * rstd[:, None] * w + b
    return {"y": Near(y, (size * rstd)[:, None] * np.abs(w) + np.abs(b)), "mean": Near(mean, size), "rstd": rstd}


@op("layernorm-bwd")
def layernorm_bwd(c):
    x, w, dout, mean, rstd = c["x w dout mean rstd"]
    r = rstd[:, None]
    g, xh = dout * w, (x - mean[:, None]) * r

    def mean_of(v):
        return np.mean(v, axis=1, keepdims=True)

    # The projection that takes the constant and xh out of a row.
    dx = (g - mean_of(g) - xh * mean_of(xh * g)) * r
    size = (np.abs(g) + mean_of(np.abs(g)) + np.abs(xh) * mean_of(np.abs(xh * g))) * r
    true_mean, true_rstd = layer_stats(x, c.number("eps"))
    return {
        "dx": Near(dx, size),
        "dw": Near(np.einsum("ij,ij->j", dout, xh), np.abs(dout * xh).sum(axis=0)),
        "dbias": Near(dout.sum(axis=0), np.abs(dout).sum(axis=0)),
        "mean": Near(true_mean, np.abs(x).max(axis=1)),
        "rstd": Near(true_rstd, true_rstd),
    }


# --- softmax and cross entropy ---------------------------------------------------------------------------------------


def softmax_gradient(y, dy):
    dot = np.einsum("ij,ij->i", y, dy)[:, None]
    return Near(y * (dy - dot), y * (np.abs(dy) + np.sum(y * np.abs(dy), axis=1, keepdims=True)))


@op("softmax")
def softmax(c):
    y = special.softmax(c["x"], axis=1)
    return {"y": Near(y, y)}


@op("softmax-bwd")
def softmax_bwd(c):
    return {"dx": softmax_gradient(*c["y dy"])}


@op("softmax-fwd-bwd")
def softmax_fwd_bwd(c):
    x, dy = c["x dy"]
    return {"dx": softmax_gradient(special.softmax(x, axis=1), dy)}


def one_hot(c, classes):
    """Rows of zeros with a one at the target, and which rows count."""
    target = c["target"].astype(np.int64)
    counted = target != int(c.attrs["ignore"])
    return np.where(counted[:, None], np.eye(classes)[np.where(counted, target, 0)], 0.0), counted


@op("cross-entropy")
def cross_entropy(c):
    x = c["x"]
    hot, counted = one_hot(c, x.shape[1])
    lse = special.logsumexp(x, axis=1)
    at_target = np.sum(hot * x, axis=1)
    size = np.abs(x).max(axis=1) + np.abs(lse)
    return {"loss": Near(np.where(counted, lse - at_target, 0.0), size * counted), "lse": Near(lse, size)}


@op("cross-entropy-bwd")
def cross_entropy_bwd(c):
    x, dloss, saved = c["x dloss lse"]
    hot, counted = one_hot(c, x.shape[1])
    p = np.exp(x - saved[:, None])
    d = (dloss * counted)[:, None]
    lse = special.logsumexp(x, axis=1)
    return {"dx": Near(d * (p - hot), np.abs(d) * (p + hot)), "lse": Near(lse, np.abs(x).max(axis=1) + np.abs(lse))}


@op("cross-entropy-fwd-bwd")
def cross_entropy_fwd_bwd(c):
    x, dloss = c["x dloss"]
    hot, counted = one_hot(c, x.shape[1])
    p = special.softmax(x, axis=1)
    d = (dloss * counted)[:, None]
    return {"dx": Near(d * (p - hot), np.abs(d) * (p + hot))}


# --- elementwise -----------------------------------------------------------------------------------------------------


@op("stream")
def stream(c):
    kind, n = c.attrs["kind"], c.axes["n"]
    if kind == "copy":
        return {"y": Near(c["x"], 0.0)}
    if kind == "write":
        return {"y": Near(np.full(n, c["s"][0]), 0.0)}
    if kind == "read":
        return {"sums": np.add.reduceat(c["x"], np.arange(0, n, 65536))}
    a, b, s = c["a b s"]
    return {"y": Near(a + s * b, np.abs(a) + np.abs(s * b))}


@op("gelu")
def gelu(c):
    x = c["x"]
    if c.attrs["approx"] == "erf":
        y = x * special.ndtr(x)
    else:
        y = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    # One plus something near minus one is as exact as one is.
    return {"y": Near(y, np.abs(x))}


def gate_and_up(c):
    return np.hsplit(c["x"], 2) if c.attrs["form"] == "packed" else c["gate up"]


@op("swiglu")
def swiglu(c):
    gate, up = gate_and_up(c)
    y = gate * special.expit(gate) * up
    return {"y": Near(y, np.abs(y))}


@op("swiglu-bwd")
def swiglu_bwd(c):
    gate, up = gate_and_up(c)
    dy, s = c["dy"], special.expit(gate)
    dup = dy * gate * s
    # The derivative of g s(g).
    dgate = dy * up * (s + gate * s * (1 - s))
    size = np.abs(dy * up * s) * (1 + np.abs(gate))
    if c.attrs["form"] == "packed":
        return {"dx": Near(np.hstack([dgate, dup]), np.hstack([size, np.abs(dup)]))}
    return {"dgate": Near(dgate, size), "dup": Near(dup, np.abs(dup))}


@op("rope")
def rope(c):
    d = c.axes["d"]
    r = c.count("rotary") or d
    s = np.arange(c.axes["s"])
    angle = np.outer(s, c.number("base") ** (-2 * np.arange(r // 2) / r))
    turn = (c["cos"] + 1j * c["sin"])[None, :, None, :]

    def rotated(x):
        """A pair is a complex number, and a rotation a product."""
        if c.attrs["style"] == "neox":
            first, second = x[..., : r // 2], x[..., r // 2 : r]
        else:
            first, second = x[..., 0:r:2], x[..., 1:r:2]
        z = (first + 1j * second) * turn
        size = np.abs(first) + np.abs(second)
        y, sizes = x.copy(), np.zeros_like(x)
        for out, a, b in [(y, z.real, z.imag), (sizes, size, size)]:
            if c.attrs["style"] == "neox":
                out[..., :r] = np.concatenate([a, b], axis=-1)
            else:
                out[..., :r] = np.stack([a, b], axis=-1).reshape(*a.shape[:-1], r)
        return Near(y, sizes)  # what is not rotated is the same to the bit

    suffix = "" if c.attrs["form"] == "inplace" else "_out"
    out = {name + suffix: rotated(c[name]) for name in ("q", "k") if c.has(name)}
    # An angle is rounded before its cosine is taken, so it counts with its size.
    return out | {"cos": Near(np.cos(angle), 1 + np.abs(angle)), "sin": Near(np.sin(angle), 1 + np.abs(angle))}


@op("quant-fp8")
def quant_fp8(c):
    x, to = c["x"], c.attrs["to"]
    m, n = x.shape
    rows, columns = {"row": (1, n), "1x128": (1, 128), "128x128": (128, 128)}[c.attrs["granularity"]]
    up = -(-m // rows), -(-n // columns)
    blocks = np.pad(np.abs(x), [(0, up[0] * rows - m), (0, up[1] * columns - n)])
    amax = blocks.reshape(up[0], rows, up[1], columns).max(axis=(1, 3))
    s = np.maximum(amax, c.number("clamp")) / LARGEST[to]
    if c.flag("pow2"):
        fraction, exponent = np.frexp(s)
        s = np.ldexp(1.0, np.where(fraction == 0.5, exponent - 1, exponent))
    each = np.repeat(np.repeat(s, rows, axis=0)[:m], columns, axis=1)[:, :n]
    q = np.clip(x / each, -LARGEST[to], LARGEST[to])
    scale = s[:, 0] if c.attrs["granularity"] == "row" else s
    return {"q": Near(q, np.abs(q)), "scale": Near(scale, scale, close=1e-12)}
