"""Every op of Kernelmark in NumPy and SciPy, from its contract; compares with what the Rust oracles expect.

Called with a folder that holds manifest.jsonl and numbers.f64. Prints one line for each thing that is wrong, and exits
with 1 if there is any. A function gets a case and returns its outputs by name: an array, or `Near(array, size)`. It may
also return inputs that the op derives from others (a saved lse): those are compared at their own dtype's precision.
NaN marks an element about which the contract says nothing; both sides must agree on which those are.
"""

import json
import sys
from pathlib import Path

import numpy as np
from scipy import special

# How far two fp64 computations of the same thing may be apart, as a part of the size of what was added up. Sums here
# have at most some ten thousand terms and exponentials have arguments below a hundred, so that fp64 (1.1e-16) stays
# below 1e-12 in whatever order; and what the oracle is there to judge, rounding in f32, starts at 6e-8.
CLOSE = 1e-11

OPS = {}


def op(name):
    def add(function):
        OPS[name] = function
        return function

    return add


class Near:
    """A value, and the size of the terms that it was made of where these cancel; by default the largest of its row."""

    def __init__(self, value, size=None, close=CLOSE):
        self.value, self.close = np.asarray(value, dtype=np.float64), close
        if size is None:
            finite = np.where(np.isfinite(self.value), np.abs(self.value), 0.0)
            size = finite.max(axis=-1, keepdims=True) if finite.size else finite
        self.size = np.broadcast_to(size, self.value.shape)


class Case:
    def __init__(self, line, numbers):
        self.id, self.op, self.dtype = line["id"], line["op"], line["dtype"]
        self.axes, self.attrs, self.outputs = line["axes"], line["attrs"], line["outputs"]
        self.dtypes = {name: t["dtype"] for name, t in line["tensors"].items()}
        self.inputs = {name: array(t, t["at"], numbers) for name, t in line["tensors"].items()}

    def __getitem__(self, names):
        """`x, w = case["x w"]`"""
        found = [self.inputs[name] for name in names.split()]
        return found if len(found) > 1 else found[0]

    def has(self, name):
        return name in self.inputs

    def flag(self, name):
        return self.attrs[name] == "yes"

    def number(self, name, default=None):
        return float(self.attrs[name]) if default is None else float(self.attrs.get(name, default))

    def count(self, name, default=None):
        return int(self.number(name, default))

    def scale(self, auto):
        return auto if self.attrs["scale"] == "auto" else self.number("scale")


def array(tensor, at, numbers):
    shape = tuple(tensor["shape"])
    return numbers[at : at + int(np.prod(shape, dtype=np.int64))].reshape(shape)


# --- element types ---------------------------------------------------------------------------------------------------

# Bits of the fraction, and the exponent of the least normal value.
FORMATS = {
    "f64": (52, -1022), "f32": (23, -126), "f16": (10, -14), "bf16": (7, -126), "f8e4m3": (3, -6), "f8e5m2": (2, -14),
}  # fmt: skip
LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}


def f8_values(dtype):
    """Every finite value that is not negative, by the definition of the format (OCP 8-bit floating point, 2023)."""
    fraction, least = FORMATS[dtype]
    codes = np.arange(128)
    exponent, rest = codes >> fraction, codes & ((1 << fraction) - 1)
    normal = np.ldexp(1.0 + rest / (1 << fraction), exponent + least - 1)
    values = np.where(exponent == 0, np.ldexp(rest / (1 << fraction), least), normal)
    return values[values <= LARGEST[dtype]]


def round_to(dtype, x):
    """To the nearest value of the type, ties to even, in one rounding."""
    if dtype == "f64":
        return x
    with np.errstate(over="ignore", under="ignore"):
        if dtype == "f32":
            return x.astype(np.float32).astype(np.float64)
        if dtype == "f16":
            return x.astype(np.float16).astype(np.float64)
    if dtype == "bf16":
        # An fp64 has 45 bits of fraction more: add half of the last one kept, a bit less if that one is even, and cut.
        bits = np.ascontiguousarray(x).view(np.uint64)
        odd = (bits >> np.uint64(45)) & np.uint64(1)
        cut = (bits + np.uint64((1 << 44) - 1) + odd) & ~np.uint64((1 << 45) - 1)
        subnormal = np.rint(x * 2.0**133) * 2.0**-133
        return np.where(np.isfinite(x), np.where(np.abs(x) < 2.0**-126, subnormal, cut.view(np.float64)), x)
    values = f8_values(dtype)
    above = np.clip(np.searchsorted(values, np.abs(x)), 1, len(values) - 1)
    low, high = values[above - 1], values[above]
    middle = (low + high) / 2
    # Codes count up, so that the even one of two neighbours is the one with the even code.
    up = (np.abs(x) > middle) | ((np.abs(x) == middle) & (above % 2 == 0))
    return np.copysign(np.where(up, high, low), x)


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
    z = round_to(c.dtype, total)
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
        # (1 + tanh u) / 2 is the logistic function of 2u.
        y = x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
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
    # The derivative of g s(g) is s + g s (1 - s), and 1 - s(g) = s(-g).
    dgate = dy * up * (s + gate * s * special.expit(-gate))
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


# --- matrix products -------------------------------------------------------------------------------------------------


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


# --- attention -------------------------------------------------------------------------------------------------------


def visible(queries, keys, causal, window):
    """Which key each query sees; the last query stands at the last key."""
    at = np.arange(queries)[:, None] + keys - queries
    j = np.arange(keys)[None, :]
    mask = np.full((queries, keys), True)
    if causal:
        mask &= j <= at
    if window:
        mask &= j > at - window
        if not causal:
            mask &= j < at + window
    return mask


def attend(q, k, v, mask, scale):
    """q [..., queries, d], k and v [..., keys, d] -> o, the size of its terms, lse. Sees none: 0 and minus infinity."""
    scores = np.where(mask, scale * (q @ np.swapaxes(k, -1, -2)), -np.inf)
    if k.shape[-2] == 0:
        empty = np.zeros((*scores.shape[:-1], v.shape[-1]))
        return empty, empty, np.full(scores.shape[:-1], -np.inf)
    lse = special.logsumexp(scores, axis=-1)
    p = np.where(mask, np.exp(scores - np.where(np.isfinite(lse), lse, 0.0)[..., None]), 0.0)
    return p @ v, p @ np.abs(v), lse


def lse_near(lse):
    return Near(lse, np.where(np.isfinite(lse), 1 + np.abs(lse), 0.0))


def heads(x, layout):
    """[batch, heads, sequence, d], whichever way the tensor lies."""
    return x if layout == "bhsd" else np.swapaxes(x, 1, 2)


def per_query_head(x, hq, axis):
    return np.repeat(x, hq // x.shape[axis], axis=axis)


def attention_parts(c):
    a, layout = c.axes, c.attrs["layout"]
    q, k, v = (heads(c[name], layout) for name in "qkv")
    mask = visible(a["sq"], a["sk"], c.flag("causal"), c.count("window"))
    return layout, q, per_query_head(k, a["hq"], 1), per_query_head(v, a["hq"], 1), mask, c.scale(a["d"] ** -0.5)


@op("attention")
def attention(c):
    layout, q, k, v, mask, scale = attention_parts(c)
    o, size, lse = attend(q, k, v, mask, scale)
    return {"o": Near(heads(o, layout), heads(size, layout)), "lse": lse_near(lse)}


@op("attention-bwd")
def attention_bwd(c):
    layout, q, k, v, mask, scale = attention_parts(c)
    o, dout = heads(c["o"], layout), heads(c["dout"], layout)
    lse = c["lse"][..., None]
    scores = np.where(mask, scale * np.einsum("bhid,bhjd->bhij", q, k), -np.inf)
    p = np.exp(scores - np.where(np.isfinite(lse), lse, 0.0))
    delta = np.einsum("bhid,bhid->bhi", dout, o)[..., None]
    ds = p * (np.einsum("bhid,bhjd->bhij", dout, v) - delta)
    ds_size = p * (np.abs(dout) @ np.swapaxes(np.abs(v), -1, -2) + np.abs(dout * o).sum(axis=-1, keepdims=True))

    def group(x):
        """The query heads of one kv head added up."""
        b, hq, s, d = x.shape
        return x.reshape(b, c.axes["hkv"], hq // c.axes["hkv"], s, d).sum(axis=2)

    def gradients(p, ds, q, k, dout):
        t = np.swapaxes
        return {"dq": scale * (ds @ k), "dk": group(scale * (t(ds, -1, -2) @ q)), "dv": group(t(p, -1, -2) @ dout)}

    value = gradients(p, ds, q, k, dout)
    size = gradients(p, ds_size, np.abs(q), np.abs(k), np.abs(dout))
    out = {name: Near(heads(value[name], layout), heads(size[name], layout)) for name in value}
    saved, saved_size, saved_lse = attend(q, k, v, mask, scale)
    return out | {"o": Near(heads(saved, layout), heads(saved_size, layout)), "lse": lse_near(saved_lse)}


def ragged(c, sequences):
    """Sequences of their own lengths, each given as (where its queries stand, q, k, v), tensors [tokens, heads, d]."""
    q = c["q"]
    width = None
    parts = []
    for where, q_i, k_i, v_i in sequences:
        k_i, v_i = per_query_head(k_i, q_i.shape[1], 1), per_query_head(v_i, q_i.shape[1], 1)
        causal = c.flag("causal") if "causal" in c.attrs else True
        mask = visible(len(q_i), len(k_i), causal, c.count("window", 0))
        width = v_i.shape[-1]
        auto = 192**-0.5 if c.op == "mla-decode" else q.shape[-1] ** -0.5
        o, size, lse = attend(*(np.swapaxes(x, 0, 1) for x in (q_i, k_i, v_i)), mask, c.scale(auto))
        parts.append((where, np.swapaxes(o, 0, 1), np.swapaxes(size, 0, 1), lse.T))
    o, size, lse = np.zeros((*q.shape[:-1], width)), np.zeros((*q.shape[:-1], width)), np.zeros(q.shape[:-1])
    for where, *values in parts:
        o[where], size[where], lse[where] = values
    return {"o": Near(o, size), "lse": lse_near(lse)}


@op("attention-varlen")
def attention_varlen(c):
    q, k, v = c["q k v"]
    cu_q, cu_k = c["cu_q"].astype(int), c["cu_k"].astype(int)
    spans = zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:])
    return ragged(c, [(slice(i, j), q[i:j], k[m:n], v[m:n]) for i, j, m, n in spans])


def from_pages(cache, table, length):
    """The first `length` rows of a sequence whose pages `table` names."""
    page = cache.shape[1]
    pages = table[: -(-length // page)].astype(int)
    return np.concatenate([cache[:0].reshape(0, *cache.shape[2:]), *cache[pages]])[:length]


@op("attention-decode")
def attention_decode(c):
    q, k, v, table = c["q k_cache v_cache page_table"]
    lengths = c["lengths"].astype(int)
    each = enumerate(zip(table, lengths))
    return ragged(c, [(i, q[i], from_pages(k, t, n), from_pages(v, t, n)) for i, (t, n) in each])


@op("mla-decode")
def mla_decode(c):
    """One head of keys for all queries, and the values are the first columns of the keys."""
    q, cache, table = c["q cache page_table"]
    lengths, rank = c["lengths"].astype(int), c.count("rank")
    rows = [from_pages(cache, t, n)[:, None, :] for t, n in zip(table, lengths)]
    return ragged(c, [(i, q[i], k, k[..., :rank]) for i, k in enumerate(rows)])


@op("nsa")
def nsa(c):
    q, k, v, blocks = c["q k v blocks"]
    s, block = c.axes["s"], c.count("block")
    # [batch, token, kv head, key]: is the key's block among those chosen?
    mask = (blocks.astype(int)[..., None] == np.arange(s) // block).any(axis=-2)
    if c.flag("causal"):
        mask &= np.tril(np.full((s, s), True))[None, :, None, :]
    hq = c.axes["hq"]
    k, v = per_query_head(k, hq, 2), per_query_head(v, hq, 2)
    mask = np.swapaxes(per_query_head(mask, hq, 2), 1, 2)
    o, size, lse = attend(*(np.swapaxes(x, 1, 2) for x in (q, k, v)), mask, c.scale(c.axes["d"] ** -0.5))
    return {"o": Near(np.swapaxes(o, 1, 2), np.swapaxes(size, 1, 2)), "lse": lse_near(np.swapaxes(lse, 1, 2))}


# --- comparison ------------------------------------------------------------------------------------------------------


def differences(what, got, near, dtype=None):
    """One line, on the first place that is wrong, if `got` is not `near`, or not near after rounding to `dtype`."""
    if got.shape != near.value.shape:
        return [f"{what}: shape {got.shape}, NumPy has {near.value.shape}"]
    with np.errstate(invalid="ignore"):
        allowed = near.close * near.size
        if dtype:
            # Half a spacing; the smallest numbers lie as far apart as the smallest normal ones.
            fraction, least = FORMATS[dtype]
            allowed = allowed + 2.0 ** -(fraction + 1) * (1 + 1e-6) * np.maximum(np.abs(near.value), 2.0**least)
        right = (got == near.value) | (np.isnan(got) & np.isnan(near.value)) | (np.abs(got - near.value) <= allowed)
    if right.all():
        return []
    at = tuple(int(i) for i in np.argwhere(~right)[0])
    count = f"{np.count_nonzero(~right)} of {right.size} elements"
    return [f"{what}{list(at)}: {float(got[at])}, NumPy has {float(near.value[at])} +- {allowed[at]:.1e} ({count})"]


def judge(c, numbers):
    found = OPS[c.op](c)
    found = {name: value if isinstance(value, Near) else Near(value) for name, value in found.items()}
    wrong = []
    for name, tensor in c.outputs.items():
        if name not in found:
            wrong.append(f"{c.id}: {name}: oracles.py does not compute it")
            continue
        expected = array(tensor, tensor["at"], numbers)
        rounded = array(tensor, tensor["rounded"], numbers)
        wrong += differences(f"{c.id}: {name}", expected, found[name])
        # What the gate takes for the best answer: the expectation, rounded once.
        exact = Near(round_to(tensor["dtype"], expected), 0.0)
        wrong += differences(f"{c.id}: {name} rounded to {tensor['dtype']}", rounded, exact)
    for name in found.keys() & c.inputs.keys() - c.outputs.keys():
        wrong += differences(f"{c.id}: input {name}", c.inputs[name], found[name], c.dtypes[name])
    return wrong


def main(folder):
    numbers = np.fromfile(folder / "numbers.f64", dtype="<f8")
    lines = (folder / "manifest.jsonl").read_text().splitlines()
    cases = [Case(json.loads(line), numbers) for line in lines]
    seen = {c.op for c in cases}
    wrong = [f"{name}: oracles.py has no function for this op" for name in sorted(seen - OPS.keys())]
    wrong += [f"{name}: no case was written for it" for name in sorted(OPS.keys() - seen)]
    with np.errstate(divide="ignore"):
        wrong += [line for c in cases if c.op in OPS for line in judge(c, numbers)]
    print("\n".join(wrong[:100]) if wrong else f"{len(cases)} cases of {len(seen)} ops agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
