"""Softmax and its backward in one: dx = y * (dy - sum(dy * y)) with y = softmax(x), not rounded."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, impl
from ._compile import built, compiled
from ._rows import (
    HALF,
    UPTO32,
    acc,
    numpy_acc,
    only,
    only_blackwell,
    row_blocks,
    row_in_vectors,
    row_upto,
    triton_acc,
    triton_block,
)


def _through_memory(case: Case) -> str:
    rounded = " and rounded" if case.dtype in HALF else ""
    return f"x,dy -> y -> dx (y in memory{rounded})"


@impl(
    "torch",
    about="ATen's softmax, then its backward, in f32 in between",
    devices=("cpu", "cuda"),
    strided=True,
    contract="x,dy -> y -> dx (y in memory)",
)
def torch(case: Case, t: Any) -> Launch:
    import torch

    aten, wide = torch.ops.aten, acc(case)

    def launch() -> Any:
        return aten._softmax_backward_data(t.dy, aten._softmax(t.x, -1, False), -1, wide)

    def upcast() -> None:
        y = torch.softmax(t.x, -1, dtype=wide)
        t.dx.copy_(aten._softmax_backward_data(t.dy.to(wide), y, -1, wide))

    return upcast if case.dtype in HALF else launch


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, dy, dx, wide = t.x, t.dy, t.dx, acc(case)

    def launch() -> None:
        p, g = torch.softmax(x.to(wide), -1), dy.to(wide)
        dx.copy_(p * (g - (p * g).sum(-1, keepdim=True)))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def softmax_fwd_bwd(x, dy, dx, x_row, dy_row, dx_row, n, ACC: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        lanes = tl.arange(0, BLOCK)
        # Each lane has a maximum of its own, and sums that are scaled anew whenever it grows.
        # It starts from a finite number, because the difference of two infinities is none.
        tops, sums, dots = tl.full([BLOCK], -3e38, ACC), tl.zeros([BLOCK], ACC), tl.zeros([BLOCK], ACC)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=float("-inf")).to(ACC)
            g = tl.load(dy + row * dy_row + c, mask=c < n, other=0).to(ACC)
            grown = tl.maximum(tops, v)
            e, shrink = tl.exp(v - grown), tl.exp(tops - grown)
            sums, dots = sums * shrink + e, dots * shrink + e * g
            tops = grown
        top = tl.max(tops, 0)
        shrink = tl.exp(tops - top)
        inverse = 1 / tl.sum(sums * shrink, 0)
        dot = tl.sum(dots * shrink, 0) * inverse
        for at in range(0, n, BLOCK):
            c = at + lanes
            p = tl.exp(tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC) - top) * inverse
            g = tl.load(dy + row * dy_row + c, mask=c < n, other=0).to(ACC)
            tl.store(dx + row * dx_row + c, (p * (g - dot)).to(dx.dtype.element_ty), mask=c < n)

    return softmax_fwd_bwd


@impl("triton", about="A program per row, which it reads twice, from the caches if short", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, block = _kernel(), triton_acc(case), triton_block(case.n)
    strides = t.x.stride(0), t.dy.stride(0), t.dx.stride(0)

    def launch() -> None:
        kernel[(case.m,)](t.x, t.dy, t.dx, *strides, case.n, wide, **block)

    return built(case, launch)


@impl("quack", about="Quack's two CuTe DSL kernels, one after the other", contract=_through_memory)
def quack(case: Case, t: Any) -> Launch:
    import torch
    from quack.softmax import _softmax_backward, _softmax_fwd

    only(case, *UPTO32)
    row_in_vectors(case)
    y = torch.empty_like(t.x)

    def launch() -> None:
        _softmax_fwd(t.x, y)
        _softmax_backward(t.dy, y, t.dx)

    return built(case, launch)


@impl("liger", about="Liger's two Triton kernels, one after the other", contract=_through_memory)
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.softmax import _softmax_backward, _softmax_forward

    only(case, "f32", "bf16")
    row_upto(case, 65536)

    def launch() -> Any:
        return _softmax_backward(t.dy, *_softmax_forward(t.x))

    return built(case, launch)


@impl("oink", about="Oink's CuTe DSL kernel for Blackwell")
def oink(case: Case, t: Any) -> Launch:
    from kernelagent_oink.blackwell.softmax import softmax_fwd_bwd

    only(case, *UPTO32)
    only_blackwell(t.x)

    def launch() -> Any:
        return softmax_fwd_bwd(t.dy, t.x)

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide = numpy_acc(case)

    def launch() -> None:
        for rows in row_blocks(case.m, case.n):
            y, g = t.x[rows].astype(wide), t.dy[rows].astype(wide)
            y -= y.max(1, keepdims=True)
            np.exp(y, out=y)
            y /= y.sum(1, keepdims=True)
            g -= (y * g).sum(1, keepdims=True)
            g *= y
            t.dx[rows] = g

    return launch
