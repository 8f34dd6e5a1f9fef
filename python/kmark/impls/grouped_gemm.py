"""Products of groups of rows, each with a matrix of its own: torch, DeepGEMM, Quack, FlashInfer."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..registry import Unsupported, impl

_PADDED = "a,b,group -> d (padding rows are computed, too)"
_SLOTS = "a,b,count -> d (rows behind count are computed, too)"


def lengths_of(case: Any, t: Any) -> list[int]:
    """Rows of each group; read when binding."""
    if case["form"] == "masked":
        return t.count.tolist()
    rows = Counter(t.group.tolist())
    return [rows[g] for g in range(case.g)]


def spans_of(case: Any, t: Any) -> list[tuple[int, int, int]]:
    """Where each group starts, where its rows end, and where its padding ends; contiguous form."""
    align, spans, start = case.count("align"), [], 0
    for n in lengths_of(case, t):
        slot = -(-n // align) * align
        spans.append((start, start + n, start + slot))
        start += slot
    return spans


def _pairs(case: Any, t: Any) -> list[tuple[Any, Any, Any]]:
    """a, b^T and d of each group that has rows: views."""
    if case["form"] == "masked":
        rows = [(g, t.a[g, :n], t.d[g, :n]) for g, n in enumerate(lengths_of(case, t)) if n]
    else:
        spans = enumerate(spans_of(case, t))
        rows = [(g, t.a[i:j], t.d[i:j]) for g, (i, j, _) in spans if j > i]
    return [(a, t.b[g].T, d) for g, a, d in rows]


@impl("numpy", about="NumPy's matmul, group by group", devices=("cpu",), arrays="numpy", strided=True)
def numpy_(case, t):
    import numpy as np

    if case.dtype not in ("f32", "f16"):
        raise Unsupported(f"no {case.dtype}")
    pairs = _pairs(case, t)
    if case.dtype == "f32":

        def launch():
            for a, b, d in pairs:
                np.matmul(a, b, out=d)

    else:

        def launch():  # its own product of halves sums in halves
            for a, b, d in pairs:
                d[...] = a.astype(np.float32) @ b.astype(np.float32)

    return launch


def _grouped(case: Any) -> bool:
    """Whether torch has a grouped product for it."""
    return case.device == "cuda" and case.dtype == "bf16" and case["memory"] == "dense"


def _torch_contract(case: Any) -> Any:
    if case["form"] == "masked":
        return _SLOTS
    return "a,b,offsets -> d (new tensor; padding rows are computed, too)" if _grouped(case) else None


@impl(
    "torch",
    about="torch._grouped_mm (bf16 on the GPU), bmm of full slots (masked), or an mm per group",
    devices=("cpu", "cuda"),
    strided=True,
    contract=_torch_contract,
)
def torch_(case, t):
    import torch

    if case.dtype == "f8e4m3":
        raise Unsupported("its grouped fp8 product takes scales per row, not per block")
    if case["form"] == "masked":
        b = t.b.transpose(1, 2)

        def launch():
            torch.bmm(t.a, b, out=t.d)

        return launch
    if not _grouped(case):
        return torch_loop(case, t)
    if case.k % 8 or case.n % 8:
        raise Unsupported("k and n must be multiples of 8")
    ends = torch.tensor([end for _, _, end in spans_of(case, t)], dtype=torch.int32, device=t.a.device)
    b = t.b.transpose(1, 2)
    return lambda: torch._grouped_mm(t.a, b, offs=ends)


@impl("torch/loop", about="A torch.mm for each group, into d", devices=("cpu", "cuda"), strided=True)
def torch_loop(case, t):
    import torch

    if case.dtype == "f8e4m3":
        raise Unsupported("no fp8")
    pairs = _pairs(case, t)

    def launch():
        for a, b, d in pairs:
            torch.mm(a, b, out=d)

    return launch


@impl("deepgemm", about="DeepGEMM's grouped products: bf16, or fp8 with scales per 1x128 and 128x128")
def deepgemm(case, t):
    from ._attention import first_module

    deep_gemm = first_module("deep_gemm", "vllm.third_party.deep_gemm")
    if case.dtype not in ("bf16", "f8e4m3"):
        raise Unsupported("bf16 and f8e4m3")
    step = 16 if case.dtype == "f8e4m3" else 8
    if case.k % step or case.n % step:
        raise Unsupported(f"k and n must be multiples of {step}")
    a, b, kind = t.a, t.b, "fp8" if case.dtype == "f8e4m3" else "bf16"
    if kind == "fp8":
        scales = case.arranged(lambda: deep_gemm.get_mn_major_tma_aligned_tensor(t.a_scale))
        a, b = (t.a, scales), (t.b, t.b_scale)
    if case["form"] == "masked":
        # Its tiles reach into the next group's slot (issue 268 of its repository).
        if case.m != 64 and case.m % 128:
            raise Unsupported("masked: m must be 64 or a multiple of its tile, 128 rows")
        lengths = lengths_of(case, t)
        expected = max(1, round(sum(lengths) / len(lengths)))
        run = getattr(deep_gemm, f"m_grouped_{kind}_gemm_nt_masked")
        args = (a, b, t.d, t.count, expected)
    else:
        if case.count("align") % deep_gemm.get_m_alignment_for_contiguous_layout():
            raise Unsupported("groups must be padded to its tile, 128 rows")
        run = getattr(deep_gemm, f"m_grouped_{kind}_gemm_nt_contiguous")
        args = (a, b, t.d, t.group)

    def launch():
        run(*args)

    with case.building():
        launch()
    return launch


def _starts(case: Any, t: Any, dtype: Any) -> Any:
    """Starts of the padded groups and the end of the last, on the device."""
    import torch

    return torch.tensor([0] + [end for _, _, end in spans_of(case, t)], dtype=dtype, device=t.a.device)


@impl(
    "quack",
    about="Quack's CuTe DSL product with group starts, or a batch; the tile it chooses by timing",
    contract=lambda case: _SLOTS if case["form"] == "masked" else _PADDED,
)
def quack(case, t):
    import torch
    from quack.gemm_interface import gemm

    if case.dtype not in ("bf16", "f16"):
        raise Unsupported("bf16 and f16")
    if case.k % 8 or case.n % 8:
        raise Unsupported("k and n must be multiples of 8")
    b = t.b.transpose(1, 2)
    starts = None if case["form"] == "masked" else _starts(case, t, torch.int32)

    def launch():
        gemm(t.a, b, out=t.d, cu_seqlens_m=starts)

    with case.tuning(alone=True):
        launch()
    return launch


@impl("flashinfer", about="FlashInfer's segment GEMM (CUTLASS)", contract=_PADDED)
def flashinfer(case, t):
    import torch
    from flashinfer import SegmentGEMMWrapper

    from ._attention import workspace

    if case.dtype not in ("bf16", "f16") or case["form"] == "masked":
        raise Unsupported("bf16 and f16, rows one group after the other")
    if case.k % 8 or case.n % 8:
        raise Unsupported("k and n must be multiples of 8")
    wrapper = SegmentGEMMWrapper(workspace(t.a.device).view(torch.int8))
    starts = _starts(case, t, torch.int64)

    def launch():
        wrapper.run(t.a, t.b, case.g, True, out=t.d, seg_indptr=starts)

    with case.building():
        launch()
    return launch
