"""What adapters of row-wise ops share: checks of what a library does, and NumPy a few rows at a time."""

from __future__ import annotations

from typing import Any, Iterator

from ..registry import Unsupported, torch_dtype

HALF = ("f16", "bf16")
UPTO32 = ("f32", "f16", "bf16")


def only(case: Any, *dtypes: str) -> None:
    """Refuses cases of other dtypes."""
    if case.dtype not in dtypes:
        raise Unsupported(f"{' and '.join(dtypes)} only")


def only_blackwell(x: Any) -> None:
    """Refuses a tensor on an older GPU."""
    import torch

    if torch.cuda.get_device_capability(x.device) < (10, 0):
        raise Unsupported("needs compute capability 10.0")


def same_weight(case: Any) -> bool:
    """Whether the weight has the dtype of x."""
    return case["w"] in ("same", case.dtype)


def only_same_weight(case: Any) -> None:
    if not same_weight(case):
        raise Unsupported("weights of the same dtype as x only")


def row_upto(case: Any, most: int) -> None:
    if case.n > most:
        raise Unsupported(f"rows of up to {most} only")


def row_in_vectors(case: Any, size: int = 16) -> None:
    """Refuses rows that are not whole vectors of `size` bytes."""
    each = size // (4 if case.dtype == "f32" else 2)
    if case.n % each:
        raise Unsupported(f"rows of {size}-byte vectors only: n a multiple of {each}")


def acc(case: Any) -> Any:
    """The torch dtype that sums are kept in: f32, or f64 for itself."""
    return torch_dtype("f64" if case.dtype == "f64" else "f32")


# Triton


def triton_acc(case: Any) -> Any:
    """As `acc`, for a kernel of ours."""
    import triton.language as tl

    return tl.float64 if case.dtype == "f64" else tl.float32


def triton_block(n: int, most: int = 8192) -> dict[str, int]:
    """Columns that a program of ours works on at a time, and warps to suit them."""
    block = 16
    while block < min(n, most):
        block *= 2
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


def triton_programs(case: Any) -> int:
    """How many programs share the rows where each keeps sums of its own for all columns: a few per processor,
    as long as the sums stay within a few MiB."""
    import torch

    on_gpu = case.device == "cuda"
    processors = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 1
    return max(1, min(case.m, 4 * processors, (1 << 23) // case.n))


# NumPy


def numpy_acc(case: Any) -> Any:
    """As `acc`, of NumPy; refuses what NumPy has no dtype for."""
    import numpy as np

    if "bf16" in (case.dtype, case.attrs.get("w")):
        raise Unsupported("NumPy has no bf16")
    return np.float64 if case.dtype == "f64" else np.float32


def row_blocks(m: int, n: int) -> Iterator[slice]:
    """All rows, a few at a time: what is computed on the way stays in the caches."""
    step = max(1, (1 << 16) // max(n, 1))
    return (slice(at, min(at + step, m)) for at in range(0, m, step))
