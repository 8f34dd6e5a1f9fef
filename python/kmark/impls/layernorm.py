"""LayerNorm: y = (x - mean) * rstd * w + b."""

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
    row_blocks,
    row_in_vectors,
    row_upto,
    same_weight,
    triton_acc,
    triton_block,
)


def _named(t: Any, y: Any, mean: Any, rstd: Any) -> dict[str, Any]:
    """New tensors under the names of the outputs that the case has."""
    return {"y": y} if t.mean is None else {"y": y, "mean": mean.view(-1), "rstd": rstd.view(-1)}


def _keeps_stats(case: Case) -> str | None:
    return None if case.flag("stats") else "x,w,b -> y,mean,rstd (mean and rstd are always saved)"


@impl("torch", about="ATen's native_layer_norm", devices=("cpu", "cuda"), strided=True, contract=_keeps_stats)
def torch(case: Case, t: Any) -> Launch:
    import torch

    eps, wide, same = case.number("eps"), acc(case), same_weight(case)
    if case.device == "cpu" and case.dtype in HALF and same and t.mean is not None:
        raise Unsupported("mean and rstd in 16 bits on a CPU")

    def launch() -> Any:
        return _named(t, *torch.ops.aten.native_layer_norm(t.x, [case.n], t.w, t.b, eps))

    def upcast() -> Any:
        b = None if t.b is None else t.b.to(wide)
        y, mean, rstd = torch.ops.aten.native_layer_norm(t.x.to(wide), [case.n], t.w.to(wide), b, eps)
        t.y.copy_(y)
        return None if t.mean is None else {"mean": mean.view(-1), "rstd": rstd.view(-1)}

    return launch if same else upcast


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, w, b, y, mean_to, rstd_to = t.x, t.w, t.b, t.y, t.mean, t.rstd
    eps, wide = case.number("eps"), acc(case)

    def launch() -> None:
        v = x.to(wide)
        variance, mean = torch.var_mean(v, -1, correction=0, keepdim=True)
        r = torch.rsqrt(variance + eps)
        scaled = (v - mean) * r * w.to(wide)
        y.copy_(scaled if b is None else scaled + b.to(wide))
        if mean_to is not None:
            mean_to.copy_(mean[:, 0])
            rstd_to.copy_(r[:, 0])

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def layernorm(
        x, w, b, y, mean_to, rstd_to, x_row, y_row, n,
        EPS: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        lanes = tl.arange(0, BLOCK)
        sums = tl.zeros([BLOCK], ACC)
        for at in range(0, n, BLOCK):
            sums += tl.load(x + row * x_row + at + lanes, mask=at + lanes < n, other=0).to(ACC)
        mean = tl.sum(sums, 0) / n
        squares = tl.zeros([BLOCK], ACC)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC)
            v = tl.where(c < n, v - mean, 0.0)
            squares += v * v
        r = 1 / tl.sqrt(tl.sum(squares, 0) / n + EPS)
        if mean_to is not None:
            tl.store(mean_to + row, mean)
            tl.store(rstd_to + row, r)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC)
            v = (v - mean) * r * tl.load(w + c, mask=c < n, other=0).to(ACC)
            if b is not None:
                v += tl.load(b + c, mask=c < n, other=0).to(ACC)
            tl.store(y + row * y_row + c, v.to(y.dtype.element_ty), mask=c < n)

    return layernorm


@impl("triton", about="A program per row, which it reads three times, from the caches if short", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, eps, wide, block = _kernel(), case.number("eps"), triton_acc(case), triton_block(case.n)
    strides = t.x.stride(0), t.y.stride(0)

    def launch() -> None:
        kernel[(case.m,)](t.x, t.w, t.b, t.y, t.mean, t.rstd, *strides, case.n, eps, wide, **block)

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel, which it shares with RMSNorm")
def quack(case: Case, t: Any) -> Launch:
    from quack.rmsnorm import _rmsnorm_fwd

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    if t.w.dtype.itemsize != 4:
        raise Unsupported("weights in f32 only")
    eps = case.number("eps")

    def launch() -> None:
        _rmsnorm_fwd(t.x, t.w, t.y, t.b, t.rstd, t.mean, None, None, eps, True)

    return built(case, launch)


def _needs_bias(case: Case) -> str | None:
    b = "b" if case.flag("bias") else "zeros"
    return None if case.flag("bias") and case.flag("stats") else f"x,w,{b} -> y,mean,rstd"


@impl("liger", about="Liger's Triton kernel, with a bias of zeros where there is none", contract=_needs_bias)
def liger(case: Case, t: Any) -> Launch:
    import torch
    from liger_kernel.ops.layer_norm import layer_norm_forward

    only(case, *UPTO32)
    row_upto(case, 65536)
    eps, b = case.number("eps"), torch.zeros_like(t.w) if t.b is None else t.b

    def launch() -> Any:
        y, _, mean, rstd, *_ = layer_norm_forward(t.x, t.w, b, eps)
        return _named(t, y, mean, rstd)

    return built(case, launch)


@impl("fla", about="Triton kernel of flash-linear-attention", contract=_keeps_stats)
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.norm.layernorm import layer_norm_fwd

    only(case, *UPTO32)
    row_upto(case, 65536 // t.x.element_size())
    eps = case.number("eps")

    def launch() -> Any:
        y, mean, rstd, _ = layer_norm_fwd(t.x, t.w, t.b, eps)
        return _named(t, y, mean, rstd)

    return tuned(case, launch)


@impl(
    "flashinfer",
    about="FlashInfer's layernorm, with a bias of zeros where there is none",
    contract=lambda case: None if case.flag("bias") else "x,w,zeros -> y",
)
def flashinfer(case: Case, t: Any) -> Launch:
    import torch
    from flashinfer.norm import layernorm

    only(case, "bf16")
    if case["w"] != "f32":
        raise Unsupported("weights in f32 only")
    if t.mean is not None:
        raise Unsupported("no mean and no rstd")
    eps, b = case.number("eps"), torch.zeros_like(t.w) if t.b is None else t.b

    def launch() -> Any:
        return layernorm(t.x, t.w, b, eps)

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    eps, wide = case.number("eps"), numpy_acc(case)

    def launch() -> None:
        w, b = t.w.astype(wide), None if t.b is None else t.b.astype(wide)
        for rows in row_blocks(case.m, case.n):
            x = t.x[rows].astype(wide)
            mean = np.mean(x, 1, keepdims=True)
            x -= mean
            r = 1 / np.sqrt(np.mean(x * x, 1, keepdims=True) + wide(eps))
            x *= r
            x *= w
            if b is not None:
                x += b
            t.y[rows] = x
            if t.mean is not None:
                t.mean[rows], t.rstd[rows] = mean[:, 0], r[:, 0]

    return launch
