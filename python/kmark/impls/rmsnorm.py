"""RMSNorm: y = x * rstd * w."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, Unsupported, impl
from ._compile import built, compiled, tuned
from ._rows import (
    HALF,
    UPTO32,
    acc,
    numpy_acc,
    only,
    only_blackwell,
    only_same_weight,
    row_blocks,
    row_in_vectors,
    row_upto,
    same_weight,
    triton_acc,
    triton_block,
)


@impl("torch", about="ATen's fused RMSNorm", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    eps, wide = case.number("eps"), acc(case)

    def launch() -> Any:
        y, rstd = torch.ops.aten._fused_rms_norm(t.x, [case.n], t.w, eps)
        return {"y": y} if t.rstd is None else {"y": y, "rstd": rstd.view(case.m)}

    def upcast() -> Any:
        y, rstd = torch.ops.aten._fused_rms_norm(t.x.to(wide), [case.n], t.w.to(wide), eps)
        t.y.copy_(y)
        return None if t.rstd is None else {"rstd": rstd.view(case.m)}

    return launch if same_weight(case) else upcast


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, w, y, rstd, eps, wide = t.x, t.w, t.y, t.rstd, case.number("eps"), acc(case)

    def launch() -> None:
        v = x.to(wide)
        r = torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)
        y.copy_(v * r * w.to(wide))
        if rstd is not None:
            rstd.copy_(r[:, 0])

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def rmsnorm(x, w, y, rstd, x_row, y_row, n, EPS: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        lanes = tl.arange(0, BLOCK)
        squares = tl.zeros([BLOCK], ACC)
        for at in range(0, n, BLOCK):
            v = tl.load(x + row * x_row + at + lanes, mask=at + lanes < n, other=0).to(ACC)
            squares += v * v
        r = 1 / tl.sqrt(tl.sum(squares, 0) / n + EPS)
        if rstd is not None:
            tl.store(rstd + row, r)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC)
            scale = tl.load(w + c, mask=c < n, other=0).to(ACC)
            tl.store(y + row * y_row + c, (v * r * scale).to(y.dtype.element_ty), mask=c < n)

    return rmsnorm


@impl("triton", about="A program per row, which it reads twice, from the caches if short", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, eps, wide, block = _kernel(), case.number("eps"), triton_acc(case), triton_block(case.n)

    def launch() -> None:
        kernel[(case.m,)](t.x, t.w, t.y, t.rstd, t.x.stride(0), t.y.stride(0), case.n, eps, wide, **block)

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel")
def quack(case: Case, t: Any) -> Launch:
    from quack.rmsnorm import _rmsnorm_fwd

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    eps = case.number("eps")

    def launch() -> None:
        _rmsnorm_fwd(t.x, t.w, t.y, None, t.rstd, None, None, None, eps)

    return built(case, launch)


def _keeps_rstd(case: Case) -> str | None:
    return None if case.flag("rstd") else "x,w -> y,rstd (rstd is always saved)"


@impl("liger", about="Liger's Triton kernel, all in f32 (its Gemma mode)", contract=_keeps_rstd)
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.rms_norm import rms_norm_forward

    only(case, *UPTO32)
    row_upto(case, 65536)
    eps = case.number("eps")

    def launch() -> Any:
        y, _, rstd, *_ = rms_norm_forward(t.x, t.w, eps, 0.0, "gemma", None)
        return {"y": y} if t.rstd is None else {"y": y, "rstd": rstd}

    return built(case, launch)


@impl("fla", about="Triton kernel of flash-linear-attention", contract=_keeps_rstd)
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.norm.layernorm import layer_norm_fwd

    only(case, *UPTO32)
    row_upto(case, 65536 // t.x.element_size())
    eps = case.number("eps")

    def launch() -> Any:
        y, _, rstd, _ = layer_norm_fwd(t.x, t.w, None, eps, is_rms_norm=True)
        return {"y": y} if t.rstd is None else {"y": y, "rstd": rstd}

    return tuned(case, launch)


@impl("flashinfer", about="FlashInfer's rmsnorm")
def flashinfer(case: Case, t: Any) -> Launch:
    from flashinfer.norm import rmsnorm

    only(case, *HALF)
    only_same_weight(case)
    if t.rstd is not None:
        raise Unsupported("no rstd")
    eps = case.number("eps")

    def launch() -> None:
        rmsnorm(t.x, t.w, eps, out=t.y)

    return built(case, launch)


@impl("xformers", about="xFormers' Triton kernel")
def xformers(case: Case, t: Any) -> Launch:
    from xformers.ops.rmsnorm import rms_norm

    only(case, *UPTO32)
    if t.rstd is not None:
        raise Unsupported("no rstd")
    eps = case.number("eps")

    def launch() -> Any:
        return rms_norm(t.x, t.w, eps)

    return built(case, launch)


@impl("oink", about="Oink's CuTe DSL kernel for Blackwell")
def oink(case: Case, t: Any) -> Launch:
    from kernelagent_oink.blackwell.rmsnorm import rmsnorm_forward

    only(case, *UPTO32)
    only_blackwell(t.x)
    eps, save = case.number("eps"), t.rstd is not None

    def launch() -> Any:
        y, rstd, _ = rmsnorm_forward(t.x, weight=t.w, bias=None, residual=None, eps=eps, store_rstd=save)
        return {"y": y, "rstd": rstd} if save else {"y": y}

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    eps, wide = case.number("eps"), numpy_acc(case)

    def launch() -> None:
        w = t.w.astype(wide)
        for rows in row_blocks(case.m, case.n):
            x = t.x[rows].astype(wide)
            r = 1 / np.sqrt(np.mean(x * x, 1, keepdims=True) + wide(eps))
            x *= r
            x *= w
            t.y[rows] = x
            if t.rstd is not None:
                t.rstd[rows] = r[:, 0]

    return launch


@impl("max", about="Modular's MAX: recognised, not timed")
def max_(case, t):
    from ._max import refuse

    refuse(case)
