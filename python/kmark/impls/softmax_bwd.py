"""Backward of softmax: dx = y * (dy - sum(dy * y)) from the saved y."""

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


def _rounded_products(case: Case) -> str | None:
    return "dy * y rounded before they are summed" if case.dtype in HALF else None


def _torch_contract(case: Case) -> str | None:
    if case.device == "cpu":
        return None
    extra = "y,dy -> dy * y -> dx (dy * y in memory)"
    return f"{extra}, {_rounded_products(case)}" if case.dtype in HALF else extra


@impl("torch", about="ATen's backward", devices=("cpu", "cuda"), strided=True, contract=_torch_contract)
def torch(case: Case, t: Any) -> Launch:
    import torch

    backward, dtype = torch.ops.aten._softmax_backward_data, case.torch_dtype

    def launch() -> None:
        backward.out(t.dy, t.y, -1, dtype, grad_input=t.dx)

    # The form with `out` takes it for dense.
    return launch if t.dx.is_contiguous() else lambda: backward(t.dy, t.y, -1, dtype)


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    y, dy, dx, wide = t.y, t.dy, t.dx, acc(case)

    def launch() -> None:
        p, g = y.to(wide), dy.to(wide)
        dx.copy_(p * (g - (p * g).sum(-1, keepdim=True)))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def softmax_bwd(y, dy, dx, y_row, dy_row, dx_row, n, ACC: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        lanes = tl.arange(0, BLOCK)
        dots = tl.zeros([BLOCK], ACC)
        for at in range(0, n, BLOCK):
            c = at + lanes
            p = tl.load(y + row * y_row + c, mask=c < n, other=0).to(ACC)
            dots += p * tl.load(dy + row * dy_row + c, mask=c < n, other=0).to(ACC)
        dot = tl.sum(dots, 0)
        for at in range(0, n, BLOCK):
            c = at + lanes
            p = tl.load(y + row * y_row + c, mask=c < n, other=0).to(ACC)
            g = tl.load(dy + row * dy_row + c, mask=c < n, other=0).to(ACC)
            tl.store(dx + row * dx_row + c, (p * (g - dot)).to(dx.dtype.element_ty), mask=c < n)

    return softmax_bwd


@impl("triton", about="A program per row, which it reads twice, from the caches if short", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, block = _kernel(), triton_acc(case), triton_block(case.n)
    strides = t.y.stride(0), t.dy.stride(0), t.dx.stride(0)

    def launch() -> None:
        kernel[(case.m,)](t.y, t.dy, t.dx, *strides, case.n, wide, **block)

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel")
def quack(case: Case, t: Any) -> Launch:
    from quack.softmax import _softmax_backward

    only(case, *UPTO32)
    row_in_vectors(case)

    def launch() -> None:
        _softmax_backward(t.dy, t.y, t.dx)

    return built(case, launch)


@impl("liger", about="Liger's Triton kernel", contract=_rounded_products)
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.softmax import _softmax_backward
    from liger_kernel.ops.utils import calculate_settings

    only(case, *UPTO32)
    row_upto(case, 65536)
    block, warps = calculate_settings(case.n)

    def launch() -> Any:
        return _softmax_backward(t.dy, t.y, block, warps, False)

    return built(case, launch)


@impl("oink", about="Oink's CuTe DSL kernel for Blackwell")
def oink(case: Case, t: Any) -> Launch:
    from kernelagent_oink.blackwell.softmax import softmax_backward

    only(case, *UPTO32)
    only_blackwell(t.y)

    def launch() -> Any:
        return softmax_backward(t.dy, t.y)

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    wide = numpy_acc(case)

    def launch() -> None:
        for rows in row_blocks(case.m, case.n):
            y, g = t.y[rows].astype(wide), t.dy[rows].astype(wide)
            g -= (y * g).sum(1, keepdims=True)
            g *= y
            t.dx[rows] = g

    return launch
