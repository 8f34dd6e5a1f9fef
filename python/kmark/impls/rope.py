"""Rotary position embedding of q and k: pairs of dimensions turned by the angle of their position."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, Unsupported, impl
from ._compile import built, compiled
from ._rows import HALF, UPTO32, numpy_acc, only


def _rotated(case: Case) -> int:
    """How many dimensions of a head are turned."""
    return case.count("rotary") or case.d


def _pairs(case: Case, t: Any) -> list[tuple[Any, Any]]:
    """What is turned, and where it goes."""
    in_place = case["form"] == "inplace"
    pairs = [(t.q, t.q if in_place else t.q_out), (t.k, t.k if in_place else t.k_out)]
    return pairs if case.flag("k") else pairs[:1]


def _members(case: Case, x: Any) -> tuple[Any, Any]:
    """The first and the second members of the pairs."""
    r = _rotated(case)
    if case["style"] == "neox":
        return x[..., : r // 2], x[..., r // 2 : r]
    return x[..., :r:2], x[..., 1:r:2]


@impl("torch", about="The formula, an operation at a time", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    cos, sin, r = t.cos[:, None], t.sin[:, None], _rotated(case)
    work = [(x, to, *_members(case, x), *_members(case, to)) for x, to in _pairs(case, t)]

    def launch() -> None:
        for x, to, x1, x2, to1, to2 in work:
            y1, y2 = x1 * cos - x2 * sin, x2 * cos + x1 * sin
            to1.copy_(y1)
            to2.copy_(y2)
            if x is not to and r < case.d:
                to[..., r:].copy_(x[..., r:])

    return launch


@impl("torch-compile", about="torch.compile of the formula", devices=("cpu", "cuda"), strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    cos, sin, r, neox = t.cos[:, None], t.sin[:, None], _rotated(case), case["style"] == "neox"
    pairs = _pairs(case, t)

    def launch() -> None:
        for x, to in pairs:
            x1, x2 = _members(case, x)
            y1, y2 = x1 * cos - x2 * sin, x2 * cos + x1 * sin
            y = torch.cat([y1, y2], -1) if neox else torch.stack([y1, y2], -1).flatten(-2)
            to[..., :r].copy_(y)
            if x is not to and r < to.shape[-1]:
                to[..., r:].copy_(x[..., r:])

    return compiled(case, launch)


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def rope(
        x, y, cos, sin, x_b, x_s, x_h, y_b, y_s, y_h, s, heads, d, half,
        NEOX: tl.constexpr, COPY: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, D: tl.constexpr,
    ):  # fmt: skip
        b, at = (tl.program_id(0) // s).to(tl.int64), tl.program_id(0) % s
        i = tl.arange(0, HALF)[None, :]
        c = tl.load(cos + at * half + i, mask=i < half, other=0)
        n = tl.load(sin + at * half + i, mask=i < half, other=0)
        x += b * x_b + at * x_s
        y += b * y_b + at * y_s
        if NEOX:
            first, second = i, i + half
        else:
            first, second = 2 * i, 2 * i + 1
        for h0 in range(0, heads, HEADS):
            h = h0 + tl.arange(0, HEADS)[:, None]
            inside = (h < heads) & (i < half)
            x1 = tl.load(x + h * x_h + first, mask=inside, other=0).to(cos.dtype.element_ty)
            x2 = tl.load(x + h * x_h + second, mask=inside, other=0).to(cos.dtype.element_ty)
            tl.store(y + h * y_h + first, (x1 * c - x2 * n).to(y.dtype.element_ty), mask=inside)
            tl.store(y + h * y_h + second, (x2 * c + x1 * n).to(y.dtype.element_ty), mask=inside)
            if COPY:
                j = tl.arange(0, D)[None, :]
                rest = (h < heads) & (j >= 2 * half) & (j < d)
                tl.store(y + h * y_h + j, tl.load(x + h * x_h + j, mask=rest, other=0), mask=rest)

    return rope


@impl("triton", about="A program per position, which turns a few heads at a time", strided=True)
def triton(case: Case, t: Any) -> Launch:
    import triton

    kernel, r, pairs = _kernel(), _rotated(case), _pairs(case, t)
    half, d = triton.next_power_of_2(r // 2), triton.next_power_of_2(case.d)
    style = {"NEOX": case["style"] == "neox", "COPY": case["form"] == "out" and r < case.d}
    blocks = {"HEADS": max(1, 1024 // half), "HALF": half, "D": d, **style}

    def launch() -> None:
        for x, y in pairs:
            strides, sizes = (*x.stride()[:3], *y.stride()[:3]), (case.s, x.shape[2], case.d, r // 2)
            kernel[(case.b * case.s,)](x, y, t.cos, t.sin, *strides, *sizes, **blocks)

    return built(case, launch)


@impl("quack", about="Quack's CuTe DSL kernel, once for q and once for k")
def quack(case: Case, t: Any) -> Launch:
    from quack.rotary import _rotary_fwd_inplace, _rotary_fwd_out

    only(case, *UPTO32)
    r, interleaved, pairs = _rotated(case), case["style"] == "interleaved", _pairs(case, t)
    if case.d > 512 or case.d % 8 or r % 8:
        raise Unsupported("dimensions in multiples of 8 up to 512 only")

    def inplace() -> None:
        for x, _ in pairs:
            _rotary_fwd_inplace(x, t.cos, t.sin, None, None, case.s, interleaved, False)

    def out() -> None:
        for x, to in pairs:
            # As Quack itself does it: the kernel leaves out what is not turned.
            if r < case.d:
                to[..., r:].copy_(x[..., r:])
            _rotary_fwd_out(x, t.cos, t.sin, None, None, to, case.s, interleaved, False)

    return built(case, inplace if case["form"] == "inplace" else out)


@impl("liger", about="Liger's Triton kernel")
def liger(case: Case, t: Any) -> Launch:
    from liger_kernel.ops.rope import rope_forward

    if case["style"] != "neox":
        raise Unsupported("neox only")
    if case["form"] != "inplace":
        raise Unsupported("in place only")
    if not case.flag("k"):
        raise Unsupported("q and k together only")
    # It wants heads before positions, and turns that back to find rows that lie as ours do.
    r, q, k = _rotated(case), t.q.transpose(1, 2), t.k.transpose(1, 2)

    def launch() -> None:
        rope_forward(q, k, t.cos, t.sin, rotary_dim=r)

    return built(case, launch)


@impl(
    "fla",
    about="Triton kernel of flash-linear-attention, once for q and once for k",
    contract=lambda case: None if case["form"] == "inplace" else "q,k,cos,sin -> q_out,k_out (zeroed first)",
)
def fla(case: Case, t: Any) -> Launch:
    from fla.modules.rotary.ops import rotary_embedding_fwdbwd

    # x and the tables must have the same dtype.
    only(case, "f32")
    if case.d > 256:
        raise Unsupported("up to 256 dimensions only")
    in_place, pairs = case["form"] == "inplace", _pairs(case, t)
    interleaved = case["style"] == "interleaved"

    def launch() -> Any:
        settings = {"interleaved": interleaved, "inplace": in_place}
        turned = [rotary_embedding_fwdbwd(x, t.cos, t.sin, **settings) for x, _ in pairs]
        return None if in_place else tuple(turned)

    return built(case, launch)


@impl(
    "flashinfer",
    about="FlashInfer's RoPE with a table of cosines and sines",
    contract="q,k,positions,[cos sin] -> q,k (one table, put together beforehand)",
)
def flashinfer(case: Case, t: Any) -> Launch:
    import torch
    from flashinfer.rope import _apply_rope_pos_ids_cos_sin_cache

    only(case, *HALF)
    r, vector = _rotated(case), max(8, case.d // 32)
    if case.d not in (64, 128, 256, 512):
        raise Unsupported("64, 128, 256 or 512 dimensions only")
    if r % (2 * vector):
        raise Unsupported(f"rotates multiples of {2 * vector} dimensions only")
    if not case.flag("k"):
        raise Unsupported("q and k together only")
    (q, q_to), (k, k_to) = [(x.flatten(0, 1), to.flatten(0, 1)) for x, to in _pairs(case, t)]
    table = case.arranged(lambda: torch.cat([t.cos, t.sin], 1))
    positions = torch.arange(case.s, dtype=torch.int32, device=t.q.device).repeat(case.b)
    interleaved = case["style"] == "interleaved"

    def launch() -> None:
        _apply_rope_pos_ids_cos_sin_cache(q, k, q_to, k_to, table, positions, interleaved)

    return built(case, launch)


@impl("numpy", about="NumPy, a few positions at a time", devices=("cpu",), arrays="numpy", strided=True)
def numpy(case: Case, t: Any) -> Launch:
    wide, r, pairs = numpy_acc(case), _rotated(case), _pairs(case, t)

    def turn(x: Any, to: Any, cos: Any, sin: Any) -> None:
        x1, x2 = (half.astype(wide) for half in _members(case, x))
        to1, to2 = _members(case, to)
        to1[...] = x1 * cos - x2 * sin
        to2[...] = x2 * cos + x1 * sin
        if case["form"] == "out":
            to[..., r:] = x[..., r:]

    def launch() -> None:
        for x, to in pairs:
            step = max(1, (1 << 16) // (x.shape[2] * case.d))
            for b in range(case.b):
                for at in range(0, case.s, step):
                    rows = slice(at, at + step)
                    turn(x[b, rows], to[b, rows], t.cos[rows, None], t.sin[rows, None])

    return launch
