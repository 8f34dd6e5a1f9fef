"""Backward of LayerNorm: dx and the complete dw and dbias, from the saved mean and rstd."""

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


def _named(t: Any, dx: Any, dw: Any, dbias: Any) -> dict[str, Any]:
    """New tensors under the names of the outputs that the case has."""
    return {"dx": dx, "dw": dw} if t.dbias is None else {"dx": dx, "dw": dw, "dbias": dbias}


@impl("torch", about="ATen's native_layer_norm_backward", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    backward, wide = torch.ops.aten.native_layer_norm_backward, acc(case)
    wanted = [True, True, t.dbias is not None]
    mean, rstd = t.mean.view(-1, 1), t.rstd.view(-1, 1)

    def launch() -> Any:
        # Of the bias it wants to know the dtype alone; the weight has the same.
        return _named(t, *backward(t.dout, t.x, [case.n], mean, rstd, t.w, t.w, wanted))

    def upcast() -> None:
        w = t.w.to(wide)
        dx, dw, dbias = backward(t.dout.to(wide), t.x.to(wide), [case.n], mean, rstd, w, w, wanted)
        t.dx.copy_(dx)
        t.dw.copy_(dw)
        if t.dbias is not None:
            t.dbias.copy_(dbias)

    # A CPU wants mean and rstd in the dtype of x.
    native = same_weight(case) and (case.device == "cuda" or case.torch_dtype == wide)
    return launch if native else upcast


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    x, w, dout, mean, rstd, wide = t.x, t.w, t.dout, t.mean, t.rstd, acc(case)
    dx, dw, dbias = t.dx, t.dw, t.dbias

    def launch() -> None:
        r = rstd[:, None]
        xh, d = (x.to(wide) - mean[:, None]) * r, dout.to(wide)
        g = d * w.to(wide)
        dx.copy_((g - g.mean(1, keepdim=True) - xh * (g * xh).mean(1, keepdim=True)) * r)
        dw.copy_((d * xh).sum(0))
        if dbias is not None:
            dbias.copy_(d.sum(0))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def layernorm_bwd(
        x, w, dout, means, rstd, dx, sums, sums_bias, x_row, dout_row, dx_row, m, n,
        ACC: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        me, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
        lanes = tl.arange(0, BLOCK)
        for row in range(me, m, programs):
            mean, r = tl.load(means + row), tl.load(rstd + row)
            dots, gs = tl.zeros([BLOCK], ACC), tl.zeros([BLOCK], ACC)
            for at in range(0, n, BLOCK):
                c = at + lanes
                xh = (tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC) - mean) * r
                d = tl.load(dout + row * dout_row + c, mask=c < n, other=0).to(ACC)
                g = d * tl.load(w + c, mask=c < n, other=0).to(ACC)
                gs += g
                dots += g * xh
            g_mean, dot_mean = tl.sum(gs, 0) / n, tl.sum(dots, 0) / n
            for at in range(0, n, BLOCK):
                c = at + lanes
                xh = (tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC) - mean) * r
                d = tl.load(dout + row * dout_row + c, mask=c < n, other=0).to(ACC)
                g = d * tl.load(w + c, mask=c < n, other=0).to(ACC)
                v = (g - g_mean - xh * dot_mean) * r
                tl.store(dx + row * dx_row + c, v.to(dx.dtype.element_ty), mask=c < n)
                # The program's own sums start with its first row.
                old = tl.load(sums + me * n + c, mask=(c < n) & (row != me), other=0)
                tl.store(sums + me * n + c, old + d * xh, mask=c < n)
                if sums_bias is not None:
                    old = tl.load(sums_bias + me * n + c, mask=(c < n) & (row != me), other=0)
                    tl.store(sums_bias + me * n + c, old + d, mask=c < n)
            # A thread may read what another one wrote.
            tl.debug_barrier()

    return layernorm_bwd


@impl("triton", about="Programs walk over rows, each with sums of its own; torch adds them up", strided=True)
def triton(case: Case, t: Any) -> Launch:
    import torch

    kernel, wide, block, programs = _kernel(), triton_acc(case), triton_block(case.n), triton_programs(case)
    sums = torch.empty(programs, case.n, dtype=acc(case), device=t.x.device)
    bias = None if t.dbias is None else torch.empty_like(sums)
    strides = t.x.stride(0), t.dout.stride(0), t.dx.stride(0)

    def launch() -> None:
        kernel[(programs,)](t.x, t.w, t.dout, t.mean, t.rstd, t.dx, sums, bias, *strides, case.m, case.n, wide, **block)
        t.dw.copy_(sums.sum(0))
        if bias is not None:
            t.dbias.copy_(bias.sum(0))

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel; torch adds up the partial sums, as Quack does it")
def quack(case: Case, t: Any) -> Launch:
    import torch
    from quack.rmsnorm import _rmsnorm_bwd, get_sm_count

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    sums = torch.empty(get_sm_count(case.n, t.x.device), case.n, dtype=torch.float32, device=t.x.device)
    bias = None if t.dbias is None else torch.empty_like(sums)

    def launch() -> None:
        _rmsnorm_bwd(t.x, t.w, t.dout, t.rstd, t.dx, sums, bias, mean=t.mean, is_layernorm=True)
        t.dw.copy_(sums.sum(0))
        if bias is not None:
            t.dbias.copy_(bias.sum(0))

    return built(case, launch)


@impl("liger", about="Liger's Triton kernel; torch adds up the partial sums")
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.layer_norm import layer_norm_backward

    only(case, *UPTO32)
    row_upto(case, 65536)

    def launch() -> Any:
        # Of the bias it wants to know the dtype alone; the weight has the same.
        grads = layer_norm_backward(t.dout, t.x, t.w, t.w, t.mean, t.rstd, True, t.dbias is not None)
        return _named(t, *grads)

    return built(case, launch)


@impl("fla", about="Triton kernel of flash-linear-attention; torch adds up the partial sums")
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.norm.layernorm import layer_norm_bwd

    only(case, *UPTO32)
    row_upto(case, 65536 // t.x.element_size())
    # The values of the bias do not matter to the gradients: the weight stands in for it.
    bias = None if t.dbias is None else t.w

    def launch() -> Any:
        dx, dw, dbias, _ = layer_norm_bwd(t.dout, t.x, t.w, bias, t.mean, t.rstd)
        return _named(t, dx, dw, dbias)

    return tuned(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide = numpy_acc(case)

    def launch() -> None:
        w, dw, dbias = t.w.astype(wide), np.zeros(case.n), np.zeros(case.n)
        for rows in row_blocks(case.m, case.n):
            r = t.rstd[rows, None]
            xh, g = (t.x[rows] - t.mean[rows, None]) * r, t.dout[rows].astype(wide)
            dw += (g * xh).sum(0, dtype=np.float64)
            if t.dbias is not None:
                dbias += g.sum(0, dtype=np.float64)
            g *= w
            mean, dot = np.mean(g, 1, keepdims=True), np.mean(g * xh, 1, keepdims=True)
            t.dx[rows] = (g - mean - xh * dot) * r
        t.dw[...] = dw
        if t.dbias is not None:
            t.dbias[...] = dbias

    return launch
