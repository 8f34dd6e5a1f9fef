"""Attention over ragged sequences end to end: torch, FlashAttention 2 to 4, FlashInfer, xFormers."""

from __future__ import annotations

from typing import Any

from ..registry import Unsupported, impl
from ._attention import (
    HALF,
    efficient_mask,
    fits,
    flash_attn_3,
    one_head_for_all,
    only,
    plain,
    plain_numpy,
    ragged_prefill,
    scale_of,
    sides,
    visible,
    widths,
)

_NEW = "q,k,v,cu_q,cu_k -> o (new tensors)"


def _lengths(t: Any) -> tuple[list[int], list[int]]:
    """Where sequences of queries and of keys start, and the last ends; read when binding."""
    return t.cu_q.tolist(), t.cu_k.tolist()


def _longest(starts: list[int]) -> int:
    return max((b - a for a, b in zip(starts, starts[1:])), default=0)


@impl(
    "numpy",
    about="Plain attention in NumPy, sequence by sequence and head by head",
    devices=("cpu",),
    arrays="numpy",
    strided=True,
)
def numpy_(case, t):
    import numpy as np

    only(case, "f32", "f64", "f16")
    cu_q, cu_k = _lengths(t)
    scale, group = scale_of(case), case.hq // case.hkv
    spans = [(slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])) for i in range(case.b)]
    rule = case.flag("causal"), case.count("window")
    seen = [visible(np, q.stop - q.start, k.stop - k.start, *rule) for q, k in spans]

    def launch():
        for (rows, keys), mask in zip(spans, seen):
            for h in range(case.hq):
                t.o[rows, h], lse = plain_numpy(t.q[rows, h], t.k[keys, h // group], t.v[keys, h // group], scale, mask)
                if t.lse is not None:
                    t.lse[rows, h] = lse

    return launch


@impl(
    "torch",
    about="Two products and a softmax for each sequence, nothing fused",
    devices=("cpu", "cuda"),
    strided=True,
    contract=_NEW,
)
def torch_(case, t):
    import torch

    cu_q, cu_k = _lengths(t)
    fits(case, case.hq * _longest(cu_q) * _longest(cu_k))
    scale, group, parts = scale_of(case), case.hq // case.hkv, []
    for i in range(case.b):
        rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        n = rows.stop - rows.start
        if n:
            mask = visible(
                torch, n, keys.stop - keys.start, case.flag("causal"), case.count("window"), device=t.q.device
            )
            parts.append((rows, keys, n, None if mask is None else mask.repeat(group, 1)))

    def launch():
        os, lses = [], []
        for rows, keys, n, mask in parts:
            q = t.q[rows].transpose(0, 1).reshape(case.hkv, group * n, case.d)
            k, v = (x[keys].transpose(0, 1) for x in (t.k, t.v))
            lse = t.lse.new_empty(case.hkv, group * n) if case.flag("lse") else None
            os.append(plain(q, k, v, scale, mask, None, lse).view(case.hq, n, case.d))
            lses.append(None if lse is None else lse.view(case.hq, n))
        o = {"o": torch.cat(os, 1).transpose(0, 1)}
        return {**o, "lse": torch.cat(lses, 1).T} if case.flag("lse") else o

    return launch


def _kept(case: Any, o: Any, lse: Any) -> dict[str, Any]:
    """New tensors; libraries keep lse as [heads, tokens]."""
    return {"o": o, "lse": lse.T} if case.flag("lse") else {"o": o}


@impl(
    "sdpa-flash",
    about="torch's FlashAttention-2 with sequence starts, the op below varlen_attn",
    contract=_NEW,
)
def sdpa_flash(case, t):
    import torch

    only(case, *HALF)
    widths(case, 256)
    cu_q, cu_k = _lengths(t)
    most_q, most_k = _longest(cu_q), _longest(cu_k)
    left, right = sides(case, None)
    causal, scale = case.flag("causal"), scale_of(case)
    run = torch.ops.aten._flash_attention_forward.default

    def launch():
        o, lse, *_ = run(
            t.q,
            t.k,
            t.v,
            t.cu_q,
            t.cu_k,
            most_q,
            most_k,
            0.0,
            causal,
            False,
            scale=scale,
            window_size_left=left,
            window_size_right=right,
        )
        return _kept(case, o, lse)

    return launch


@impl("sdpa-cudnn", about="cuDNN's attention with sequence starts, the op below varlen_attn", contract=_NEW)
def sdpa_cudnn(case, t):
    import torch

    only(case, *HALF)
    widths(case, 256)
    if case.count("window") or case.flag("lse") or case["lengths"] == "ragged":
        raise Unsupported("no window, no lse of ragged sequences, no empty sequence")
    if case.flag("causal") and case.count("prefix"):
        raise Unsupported("its causal mask is aligned at the first key")
    cu_q, cu_k = _lengths(t)
    most_q, most_k = _longest(cu_q), _longest(cu_k)
    causal, scale = case.flag("causal"), scale_of(case)
    run = torch.ops.aten._cudnn_attention_forward.default

    def launch():
        got = run(t.q, t.k, t.v, None, t.cu_q, t.cu_k, most_q, most_k, False, 0.0, causal, False, scale=scale)
        return {"o": got[0]}

    with case.building():
        launch()
    return launch


@impl("sdpa-efficient", about="torch's memory-efficient attention (CUTLASS) with sequence starts", contract=_NEW)
def sdpa_efficient(case, t):
    import torch

    only(case, "f32", *HALF)
    if case.flag("lse"):
        raise Unsupported("lse comes padded, sequence by sequence")
    mask, window = efficient_mask(case)
    cu_q, cu_k = _lengths(t)
    most_q, most_k = _longest(cu_q), _longest(cu_k)
    q, k, v = (x.unsqueeze(0) for x in (t.q, t.k, t.v))
    k, v = (one_head_for_all(case, x) for x in (k, v))
    scale = scale_of(case)
    run = torch.ops.aten._efficient_attention_forward.default

    def launch():
        o = run(q, k, v, None, t.cu_q, t.cu_k, most_q, most_k, 0.0, mask, False, scale=scale, window_size=window)[0]
        return {"o": o.squeeze(0)}

    return launch


@impl(
    "flash-attn-4",
    about="FlashAttention-4's CuTe DSL kernel with sequence starts",
    contract=lambda case: "q,k,v,cu_q,cu_k -> o,lse (lse a new tensor)" if case.flag("lse") else None,
)
def flash_attn_4(case, t):
    from flash_attn.cute.interface import _flash_attn_fwd

    only(case, *HALF)
    widths(case, 256)
    cu_q, cu_k = _lengths(t)
    most_q, most_k = _longest(cu_q), _longest(cu_k)
    left, right = sides(case, None)
    causal, scale, want = case.flag("causal"), scale_of(case), case.flag("lse")

    def launch():
        _, lse, *_ = _flash_attn_fwd(
            t.q,
            t.k,
            t.v,
            cu_seqlens_q=t.cu_q,
            cu_seqlens_k=t.cu_k,
            max_seqlen_q=most_q,
            max_seqlen_k=most_k,
            softmax_scale=scale,
            causal=causal,
            window_size_left=left,
            window_size_right=right,
            return_lse=want,
            out=t.o,
        )
        return {"lse": lse.T} if want else None

    with case.building():
        launch()
    return launch


@impl(
    "flash-attn-3",
    about="FlashAttention-3's kernel for Hopper with sequence starts",
    contract="q,k,v,cu_q,cu_k -> o,lse (lse a new tensor)",
)
def flash_attn_3_(case, t):
    only(case, *HALF)
    widths(case, 256)
    run = flash_attn_3(case).fwd.default
    cu_q, cu_k = _lengths(t)
    most_q, most_k = _longest(cu_q), _longest(cu_k)
    left, right = sides(case)
    causal, scale = case.flag("causal"), scale_of(case)

    def launch():
        _, lse, *_ = run(
            t.q,
            t.k,
            t.v,
            out=t.o,
            cu_seqlens_q=t.cu_q,
            cu_seqlens_k=t.cu_k,
            max_seqlen_q=most_q,
            max_seqlen_k=most_k,
            softmax_scale=scale,
            is_causal=causal,
            window_size_left=left,
            window_size_right=right,
            num_splits=1,
        )
        return {"lse": lse.T} if case.flag("lse") else None

    return launch


@impl("flash-attn-2", about="FlashAttention-2 with sequence starts", contract=_NEW)
def flash_attn_2(case, t):
    from flash_attn import flash_attn_varlen_func

    only(case, *HALF)
    widths(case, 256)
    cu_q, cu_k = _lengths(t)
    most_q, most_k = _longest(cu_q), _longest(cu_k)
    causal, scale, window, want = case.flag("causal"), scale_of(case), sides(case), case.flag("lse")

    def launch():
        got = flash_attn_varlen_func(
            t.q,
            t.k,
            t.v,
            t.cu_q,
            t.cu_k,
            most_q,
            most_k,
            softmax_scale=scale,
            causal=causal,
            window_size=window,
            return_attn_probs=want,
        )
        return _kept(case, got[0], got[1]) if want else {"o": got}

    return launch


@impl(
    "flashinfer",
    about="FlashInfer's ragged prefill, planned once",
    contract=lambda case: "q,k,v,cu_q,cu_k -> o,lse (lse in base 2, then scaled)" if case.flag("lse") else None,
)
def flashinfer(case, t):
    run = ragged_prefill(case, t.q, t.k, t.v, t.o, t.lse, t.cu_q, t.cu_k)

    def launch():
        run()

    return launch


def _xformers(case, t, op):
    from xformers.ops import fmha

    only(case, *HALF)
    widths(case, 256)
    if case.flag("lse"):
        raise Unsupported("no lse")
    cu_q, cu_k = _lengths(t)
    seqs = [[b - a for a, b in zip(x, x[1:])] for x in (cu_q, cu_k)]
    bias = fmha.BlockDiagonalMask.from_seqlens(*seqs, device=t.q.device)
    if case.flag("causal"):
        window = case.count("window")
        causal = bias.make_causal_from_bottomright
        bias = bias.make_local_attention_from_bottomright(window) if window else causal()
    elif case.count("window"):
        raise Unsupported("a window without causality")
    q, k, v = (x.unsqueeze(0) for x in (t.q, t.k, t.v))
    group, scale = case.hq // case.hkv, scale_of(case)
    if group > 1:
        q = q.unflatten(2, (case.hkv, group))
        k, v = (x.unsqueeze(3).expand(-1, -1, -1, group, -1) for x in (k, v))

    def launch():
        o = fmha.memory_efficient_attention_forward(q, k, v, bias, scale=scale, op=op)
        return {"o": o.reshape(t.o.shape)}

    return launch


@impl("xformers/cutlass", about="xFormers with a block-diagonal mask, its CUTLASS kernel forced", contract=_NEW)
def xformers_cutlass(case, t):
    from xformers.ops import fmha

    return _xformers(case, t, fmha.cutlass.FwOp)


@impl("xformers/fa3", about="xFormers with a block-diagonal mask, its FlashAttention-3 forced", contract=_NEW)
def xformers_fa3(case, t):
    from xformers.ops import fmha

    return _xformers(case, t, fmha.flash3.FwOp)
