"""Softmax of each row."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, impl
from ._compile import built, compiled
from ._rows import (
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


@impl("torch", about="ATen's softmax", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    def launch() -> None:
        torch.ops.aten._softmax.out(t.x, -1, False, out=t.y)

    # The form with `out` takes it for dense.
    return launch if t.y.is_contiguous() else lambda: torch.softmax(t.x, -1)


@impl("torch-compile", about="torch.compile of torch.softmax", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, y, wide = t.x, t.y, acc(case)

    def launch() -> None:
        y.copy_(torch.softmax(x.to(wide), -1))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def softmax(x, y, x_row, y_row, n, ACC: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        lanes = tl.arange(0, BLOCK)
        # Each lane has a maximum and a sum of its own, which is scaled anew whenever the maximum grows.
        # It starts from a finite number, because the difference of two infinities is none.
        tops, sums = tl.full([BLOCK], -3e38, ACC), tl.zeros([BLOCK], ACC)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=float("-inf")).to(ACC)
            grown = tl.maximum(tops, v)
            sums = sums * tl.exp(tops - grown) + tl.exp(v - grown)
            tops = grown
        top = tl.max(tops, 0)
        inverse = 1 / tl.sum(sums * tl.exp(tops - top), 0)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC)
            tl.store(y + row * y_row + c, (tl.exp(v - top) * inverse).to(y.dtype.element_ty), mask=c < n)

    return softmax


@impl("triton", about="A program per row, which it reads twice, from the caches if short", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, block = _kernel(), triton_acc(case), triton_block(case.n)

    def launch() -> None:
        kernel[(case.m,)](t.x, t.y, t.x.stride(0), t.y.stride(0), case.n, wide, **block)

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel")
def quack(case: Case, t: Any) -> Launch:
    from quack.softmax import _softmax_fwd

    only(case, *UPTO32)
    row_in_vectors(case)

    def launch() -> None:
        _softmax_fwd(t.x, t.y)

    return built(case, launch)


@impl("liger", about="Liger's Triton kernel")
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.softmax import _softmax_forward

    only(case, "f32", "bf16")
    row_upto(case, 65536)

    def launch() -> Any:
        return _softmax_forward(t.x)[0]

    return built(case, launch)


@impl("oink", about="Oink's CuTe DSL kernel for Blackwell")
def oink(case: Case, t: Any) -> Launch:
    from kernelagent_oink.blackwell.softmax import softmax_forward

    only(case, *UPTO32)
    only_blackwell(t.x)

    def launch() -> Any:
        return softmax_forward(t.x)

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide = numpy_acc(case)

    def launch() -> None:
        for rows in row_blocks(case.m, case.n):
            x = t.x[rows].astype(wide)
            x -= x.max(1, keepdims=True)
            np.exp(x, out=x)
            x /= x.sum(1, keepdims=True)
            t.y[rows] = x

    return launch
