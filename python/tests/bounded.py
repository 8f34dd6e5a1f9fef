"""What tests of derived bounds share: references with honest and wrong kernels of theirs, and the gate's rule for an
element."""

from __future__ import annotations

from typing import Any

import numpy as np
from kmark.bounds import Truth
from kmark.bounds._formats import spacing, to_nearest

F32 = np.float32


def values(dtype: str, *shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """Normal numbers that are of the type."""
    return to_nearest(scale * np.random.default_rng(seed).normal(size=shape), dtype)


def ratio(truth: Truth, got: Any, dtype: str, grade: str = "tight", output: int = 0) -> float:
    """The largest error over what is allowed; `got` is in the accumulator's precision, and is rounded here."""
    expect, slack = truth.expect[output], truth.slack(grade)[output]
    got = to_nearest(np.asarray(got, dtype=np.float64), dtype)
    allowed = 0.5 * spacing(np.abs(expect) + np.where(np.isfinite(slack), slack, 0.0), dtype) * (1 + 1e-9) + slack
    error = np.where(got == expect, 0.0, np.abs(got - expect))
    return float(np.max(np.where(np.isnan(error), np.inf, error / allowed), initial=0.0))


def chain(x: Any) -> Any:
    """The sum of each row, one term after the other in f32."""
    total = np.zeros(x.shape[:-1], dtype=F32)
    for i in range(x.shape[-1]):
        total = total + x[..., i].astype(F32)
    return total


def pairs(x: Any) -> Any:
    """The sum of each row in f32 by halves."""
    x = x.astype(F32)
    while x.shape[-1] > 1:
        odd = x[..., x.shape[-1] // 2 * 2 :]
        x = np.concatenate([x[..., 0 : x.shape[-1] // 2 * 2 : 2] + x[..., 1::2], odd], axis=-1)
    return x[..., 0]


def blocks(x: Any) -> Any:
    """The sum of each row in f32: of every 32nd first, then of those."""
    padded = np.pad(x.astype(F32), [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 32)])
    return chain(chain(np.swapaxes(padded.reshape(*x.shape[:-1], -1, 32), -1, -2)))


SUMS = {"chain": chain, "pairs": pairs, "blocks": blocks}


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rmsnorm(x: Any, w: Any) -> Any:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * w


def softmax_f32(x: Any, add: Any = chain, base2: bool = False) -> Any:
    x = x.astype(F32)
    high = x.max(axis=-1, keepdims=True)
    if base2:
        log2e = F32(np.log2(np.e))
        e = np.exp2(x * log2e - high * log2e)
    else:
        e = np.exp(x - high)
    return e / add(e)[..., None]


def rmsnorm_f32(x: Any, w: Any, add: Any = chain, eps: float = 1e-5) -> Any:
    x, w = x.astype(F32), w.astype(F32)
    return x * (F32(1) / np.sqrt(add(x * x) / F32(x.shape[-1]) + F32(eps)))[..., None] * w


def mutants(right: Any, other: Any, scale: float = 1.001) -> dict[str, Any]:
    """What kernels get wrong, made of a right answer and one of other values."""
    made = {name: right.copy() for name in ("stale tail", "no last block", "a row twice", "one off", "scaled")}
    made["stale tail"][-1, -8:] = other[-1, -8:]
    made["no last block"][-1, -8:] = 0
    made["a row twice"][-1] = right[-2]
    made["one off"][3, 5] *= 1 + 2.0**-6
    made["scaled"] *= scale
    return made | {"another seed": other}
