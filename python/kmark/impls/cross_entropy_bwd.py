"""Backward of cross entropy: dx = dloss * (exp(x - lse) - onehot(target)), from the saved lse."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, impl
from ._compile import built, compiled
from ._rows import UPTO32, acc, numpy_acc, only, row_blocks, row_in_vectors, triton_acc, triton_block


@impl("torch", about="The formula, an operation at a time", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    wide, ignore = acc(case), case.count("ignore")
    minus_one = torch.full((case.m, 1), -1, dtype=wide, device=t.x.device)

    def launch() -> None:
        ignored = t.target == ignore
        p = torch.sub(t.x, t.lse[:, None]).exp_()
        p.scatter_add_(1, t.target.masked_fill(ignored, 0)[:, None], minus_one)
        torch.mul(p, t.dloss.masked_fill(ignored, 0)[:, None], out=t.dx)

    return launch


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, target, dloss, lse, dx = t.x, t.target, t.dloss, t.lse, t.dx
    wide, ignore, classes = acc(case), case.count("ignore"), torch.arange(case.n, device=t.x.device)

    def launch() -> None:
        scale = torch.where(target == ignore, 0.0, dloss)[:, None]
        p = torch.exp(x.to(wide) - lse[:, None])
        dx.copy_(scale * torch.where(classes == target[:, None], p - 1, p))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def cross_entropy_bwd(
        x, targets, dloss, lse, dx, x_row, dx_row, n,
        IGNORE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        target = tl.load(targets + row)
        scale = tl.load(dloss + row, mask=target != IGNORE, other=0)
        p = tl.exp(tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC) - tl.load(lse + row))
        p = tl.where(c == target, p - 1, p)
        tl.store(dx + row * dx_row + c, (p * scale).to(dx.dtype.element_ty), mask=c < n)

    return cross_entropy_bwd


@impl("triton", about="A program per piece of a row", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, ignore = _kernel(), triton_acc(case), case.count("ignore")
    block = triton_block(case.n, 4096)
    grid = case.m, -(-case.n // block["BLOCK"])
    strides = t.x.stride(0), t.dx.stride(0)

    def launch() -> None:
        kernel[grid](t.x, t.target, t.dloss, t.lse, t.dx, *strides, case.n, ignore, wide, **block)

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel")
def quack(case: Case, t: Any) -> Launch:
    from quack.cross_entropy import cross_entropy_bwd_out

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    ignore = case.count("ignore")

    def launch() -> None:
        cross_entropy_bwd_out(t.x, t.target, t.dloss, t.lse, t.dx, None, ignore)

    return built(case, launch)


@impl("fla", about="Triton kernel of flash-linear-attention")
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.fused_cross_entropy.ops import cross_entropy_bwd

    only(case, *UPTO32)
    ignore = case.count("ignore")

    def launch() -> Any:
        return cross_entropy_bwd(t.x, t.target, t.lse, t.dloss, ignore_index=ignore)

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide, ignore = numpy_acc(case), case.count("ignore")

    def launch() -> None:
        for rows in row_blocks(case.m, case.n):
            p, target = t.x[rows].astype(wide), t.target[rows]
            counted = target != ignore
            p -= t.lse[rows, None]
            np.exp(p, out=p)
            p[np.arange(len(p)), np.where(counted, target, 0)] -= 1
            p *= np.where(counted, t.dloss[rows], 0)[:, None]
            t.dx[rows] = p

    return launch
