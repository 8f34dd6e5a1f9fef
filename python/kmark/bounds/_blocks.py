"""Large arrays in blocks that stay in a core's cache, as many at a time as there are cores."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import numpy as np

# Elements of a block; its temporaries are some ten times as many.
BLOCK = 1 << 15


def is_large(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.size > BLOCK


def count(values: np.ndarray) -> int:
    return -(-len(values) // _rows(values))


def over(task: Callable[..., None], values: np.ndarray, *others: Any) -> None:
    """`task(number, part, *parts)` for each block of `values` along its first axis, with what stands beside it in the
    others: arrays of the same shape, arrays that are repeated over it, or anything else."""
    step = _rows(values)

    def one(number: int) -> None:
        at = slice(number * step, (number + 1) * step)
        with np.errstate(all="ignore"):
            task(number, values[at], *(other[at] if _goes_along(other, values) else other for other in others))

    for _ in _pool(os.getpid()).map(one, range(count(values))):
        pass


def _rows(values: np.ndarray) -> int:
    return max(1, BLOCK * len(values) // max(values.size, 1))


def _goes_along(other: Any, values: np.ndarray) -> bool:
    return isinstance(other, np.ndarray) and other.ndim == values.ndim and other.shape[0] == values.shape[0]


@functools.lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 16))
