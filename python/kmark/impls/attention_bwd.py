"""Backward of attention from the saved output and lse: SDPA's backends, FlashAttention 2 to 4, xFormers."""

from __future__ import annotations

from typing import Any

from ..registry import Unsupported, impl
from ._attention import (
    HALF,
    bhsd,
    blind,
    bshd,
    fits,
    flash_attn_3,
    only,
    scale_of,
    scores_of,
    sides,
    visible,
    widths,
)
from .attention import efficient_mask, xformers_mask

_NEW = "q,k,v,o,dout,lse -> dq,dk,dv (new tensors)"


def _grads(case: Any, dq: Any, dk: Any, dv: Any) -> dict[str, Any]:
    """New gradients, heads after positions, in the case's layout."""
    return {"dq": bshd(case, dq), "dk": bshd(case, dk), "dv": bshd(case, dv)}


def _sees(case: Any) -> None:
    if blind(case):
        raise Unsupported("queries that see no key: lse of minus infinity")


def _any_bits(case: Any) -> None:
    if case.flag("deterministic"):
        raise Unsupported("no deterministic mode that is known")


@impl(
    "torch",
    about="Five products with what lies between, nothing fused; weights from lse",
    devices=("cpu", "cuda"),
    strided=True,
    contract=_NEW,
)
def torch_(case, t):
    import torch

    b, hkv, sq, sk, d, group = case.b, case.hkv, case.sq, case.sk, case.d, case.hq // case.hkv
    fits(case, 2 * b * case.hq * sq * sk)
    scale = scale_of(case)
    q, k, v, o, dout = (bhsd(case, x) for x in (t.q, t.k, t.v, t.o, t.dout))
    seen = visible(torch, sq, sk, case.flag("causal"), case.count("window"), device=t.q.device)
    if seen is not None:
        seen = seen.repeat(group, 1)
    some = None if seen is None else seen.any(-1)
    lse = t.lse.reshape(b * hkv, group * sq, 1)
    wide = t.lse.dtype

    def launch():
        rows = [x.reshape(b * hkv, group * sq, d) for x in (q, o, dout)]
        keys = [x.reshape(b * hkv, sk, d) for x in (k, v)]
        p = scores_of(rows[0], keys[0]).mul_(scale).sub_(lse).exp_()
        if seen is not None:
            p.masked_fill_(~seen, 0.0)
        drop = (rows[2].to(wide) * rows[1].to(wide)).sum(-1, keepdim=True)
        ds = scores_of(rows[2], keys[1]).sub_(drop).mul_(p).mul_(scale)
        if some is not None:
            ds.masked_fill_(~some[:, None], 0.0)
        p, ds = p.to(q.dtype), ds.to(q.dtype)
        dq = torch.bmm(ds, keys[0]).view(b, case.hq, sq, d)
        dk = torch.bmm(ds.transpose(1, 2), rows[0]).view(b, hkv, sk, d)
        dv = torch.bmm(p.transpose(1, 2), rows[2]).view(b, hkv, sk, d)
        return {"dq": bhsd(case, dq), "dk": bhsd(case, dk), "dv": bhsd(case, dv)}

    return launch


@impl("sdpa-flash", about="torch's FlashAttention-2 backward, the op below SDPA", contract=_NEW)
def sdpa_flash(case, t):
    import torch

    only(case, *HALF)
    widths(case, 256)
    _sees(case)
    q, k, v, o, dout = (bshd(case, x) for x in (t.q, t.k, t.v, t.o, t.dout))
    left, right = sides(case, None)
    causal, scale = case.flag("causal"), scale_of(case)
    seed = torch.zeros(2, dtype=torch.uint64, device=t.q.device)  # of a dropout that does not happen
    run = torch.ops.aten._flash_attention_backward.default

    def launch():
        got = run(
            dout,
            q,
            k,
            v,
            o,
            t.lse,
            None,
            None,
            case.sq,
            case.sk,
            0.0,
            causal,
            seed,
            seed,
            scale=scale,
            window_size_left=left,
            window_size_right=right,
        )
        return _grads(case, *got)

    if not case.flag("deterministic"):
        return launch
    torch.utils.deterministic.fill_uninitialized_memory = False  # launches of its own, which no user needs
    # torch.use_deterministic_algorithms takes 5 µs for both, and imports its compiler; the mode is that of the process.
    switch = torch._C._set_deterministic_algorithms

    def same_bits():
        switch(True, warn_only=False)
        try:
            return launch()
        finally:
            switch(False, warn_only=False)

    return same_bits


@impl("sdpa-cudnn", about="cuDNN's attention backward, the op below SDPA", contract=_NEW)
def sdpa_cudnn(case, t):
    import torch

    only(case, *HALF)
    widths(case, 256)
    _any_bits(case)
    if case.count("window"):
        raise Unsupported("no window")
    if case.flag("causal") and case.sq != case.sk:
        raise Unsupported("its causal mask is aligned at the first key")
    q, k, v, o, dout = (bhsd(case, x) for x in (t.q, t.k, t.v, t.o, t.dout))
    causal, scale, lse = case.flag("causal"), scale_of(case), t.lse.unsqueeze(-1)
    seed = torch.zeros((), dtype=torch.int64, device=t.q.device)  # of a dropout that does not happen
    run = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default

    def launch():
        dq, dk, dv = run(
            dout, q, k, v, o, lse, seed, seed, None, None, None, case.sq, case.sk, 0.0, causal, scale=scale
        )
        return {"dq": bhsd(case, dq), "dk": bhsd(case, dk), "dv": bhsd(case, dv)}

    with case.building():
        launch()
    return launch


@impl("sdpa-efficient", about="torch's memory-efficient backward (CUTLASS), the op below SDPA", contract=_NEW)
def sdpa_efficient(case, t):
    import torch

    only(case, "f32", *HALF)
    _sees(case)
    _any_bits(case)
    mask, _ = efficient_mask(case)
    if case.count("window"):
        raise Unsupported("its backward with a window is known to give infinities")
    if case.hkv != case.hq:
        raise Unsupported("grouped key heads: they would have to be copied and their gradients added up")
    q, k, v, o, dout = (bshd(case, x) for x in (t.q, t.k, t.v, t.o, t.dout))
    # Rows padded to 32, as its forward saves them.
    lse = case.arranged(lambda: torch.nn.functional.pad(t.lse, (0, -case.sq % 32)))
    scale, none = scale_of(case), torch.zeros((), dtype=torch.int64, device=t.q.device)
    run = torch.ops.aten._efficient_attention_backward.default

    def launch():
        dq, dk, dv, _ = run(
            dout,
            q,
            k,
            v,
            None,
            o,
            None,
            None,
            case.sq,
            case.sk,
            lse,
            0.0,
            none,
            none,
            mask,
            False,
            scale=scale,
        )
        return _grads(case, dq, dk, dv)

    return launch


@impl("flash-attn-4", about="FlashAttention-4's CuTe DSL backward")
def flash_attn_4(case, t):
    from flash_attn.cute.interface import _flash_attn_bwd

    only(case, *HALF)
    widths(case, 256)
    q, k, v, o, dout, dq, dk, dv = (bshd(case, x) for x in (t.q, t.k, t.v, t.o, t.dout, t.dq, t.dk, t.dv))
    left, right = sides(case, None)
    causal, scale = case.flag("causal"), scale_of(case)
    same_bits = {"deterministic": True} if case.flag("deterministic") else {}

    def launch():
        _flash_attn_bwd(
            q,
            k,
            v,
            o,
            dout,
            t.lse,
            softmax_scale=scale,
            causal=causal,
            window_size_left=left,
            window_size_right=right,
            dq=dq,
            dk=dk,
            dv=dv,
            **same_bits,
        )

    with case.building():
        launch()
    return launch


@impl("flash-attn-3", about="FlashAttention-3's backward for Hopper")
def flash_attn_3_(case, t):
    only(case, *HALF)
    widths(case, 256)
    run = flash_attn_3(case, backward=True).bwd.default
    q, k, v, o, dout, dq, dk, dv = (bshd(case, x) for x in (t.q, t.k, t.v, t.o, t.dout, t.dq, t.dk, t.dv))
    left, right = sides(case)
    causal, scale = case.flag("causal"), scale_of(case)
    same_bits = {"deterministic": True} if case.flag("deterministic") else {}

    def launch():
        run(
            dout,
            q,
            k,
            v,
            o,
            t.lse,
            dq=dq,
            dk=dk,
            dv=dv,
            softmax_scale=scale,
            is_causal=causal,
            window_size_left=left,
            window_size_right=right,
            **same_bits,
        )

    return launch


@impl("flash-attn-2", about="FlashAttention-2's backward")
def flash_attn_2(case, t):
    from flash_attn.flash_attn_interface import _flash_attn_backward

    only(case, *HALF)
    widths(case, 256)
    _sees(case)
    q, k, v, o, dout, dq, dk, dv = (bshd(case, x) for x in (t.q, t.k, t.v, t.o, t.dout, t.dq, t.dk, t.dv))
    left, right = sides(case)
    causal, scale, same_bits = case.flag("causal"), scale_of(case), case.flag("deterministic")

    def launch():
        _flash_attn_backward(dout, q, k, v, o, t.lse, dq, dk, dv, 0.0, scale, causal, left, right, 0.0, None, same_bits)

    return launch


def _xformers(case, t, op):
    import torch
    from xformers.ops import fmha

    only(case, *(HALF if op is fmha.flash3.BwOp else ("f32", *HALF)))
    widths(case, 256)
    _sees(case)
    _any_bits(case)
    if case.hkv != case.hq:
        raise Unsupported("grouped key heads")
    if case.count("window") and op is fmha.cutlass.BwOp:
        raise Unsupported("no window")
    bias = xformers_mask(case, fmha, op is fmha.flash3.BwOp)
    q, k, v, o, dout = (bshd(case, x) for x in (t.q, t.k, t.v, t.o, t.dout))
    scale, lse = scale_of(case), t.lse
    if op is fmha.cutlass.BwOp:
        lse = case.arranged(lambda: torch.nn.functional.pad(t.lse, (0, -case.sq % 32)))

    def launch():
        run = fmha.memory_efficient_attention_backward
        return _grads(case, *run(dout, o, lse, q, k, v, bias, scale=scale, op=op))

    return launch


@impl("xformers/cutlass", about="xFormers' backward, its CUTLASS kernel forced", contract=_NEW)
def xformers_cutlass(case, t):
    from xformers.ops import fmha

    return _xformers(case, t, fmha.cutlass.BwOp)


@impl("xformers/fa3", about="xFormers' backward, its FlashAttention-3 forced", contract=_NEW)
def xformers_fa3(case, t):
    from xformers.ops import fmha

    return _xformers(case, t, fmha.flash3.BwOp)
