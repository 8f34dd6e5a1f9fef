"""Everything that attends."""

import numpy as np
from kit import Near, op


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


def log_sum_exp(x):
    """Of rows, as kernels have it: that of nothing is minus infinity."""
    largest = x.max(axis=-1)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    return largest + np.log(np.exp(x - largest[..., None]).sum(axis=-1))


def attend(q, k, v, mask, scale):
    """q [..., queries, d], k and v [..., keys, d] -> o, the size of its terms, lse. Sees none: 0 and minus infinity."""
    scores = np.where(mask, scale * (q @ np.swapaxes(k, -1, -2)), -np.inf)
    if k.shape[-2] == 0:
        empty = np.zeros((*scores.shape[:-1], v.shape[-1]))
        return empty, empty, np.full(scores.shape[:-1], -np.inf)
    lse = log_sum_exp(scores)
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
