"""Backward of SwiGLU: the gradients of gate and up."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, Unsupported, impl
from ._compile import built, compiled, tuned
from ._rows import UPTO32, acc, numpy_acc, only, row_blocks, row_upto, triton_acc, triton_block
from .swiglu import halves


def _tensors(case: Case, t: Any) -> tuple[Any, Any, Any, Any]:
    """Gate, up and where their gradients go."""
    return *halves(case, t.x, t.gate, t.up), *halves(case, t.dx, t.dgate, t.dup)


@impl("torch", about="ATen's silu and its backward, in f32 in between", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    wide, (gate, up, dgate, dup) = acc(case), _tensors(case, t)

    def launch() -> None:
        g, d = gate.to(wide), t.dy.to(wide)
        torch.mul(d, torch.nn.functional.silu(g), out=dup)
        dgate.copy_(torch.ops.aten.silu_backward(d * up, g))

    return launch


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    dy, wide, (gate, up, dgate, dup) = t.dy, acc(case), _tensors(case, t)

    def launch() -> None:
        g, d = gate.to(wide), dy.to(wide)
        s = torch.sigmoid(g)
        dup.copy_(d * g * s)
        dgate.copy_(d * up.to(wide) * s * (1 + g * (1 - s)))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def swiglu_bwd(
        gate, up, dy, dgate, dup, gate_row, up_row, dy_row, dgate_row, dup_row, n,
        ACC: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(gate + row * gate_row + c, mask=c < n, other=0).to(ACC)
        u = tl.load(up + row * up_row + c, mask=c < n, other=0).to(ACC)
        d = tl.load(dy + row * dy_row + c, mask=c < n, other=0).to(ACC)
        s = 1 / (1 + tl.exp(-g))
        dg, du = d * u * s * (1 + g * (1 - s)), d * g * s
        tl.store(dgate + row * dgate_row + c, dg.to(dgate.dtype.element_ty), mask=c < n)
        tl.store(dup + row * dup_row + c, du.to(dup.dtype.element_ty), mask=c < n)

    return swiglu_bwd


@impl("triton", about="A program per piece of a row", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, block = _kernel(), triton_acc(case), triton_block(case.n, 2048)
    gate, up, dgate, dup = _tensors(case, t)
    tensors = gate, up, t.dy, dgate, dup
    grid, strides = (case.m, -(-case.n // block["BLOCK"])), [each.stride(0) for each in tensors]

    def launch() -> None:
        kernel[grid](*tensors, *strides, case.n, wide, **block)

    return built(case, launch)


@impl(
    "liger",
    about="Liger's Triton kernel on copies of gate and up, which it overwrites",
    contract="gate,up copied; copies,dy -> dgate,dup (in the copies)",
)
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.swiglu import swiglu_backward

    only(case, *UPTO32)
    row_upto(case, 65536)
    if case["form"] == "packed":
        raise Unsupported("separate tensors only")

    def launch() -> Any:
        return swiglu_backward(t.gate.clone(), t.up.clone(), t.dy)

    return built(case, launch)


@impl("fla", about="Triton kernel of flash-linear-attention")
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.activations.ops import swiglu_fwdbwd

    only(case, *UPTO32)
    if case["form"] == "packed":
        raise Unsupported("gives two tensors")

    def launch() -> Any:
        return swiglu_fwdbwd(t.gate, t.up, t.dy)

    return tuned(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide, (gate, up, dgate, dup) = numpy_acc(case), _tensors(case, t)

    def launch() -> None:
        # An exponential that overflows divides to the zero that it should.
        with np.errstate(over="ignore"):
            for rows in row_blocks(case.m, case.n):
                g, d = gate[rows].astype(wide), t.dy[rows].astype(wide)
                s = 1 / (1 + np.exp(-g))
                d *= s
                dup[rows] = d * g
                dgate[rows] = d * up[rows] * (1 + g * (1 - s))

    return launch
