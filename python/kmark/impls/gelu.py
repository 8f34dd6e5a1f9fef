"""GELU, by erf or by tanh."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, Unsupported, impl
from ._compile import built, compiled
from ._rows import acc, numpy_acc, row_blocks, triton_acc, triton_block

ROOT = 0.7978845608028654  # sqrt(2 / pi)
CUBE = 0.044715


def _formula(case: Case) -> str:
    """torch's name of it."""
    return "none" if case["approx"] == "erf" else "tanh"


@impl("torch", about="ATen's gelu", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    formula = _formula(case)

    def launch() -> None:
        torch.ops.aten.gelu.out(t.x, approximate=formula, out=t.y)

    return launch


@impl("torch-compile", about="torch.compile of torch's gelu", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, y, wide, formula = t.x, t.y, acc(case), _formula(case)

    def launch() -> None:
        y.copy_(torch.nn.functional.gelu(x.to(wide), approximate=formula))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def gelu(
        x, y, x_row, y_row, n,
        TANH: tl.constexpr, ROOT: tl.constexpr, CUBE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC)
        if TANH:
            # 0.5 (1 + tanh z) is the sigmoid of 2 z.
            v = v / (1 + tl.exp(-2 * ROOT * (v + CUBE * v * v * v)))
        else:
            v = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
        tl.store(y + row * y_row + c, v.to(y.dtype.element_ty), mask=c < n)

    return gelu


@impl("triton", about="A program per piece of a row", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, block = _kernel(), triton_acc(case), triton_block(case.n, 2048)
    tanh = case["approx"] == "tanh"
    grid, strides = (case.m, -(-case.n // block["BLOCK"])), (t.x.stride(0), t.y.stride(0))

    def launch() -> None:
        kernel[grid](t.x, t.y, *strides, case.n, tanh, ROOT, CUBE, wide, **block)

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    if case["approx"] == "erf":
        raise Unsupported("NumPy has no erf")
    wide = numpy_acc(case)

    def launch() -> None:
        # An exponential that overflows divides to the zero that it should.
        with np.errstate(over="ignore"):
            for rows in row_blocks(case.m, case.n):
                x = t.x[rows].astype(wide)
                t.y[rows] = x / (1 + np.exp(-2 * ROOT * (x + CUBE * x * x * x)))

    return launch
