"""SwiGLU: y = gate * sigmoid(gate) * up, of two tensors or of the halves of one."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, Unsupported, impl
from ._compile import built, compiled, tuned
from ._rows import HALF, UPTO32, acc, numpy_acc, only, row_blocks, row_upto, triton_acc, triton_block


def halves(case: Case, whole: Any, gate: Any, up: Any) -> tuple[Any, Any]:
    """Gate and up, which are the halves of `whole` if packed."""
    return (whole[:, : case.n], whole[:, case.n :]) if case["form"] == "packed" else (gate, up)


@impl("torch", about="silu and a product, in f32 in between", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    wide, (gate, up) = acc(case), halves(case, t.x, t.gate, t.up)

    def launch() -> None:
        torch.mul(torch.nn.functional.silu(gate.to(wide)), up, out=t.y)

    return launch


@impl("torch-compile", about="torch.compile of silu and a product", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    y, wide, (gate, up) = t.y, acc(case), halves(case, t.x, t.gate, t.up)

    def launch() -> None:
        y.copy_(torch.nn.functional.silu(gate.to(wide)) * up.to(wide))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def swiglu(gate, up, y, gate_row, up_row, y_row, n, ACC: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(gate + row * gate_row + c, mask=c < n, other=0).to(ACC)
        u = tl.load(up + row * up_row + c, mask=c < n, other=0).to(ACC)
        tl.store(y + row * y_row + c, (g / (1 + tl.exp(-g)) * u).to(y.dtype.element_ty), mask=c < n)

    return swiglu


@impl("triton", about="A program per piece of a row", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, block = _kernel(), triton_acc(case), triton_block(case.n, 2048)
    gate, up = halves(case, t.x, t.gate, t.up)
    grid, strides = (case.m, -(-case.n // block["BLOCK"])), (gate.stride(0), up.stride(0), t.y.stride(0))

    def launch() -> None:
        kernel[grid](gate, up, t.y, *strides, case.n, wide, **block)

    return built(case, launch)


@impl(
    "liger",
    about="Liger's Triton kernel",
    contract=lambda case: "silu(gate) rounded before the product" if case.dtype in HALF else None,
)
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.swiglu import swiglu_forward

    only(case, *UPTO32)
    row_upto(case, 65536)
    if case["form"] == "packed":
        raise Unsupported("separate tensors only")

    def launch() -> Any:
        return swiglu_forward(t.gate, t.up)[2]

    return built(case, launch)


@impl("fla", about="Triton kernel of flash-linear-attention")
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.activations.ops import swiglu_fwd

    only(case, *UPTO32)
    gate, up = halves(case, t.x, t.gate, t.up)

    def launch() -> Any:
        return swiglu_fwd(gate, up)

    return tuned(case, launch)


@impl("flashinfer", about="FlashInfer's silu_and_mul")
def flashinfer(case: Case, t: Any) -> Launch:
    from flashinfer.activation import silu_and_mul

    only(case, *HALF)
    if case["form"] != "packed":
        raise Unsupported("packed tensors only")

    def launch() -> None:
        silu_and_mul(t.x, out=t.y)

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide, (gate, up) = numpy_acc(case), halves(case, t.x, t.gate, t.up)

    def launch() -> None:
        # An exponential that overflows divides to the zero that it should.
        with np.errstate(over="ignore"):
            for rows in row_blocks(case.m, case.n):
                g = gate[rows].astype(wide)
                g /= 1 + np.exp(-g)
                g *= up[rows]
                t.y[rows] = g

    return launch
