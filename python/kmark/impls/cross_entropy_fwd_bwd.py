"""Cross entropy and its backward in one: dx = dloss * (softmax(x) - onehot(target))."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, impl
from ._compile import built, compiled
from ._rows import HALF, UPTO32, acc, numpy_acc, only, row_blocks, row_in_vectors, triton_acc, triton_block


@impl(
    "torch",
    about="ATen's softmax, then the formula, an operation at a time",
    devices=("cpu", "cuda"),
    strided=True,
    contract="x,target,dloss -> softmax -> dx (softmax in memory)",
)
def torch(case: Case, t: Any) -> Launch:
    import torch

    wide, ignore = acc(case), case.count("ignore")
    minus_one = torch.full((case.m, 1), -1, dtype=wide, device=t.x.device)

    def launch() -> None:
        ignored = t.target == ignore
        p = torch.softmax(t.x, -1, dtype=wide)
        p.scatter_add_(1, t.target.masked_fill(ignored, 0)[:, None], minus_one)
        torch.mul(p, t.dloss.masked_fill(ignored, 0)[:, None], out=t.dx)

    return launch


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, target, dloss, dx = t.x, t.target, t.dloss, t.dx
    wide, ignore, classes = acc(case), case.count("ignore"), torch.arange(case.n, device=t.x.device)

    def launch() -> None:
        scale = torch.where(target == ignore, 0.0, dloss)[:, None]
        p = torch.softmax(x.to(wide), -1)
        dx.copy_(scale * torch.where(classes == target[:, None], p - 1, p))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def cross_entropy_fwd_bwd(
        x, targets, dloss, dx, x_row, dx_row, n, IGNORE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr
    ):
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
        target = tl.load(targets + row)
        scale = tl.load(dloss + row, mask=target != IGNORE, other=0)
        for at in range(0, n, BLOCK):
            c = at + lanes
            p = tl.exp(tl.load(x + row * x_row + c, mask=c < n, other=0).to(ACC) - top) * inverse
            p = tl.where(c == target, p - 1, p)
            tl.store(dx + row * dx_row + c, (p * scale).to(dx.dtype.element_ty), mask=c < n)

    return cross_entropy_fwd_bwd


@impl("triton", about="A program per row, which it reads twice, from the caches if short", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, block, ignore = _kernel(), triton_acc(case), triton_block(case.n), case.count("ignore")
    strides = t.x.stride(0), t.dx.stride(0)

    def launch() -> None:
        kernel[(case.m,)](t.x, t.target, t.dloss, t.dx, *strides, case.n, ignore, wide, **block)

    return built(case, launch)


@impl(
    "quack",
    about="Quack's forward, then its backward",
    contract="x,target -> loss,lse; x,target,dloss,lse -> dx (x is read twice)",
)
def quack(case: Case, t: Any) -> Launch:
    import torch
    from quack.cross_entropy import cross_entropy_bwd_out, cross_entropy_fwd_out

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    ignore, loss, lse = case.count("ignore"), torch.empty_like(t.dloss), torch.empty_like(t.dloss)

    def launch() -> None:
        cross_entropy_fwd_out(t.x, t.target, None, loss, lse, None, None, ignore)
        cross_entropy_bwd_out(t.x, t.target, t.dloss, lse, t.dx, None, ignore)

    return built(case, launch)


def _scaled_afterwards(case: Case) -> str:
    rounded = ", rounded twice" if case.dtype in HALF else ""
    return f"x,target -> loss,dx; dx,dloss -> dx (dloss is multiplied in memory{rounded})"


@impl("quack/fused", about="Quack's forward with dx, then a product with dloss", contract=_scaled_afterwards)
def quack_fused(case: Case, t: Any) -> Launch:
    import torch
    from quack.cross_entropy import cross_entropy_fwd_out

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    ignore, loss, scale = case.count("ignore"), torch.empty_like(t.dloss), t.dloss[:, None]

    def launch() -> None:
        cross_entropy_fwd_out(t.x, t.target, None, loss, None, t.dx, None, ignore)
        t.dx.mul_(scale)

    return built(case, launch)


@impl(
    "fla",
    about="Forward and backward of flash-linear-attention, one after the other",
    contract="x,target -> loss,z_loss,lse; x,target,dloss,lse -> dx (x is read twice)",
)
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.fused_cross_entropy.ops import cross_entropy_bwd, cross_entropy_fwd

    only(case, *UPTO32)
    ignore = case.count("ignore")

    def launch() -> Any:
        lse = cross_entropy_fwd(t.x, t.target, ignore_index=ignore)[2]
        return cross_entropy_bwd(t.x, t.target, lse, t.dloss, ignore_index=ignore)

    return built(case, launch)


def _copied(case: Case) -> str:
    rounded = ", rounded twice" if case.dtype in HALF else ""
    return f"x copied; copy,target -> loss,copy; copy,dloss -> dx (dloss is multiplied in memory{rounded})"


@impl("liger", about="Liger's kernel on a copy of x, then a product with dloss", contract=_copied)
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward

    only(case, *UPTO32)
    ignore, dtype = case.count("ignore"), t.x.dtype

    def launch() -> Any:
        # It gives a gradient only to what asks for one, and counts the targets on the host.
        x = t.x.clone().requires_grad_()
        *_, dx = cross_entropy_forward(x, t.target, None, ignore, 0.0, 0.0, "none", None, False)
        # The product with dloss is f32; autograd rounds it to the dtype of x.
        return cross_entropy_backward(dx.detach(), t.dloss).to(dtype)

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide, ignore = numpy_acc(case), case.count("ignore")

    def launch() -> None:
        for rows in row_blocks(case.m, case.n):
            p, target = t.x[rows].astype(wide), t.target[rows]
            counted = target != ignore
            p -= p.max(1, keepdims=True)
            np.exp(p, out=p)
            p /= p.sum(1, keepdims=True)
            p[np.arange(len(p)), np.where(counted, target, 0)] -= 1
            p *= np.where(counted, t.dloss[rows], 0)[:, None]
            t.dx[rows] = p

    return launch
