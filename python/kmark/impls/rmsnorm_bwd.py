"""Backward of RMSNorm: dx and the complete dw, from the saved rstd."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, impl
from ._compile import built, compiled, tuned
from ._rows import (
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
    triton_programs,
)


@impl(
    "torch",
    about="ATen's fused backward; on a CPU and for other weights the formula",
    devices=("cpu", "cuda"),
    strided=True,
)
def torch(case: Case, t: Any) -> Launch:
    import torch

    wide, rstd = acc(case), t.rstd.view(-1, 1)

    def launch() -> Any:
        return torch.ops.aten._fused_rms_norm_backward(t.dout, t.x, [case.n], rstd, t.w, [True, True])

    def formula() -> None:
        xh, g = t.x * rstd, t.dout.to(wide)
        t.dw.copy_((g * xh).sum(0))
        g = g * t.w
        t.dx.copy_((g - xh * (g * xh).mean(1, keepdim=True)) * rstd)

    return launch if case.device == "cuda" and same_weight(case) else formula


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    x, w, dout, rstd, dx, dw, wide = t.x, t.w, t.dout, t.rstd, t.dx, t.dw, acc(case)

    def launch() -> None:
        r = rstd[:, None]
        xh, d = x.to(wide) * r, dout.to(wide)
        g = d * w.to(wide)
        dx.copy_((g - xh * (g * xh).mean(1, keepdim=True)) * r)
        dw.copy_((d * xh).sum(0))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def rmsnorm_bwd(x, w, dout, rstd, dx, sums, x_row, dout_row, dx_row, m, n, ACC: tl.constexpr, BLOCK: tl.constexpr):
        me, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
        lanes = tl.arange(0, BLOCK)
        for row in range(me, m, programs):
            r = tl.load(rstd + row)
            dots = tl.zeros([BLOCK], ACC)
            for at in range(0, n, BLOCK):
                c = at + lanes
                xh = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC) * r
                d = tl.load(dout + row * dout_row + c, mask=c < n, other=0).to(ACC)
                dots += xh * d * tl.load(w + c, mask=c < n, other=0).to(ACC)
            mean = tl.sum(dots, 0) / n
            for at in range(0, n, BLOCK):
                c = at + lanes
                xh = tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC) * r
                d = tl.load(dout + row * dout_row + c, mask=c < n, other=0).to(ACC)
                g = d * tl.load(w + c, mask=c < n, other=0).to(ACC)
                tl.store(dx + row * dx_row + c, ((g - xh * mean) * r).to(dx.dtype.element_ty), mask=c < n)
                # The program's own sums of dw start with its first row.
                old = tl.load(sums + me * n + c, mask=(c < n) & (row != me), other=0)
                tl.store(sums + me * n + c, old + d * xh, mask=c < n)
            # A thread may read what another one wrote.
            tl.debug_barrier()

    return rmsnorm_bwd


@impl("triton", about="Programs walk over rows, each with sums of its own; torch adds them up", strided=True)
def triton(case: Case, t: Any) -> Launch:
    import torch

    kernel, wide, block, programs = _kernel(), triton_acc(case), triton_block(case.n), triton_programs(case)
    sums = torch.empty(programs, case.n, dtype=acc(case), device=t.x.device)
    strides = t.x.stride(0), t.dout.stride(0), t.dx.stride(0)

    def launch() -> None:
        kernel[(programs,)](t.x, t.w, t.dout, t.rstd, t.dx, sums, *strides, case.m, case.n, wide, **block)
        t.dw.copy_(sums.sum(0))

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel; torch adds up the partial dw, as Quack does it")
def quack(case: Case, t: Any) -> Launch:
    import torch
    from quack.rmsnorm import _rmsnorm_bwd, get_sm_count

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    sums = torch.empty(get_sm_count(case.n, t.x.device), case.n, dtype=torch.float32, device=t.x.device)

    def launch() -> None:
        _rmsnorm_bwd(t.x, t.w, t.dout, t.rstd, t.dx, sums)
        t.dw.copy_(sums.sum(0))

    return built(case, launch)


@impl(
    "liger",
    about="Liger's Triton kernel, all in f32 (its Gemma mode), not in place; torch adds up the partial dw",
    contract="x,w,dout,rstd -> dx,dw (dx is zeroed first)",
)
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.rms_norm import _CASTING_MODE_GEMMA, rms_norm_backward
    from liger_kernel.ops.utils import calculate_settings

    only(case, *UPTO32)
    row_upto(case, 65536)
    block, warps = calculate_settings(case.n)
    mode = _CASTING_MODE_GEMMA.value

    def launch() -> Any:
        # In place it would write dx over dout, which is an input.
        return rms_norm_backward(t.dout, t.x, t.w, t.rstd, 0.0, mode, block, warps, False, None)

    return built(case, launch)


@impl("fla", about="Triton kernel of flash-linear-attention; torch adds up the partial dw")
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.norm.layernorm import layer_norm_bwd

    only(case, *UPTO32)
    row_upto(case, 65536 // t.x.element_size())

    def launch() -> Any:
        dx, dw, *_ = layer_norm_bwd(t.dout, t.x, t.w, None, None, t.rstd, is_rms_norm=True)
        return dx, dw

    return tuned(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide = numpy_acc(case)

    def launch() -> None:
        w, dw = t.w.astype(wide), np.zeros(case.n)
        for rows in row_blocks(case.m, case.n):
            r = t.rstd[rows, None]
            xh, g = t.x[rows] * r, t.dout[rows].astype(wide)
            dw += (g * xh).sum(0, dtype=np.float64)
            g *= w
            t.dx[rows] = (g - xh * np.mean(g * xh, 1, keepdims=True)) * r
        t.dw[...] = dw

    return launch
