"""Residual addition and RMSNorm: z = x + residual and y = z * rstd(z) * w, of z as stored or of the exact sum."""

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
    only_same_weight,
    row_blocks,
    row_in_vectors,
    row_upto,
    same_weight,
    triton_acc,
    triton_block,
)


def _targets(case: Case, t: Any) -> tuple[Any, Any]:
    """Where y and z go."""
    return (t.x, t.residual) if case["form"] == "inplace" else (t.y, t.z)


def _named(case: Case, y: Any, z: Any) -> dict[str, Any]:
    """New tensors y and z under the names of the outputs."""
    return {"x": y, "residual": z} if case["form"] == "inplace" else {"y": y, "z": z}


def _takes(case: Case, kind: str) -> None:
    """Refuse the sum that the library does not normalise; in wider types there is hardly a difference."""
    if case.dtype in HALF and case["sum"] != kind:
        raise Unsupported(f"sum={kind} only")


@impl("torch", about="An addition, then ATen's fused RMSNorm", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    eps, wide, name = case.number("eps"), acc(case), "x" if case["form"] == "inplace" else "y"
    y_to, z_to = _targets(case, t)

    def launch() -> Any:
        torch.add(t.x, t.residual, out=z_to)
        return {name: torch.ops.aten._fused_rms_norm(z_to, [case.n], t.w, eps)[0]}

    def upcast() -> None:
        if case["sum"] == "exact":
            z = t.x.to(wide) + t.residual
            z_to.copy_(z)
        else:
            torch.add(t.x, t.residual, out=z_to)
            z = z_to.to(wide)
        y_to.copy_(torch.ops.aten._fused_rms_norm(z, [case.n], t.w.to(wide), eps)[0])

    return launch if same_weight(case) and case["sum"] == "rounded" else upcast


# Inductor fails on the form in place for a CPU, and does not round there as it is told.
@impl("torch-compile", about="torch.compile of the formula, told to round as it says", strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, residual, w, eps, wide = t.x, t.residual, t.w, case.number("eps"), acc(case)
    y_to, z_to = _targets(case, t)
    rounds = case["sum"] == "rounded"

    def launch() -> None:
        z = x + residual if rounds else x.to(wide) + residual
        v = z.to(wide)
        r = torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)
        y_to.copy_(v * r * w.to(wide))
        z_to.copy_(z)

    # Otherwise the sum would go on unrounded from one operation to the next.
    return compiled(case, launch, emulate_precision_casts=rounds)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def add_rmsnorm(
        x, residual, w, y, z, x_row, residual_row, y_row, z_row, n,
        ROUNDS: tl.constexpr, EPS: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        lanes = tl.arange(0, BLOCK)
        squares = tl.zeros([BLOCK], ACC)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC)
            v += tl.load(residual + row * residual_row + c, mask=c < n, other=0).to(ACC)
            if ROUNDS:
                v = v.to(z.dtype.element_ty).to(ACC)
            squares += v * v
        r = 1 / tl.sqrt(tl.sum(squares, 0) / n + EPS)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC)
            v += tl.load(residual + row * residual_row + c, mask=c < n, other=0).to(ACC)
            stored = v.to(z.dtype.element_ty)
            tl.store(z + row * z_row + c, stored, mask=c < n)
            if ROUNDS:
                v = stored.to(ACC)
            scale = tl.load(w + c, mask=c < n, other=0).to(ACC)
            tl.store(y + row * y_row + c, (v * r * scale).to(y.dtype.element_ty), mask=c < n)

    return add_rmsnorm


@impl("triton", about="A program per row, which reads it again from the caches", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, eps, wide, block = _kernel(), case.number("eps"), triton_acc(case), triton_block(case.n)
    y, z = _targets(case, t)
    rounds = case["sum"] == "rounded"
    strides = t.x.stride(0), t.residual.stride(0), y.stride(0), z.stride(0)

    def launch() -> None:
        kernel[(case.m,)](t.x, t.residual, t.w, y, z, *strides, case.n, rounds, eps, wide, **block)

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel, its outputs over its inputs if in place")
def quack(case: Case, t: Any) -> Launch:
    from quack.rmsnorm import _rmsnorm_fwd

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    _takes(case, "exact")
    eps, (y, z) = case.number("eps"), _targets(case, t)

    def launch() -> None:
        _rmsnorm_fwd(t.x, t.w, y, None, None, None, t.residual, z, eps)

    return built(case, launch)


@impl(
    "liger",
    about="Liger's Triton kernel, all in f32 (its Gemma mode)",
    contract="x,residual,w -> y,z,rstd (new tensors, rstd is always saved)",
)
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward

    only(case, *UPTO32)
    _takes(case, "rounded")
    row_upto(case, 65536)
    eps = case.number("eps")

    def launch() -> Any:
        y, z, *_ = fused_add_rms_norm_forward(t.x, t.residual, t.w, eps, 0.0, "gemma")
        return _named(case, y, z)

    return built(case, launch)


@impl(
    "fla",
    about="Triton kernel of flash-linear-attention",
    contract="x,residual,w -> y,z,rstd (new tensors, rstd is always saved)",
)
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.norm.layernorm import layer_norm_fwd

    only(case, *UPTO32)
    _takes(case, "exact")
    row_upto(case, 65536 // t.x.element_size())
    eps = case.number("eps")

    def launch() -> Any:
        y, _, _, z = layer_norm_fwd(t.x, t.w, None, eps, t.residual, is_rms_norm=True)
        return _named(case, y, z)

    return tuned(case, launch)


@impl("flashinfer", about="FlashInfer's fused_add_rmsnorm")
def flashinfer(case: Case, t: Any) -> Launch:
    from flashinfer.norm import fused_add_rmsnorm

    only(case, *HALF)
    _takes(case, "exact")
    only_same_weight(case)
    if case["form"] != "inplace":
        raise Unsupported("in place only")
    eps = case.number("eps")

    def launch() -> None:
        fused_add_rmsnorm(t.x, t.residual, t.w, eps)

    return built(case, launch)


@impl(
    "xformers",
    about="xFormers' Triton kernel",
    contract="x,residual,w -> residual,y (y a new tensor), rstd from x + residual before it is rounded",
)
def xformers(case: Case, t: Any) -> Launch:
    from xformers.ops.rmsnorm import rms_norm_add

    only(case, *UPTO32)
    _takes(case, "rounded")
    if case["form"] != "inplace":
        raise Unsupported("overwrites the residual")
    if case.m * case.n >= 1 << 31:
        raise Unsupported("32-bit offsets")
    eps = case.number("eps")

    def launch() -> Any:
        return {"x": rms_norm_add(t.residual, t.x, t.w, eps)}

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    eps, wide = case.number("eps"), numpy_acc(case)
    y, z = _targets(case, t)

    def launch() -> None:
        w = t.w.astype(wide)
        for rows in row_blocks(case.m, case.n):
            if case["sum"] == "exact":
                v = np.add(t.x[rows], t.residual[rows], dtype=wide)
                z[rows] = v
            else:
                np.add(t.x[rows], t.residual[rows], out=z[rows])
                v = z[rows].astype(wide)
            v *= 1 / np.sqrt(np.mean(v * v, 1, keepdims=True) + wide(eps))
            v *= w
            y[rows] = v

    return launch
