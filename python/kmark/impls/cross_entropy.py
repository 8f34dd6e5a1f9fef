"""Cross entropy against class indices: the loss and the log-sum-exp of each row."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, impl
from ._compile import built, compiled
from ._rows import UPTO32, acc, numpy_acc, only, row_blocks, row_in_vectors, triton_acc, triton_block


@impl("torch", about="torch.logsumexp, and a gather of logits", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    import torch

    wide, ignore = acc(case), case.count("ignore")

    def launch() -> None:
        torch.logsumexp(t.x.to(wide), 1, out=t.lse)
        ignored = t.target == ignore
        logits = t.x.gather(1, t.target.masked_fill(ignored, 0)[:, None])[:, 0]
        torch.sub(t.lse, logits, out=t.loss)
        t.loss.masked_fill_(ignored, 0)

    return launch


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    x, target, loss, lse, wide, ignore = t.x, t.target, t.loss, t.lse, acc(case), case.count("ignore")

    def launch() -> None:
        total = torch.logsumexp(x.to(wide), 1)
        ignored = target == ignore
        logits = x.gather(1, torch.where(ignored, 0, target)[:, None])[:, 0]
        lse.copy_(total)
        loss.copy_(torch.where(ignored, 0.0, total - logits.to(wide)))

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def cross_entropy(x, targets, loss, lse, x_row, n, IGNORE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr):
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
        total = top + tl.log(tl.sum(sums * tl.exp(tops - top), 0))
        target = tl.load(targets + row)
        logit = tl.load(x + row * x_row + target, mask=target != IGNORE, other=0).to(ACC)
        tl.store(lse + row, total)
        tl.store(loss + row, tl.where(target != IGNORE, total - logit, 0.0))

    return cross_entropy


@impl("triton", about="A program per row, which it reads once", strided=True)
def triton(case: Case, t: Any) -> Launch:
    kernel, wide, block, ignore = _kernel(), triton_acc(case), triton_block(case.n), case.count("ignore")

    def launch() -> None:
        kernel[(case.m,)](t.x, t.target, t.loss, t.lse, t.x.stride(0), case.n, ignore, wide, **block)

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel")
def quack(case: Case, t: Any) -> Launch:
    from quack.cross_entropy import cross_entropy_fwd_out

    only(case, *UPTO32)
    row_in_vectors(case, 4)  # what its copies take at least
    ignore = case.count("ignore")

    def launch() -> None:
        cross_entropy_fwd_out(t.x, t.target, None, t.loss, t.lse, None, None, ignore)

    return built(case, launch)


@impl(
    "fla",
    about="Triton kernel of flash-linear-attention",
    contract="x,target -> loss,z_loss,lse (z_loss is always written)",
)
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.fused_cross_entropy.ops import cross_entropy_fwd

    only(case, *UPTO32)
    ignore = case.count("ignore")

    def launch() -> Any:
        loss, _, lse, *_ = cross_entropy_fwd(t.x, t.target, ignore_index=ignore)
        return loss, lse

    return built(case, launch)


@impl("numpy", about="NumPy, a few rows at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    wide, ignore = numpy_acc(case), case.count("ignore")

    def launch() -> None:
        for rows in row_blocks(case.m, case.n):
            x, target = t.x[rows].astype(wide), t.target[rows]
            counted = target != ignore
            logits = x[np.arange(len(x)), np.where(counted, target, 0)]
            top = x.max(1)
            x -= top[:, None]
            np.exp(x, out=x)
            lse = top + np.log(x.sum(1))
            t.lse[rows] = lse
            t.loss[rows] = np.where(counted, lse - logits, 0)

    return launch
