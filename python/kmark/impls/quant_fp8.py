"""Quantisation to 8-bit floats with a scale per row, per 128 of a row, or per tile of 128 by 128."""

from __future__ import annotations

import functools
from typing import Any

from ..registry import Case, Launch, Unsupported, impl, torch_dtype
from ._compile import built, compiled
from ._rows import triton_block


def _largest(case: Case) -> float:
    """Largest finite value of the format."""
    return 448.0 if case["to"] == "f8e4m3" else 57344.0


def _formula(case: Case, x: Any) -> tuple[Any, Any]:
    """q in f32, before it is rounded, and the scales."""
    import torch

    m, n, largest = case.m, case.n, _largest(case)
    rows, columns = {"row": (1, n), "1x128": (1, 128), "128x128": (128, 128)}[case["granularity"]]
    down, across = -(-m // rows), -(-n // columns)
    ragged = (m % rows, n % columns) != (0, 0)
    padded = torch.nn.functional.pad(x, (0, across * columns - n, 0, down * rows - m)) if ragged else x
    tiles = padded.view(down, rows, across, columns)
    scale = tiles.abs().amax((1, 3), keepdim=True).float().clamp_min(case.number("clamp")) / largest
    if case.flag("pow2"):
        # Up to the next power of two: any fraction carries into the exponent, then the fraction goes.
        scale = ((scale.view(torch.int32) + 0x7FFFFF) & -0x800000).view(torch.float32)
    if ragged:
        q = x.float() / scale.expand(tiles.shape).reshape(padded.shape)[:m, :n]
    else:
        q = (tiles.float() / scale).view(m, n)
    shape = (m,) if case["granularity"] == "row" else (down, across)
    return q.clamp(-largest, largest), scale.view(shape)


@impl("torch", about="The formula, an operation at a time", devices=("cpu", "cuda"), strided=True)
def torch(case: Case, t: Any) -> Launch:
    def launch() -> None:
        q, scale = _formula(case, t.x)
        t.q.copy_(q)
        t.scale.copy_(scale)

    return launch


# On a CPU Inductor loses the ends of some rows.
@impl("torch-compile", about="torch.compile of the formula", strided=True)
def torch_compile(case: Case, t: Any) -> Launch:
    x, q_to, scale_to = t.x, t.q, t.scale

    def launch() -> None:
        q, scale = _formula(case, x)
        q_to.copy_(q)
        scale_to.copy_(scale)

    return compiled(case, launch)


@functools.cache
def _kernels() -> tuple[Any, Any]:
    import triton
    import triton.language as tl

    @triton.jit
    def by_row(
        x, q, scales, x_row, q_row, n,
        CLAMP: tl.constexpr, LARGEST: tl.constexpr, POW2: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        lanes = tl.arange(0, BLOCK)
        tops = tl.zeros([BLOCK], tl.float32)
        for at in range(0, n, BLOCK):
            v = tl.load(x + row * x_row + at + lanes, mask=at + lanes < n, other=0).to(tl.float32)
            tops = tl.maximum(tops, tl.abs(v))
        scale = tl.div_rn(tl.maximum(tl.max(tops, 0), CLAMP), LARGEST)
        if POW2:
            # Up to the next power of two: any fraction carries into the exponent, then the fraction goes.
            scale = ((scale.to(tl.int32, bitcast=True) + 0x7FFFFF) & -0x800000).to(tl.float32, bitcast=True)
        tl.store(scales + row, scale)
        for at in range(0, n, BLOCK):
            c = at + lanes
            v = tl.load(x + row * x_row + c, mask=c < n, other=0).to(tl.float32)
            v = tl.minimum(tl.maximum(tl.div_rn(v, scale), -LARGEST), LARGEST)
            tl.store(q + row * q_row + c, v.to(q.dtype.element_ty), mask=c < n)

    @triton.jit
    def by_tile(
        x, q, scales, x_row, q_row, m, n,
        CLAMP: tl.constexpr, LARGEST: tl.constexpr, POW2: tl.constexpr,
        WHOLE: tl.constexpr, ROWS: tl.constexpr,
    ):  # fmt: skip
        down, across = tl.program_id(0), tl.program_id(1)
        rows = down * ROWS + tl.arange(0, ROWS)[:, None].to(tl.int64)
        columns = across * 128 + tl.arange(0, 128)[None, :]
        inside = (rows < m) & (columns < n)
        v = tl.load(x + rows * x_row + columns, mask=inside, other=0).to(tl.float32)
        # Of each row in the tile; or of the whole tile.
        tops = tl.max(tl.abs(v), 1, keep_dims=True)
        if WHOLE:
            tops = tl.max(tops, 0, keep_dims=True)
        scale = tl.div_rn(tl.maximum(tops, CLAMP), LARGEST)
        if POW2:
            scale = ((scale.to(tl.int32, bitcast=True) + 0x7FFFFF) & -0x800000).to(tl.float32, bitcast=True)
        v = tl.minimum(tl.maximum(tl.div_rn(v, scale), -LARGEST), LARGEST)
        tl.store(q + rows * q_row + columns, v.to(q.dtype.element_ty), mask=inside)
        if WHOLE:
            tl.store(scales + down * tl.num_programs(1) + across + tl.zeros([1, 1], tl.int32), scale)
        else:
            tl.store(scales + rows * tl.num_programs(1) + across, scale, mask=rows < m)

    return by_row, by_tile


@impl("triton", about="A program per row, or per tile of 128 columns", strided=True)
def triton(case: Case, t: Any) -> Launch:
    row, tile = _kernels()
    settings = {"CLAMP": case.number("clamp"), "LARGEST": _largest(case), "POW2": case.flag("pow2")}
    strides, whole = (t.x.stride(0), t.q.stride(0)), case["granularity"] == "128x128"
    rows, block = 128 if whole else 16, triton_block(case.n)
    tiles = -(-case.m // rows), -(-case.n // 128)
    shape = {"WHOLE": whole, "ROWS": rows, "num_warps": 8 if whole else 4}

    def by_row() -> None:
        row[(case.m,)](t.x, t.q, t.scale, *strides, case.n, **settings, **block)

    def by_tile() -> None:
        tile[tiles](t.x, t.q, t.scale, *strides, case.m, case.n, **settings, **shape)

    return built(case, by_row if case["granularity"] == "row" else by_tile)


@impl("flashinfer", about="FlashInfer's per_token_group_quant_8bit, by cuTile")
def flashinfer(case: Case, t: Any) -> Launch:
    from flashinfer.quantization.fp8_quantization import per_token_group_quant_8bit

    if case["granularity"] == "128x128":
        raise Unsupported("scales per row or part of a row only")
    if case.flag("pow2"):
        raise Unsupported("powers of two only with scales by columns")
    group = 128 if case["granularity"] == "1x128" else case.n
    if case.n % group:
        raise Unsupported("rows in multiples of 128 only")
    if case.m * case.n >= 1 << 31:
        raise Unsupported("32-bit offsets")
    clamp, to = case.number("clamp"), torch_dtype(case["to"])

    def launch() -> Any:
        q, scale = per_token_group_quant_8bit(t.x, group, eps=clamp, dst_dtype=to)
        return q, scale.view(t.scale.shape)

    return built(case, launch)
