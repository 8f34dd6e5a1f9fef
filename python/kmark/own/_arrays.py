"""The few things that mutants and references need of arrays, in NumPy and in torch."""

from __future__ import annotations

from typing import Any, Optional


class Arrays:
    """Of one library; `library` is numpy or torch."""

    def __init__(self, library: str) -> None:
        self.is_torch = library == "torch"

    def is_float(self, x: Any) -> bool:
        return bool(x.is_floating_point()) if self.is_torch else x.dtype.kind == "f"

    def wide(self, x: Any) -> Any:
        """In fp64, if it has fractions; always a copy."""
        if self.is_torch:
            return x.double().clone() if x.is_floating_point() else x.clone()
        return x.astype("f8") if x.dtype.kind == "f" else x.copy()

    def accumulated(self, x: Any) -> Any:
        """In the precision in which kernels accumulate: f32, or f64 for f64. A copy only where that is another."""
        if not self.is_float(x) or x.dtype.itemsize >= 4:
            return x
        return x.float() if self.is_torch else x.astype("f4")

    def copy(self, x: Any) -> Any:
        return x.clone() if self.is_torch else x.copy()

    def like(self, x: Any, other: Any) -> Any:
        """In the other's dtype."""
        return x.to(other.dtype) if self.is_torch else x.astype(other.dtype, copy=False)

    def same(self, a: Any, b: Any) -> bool:
        """Element by element, a NaN being a NaN."""
        return bool(((a == b) | ((a != a) & (b != b))).all())

    def rows(self, x: Any) -> Any:
        return x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(-1, 1)

    def tail(self, x: Any) -> Any:
        """A mask of the last thirty-second of all elements."""
        mask = self._none(x)
        flat = mask.reshape(-1)
        flat[-max(1, len(flat) // 32) :] = True
        return flat.reshape(x.shape)

    def row_ends(self, x: Any) -> Any:
        """A mask of the last sixteenth of every row."""
        mask = self._none(x)
        if mask.ndim == 0:
            return ~mask
        mask[..., -max(1, x.shape[-1] // 16) :] = True
        return mask

    def _none(self, x: Any) -> Any:
        return (x != x) & False

    def turned(self, x: Any) -> Any:
        """The same values in other places."""
        flat = x.reshape(-1)
        if self.is_torch:
            import torch

            return torch.roll(flat, 1 + len(flat) // 3).reshape(x.shape)
        import numpy

        return numpy.roll(flat, 1 + len(flat) // 3).reshape(x.shape)

    def largest(self, x: Any) -> Optional[int]:
        """Where the largest finite element lies; none if all are zero."""
        flat = x.reshape(-1)
        finite = (flat == flat) & (abs(flat) < float("inf"))
        flat = abs(flat) * finite if not self.is_float(x) else self._where(finite, abs(flat))
        at = int(flat.argmax()) if len(flat) else 0
        return at if len(flat) and float(flat[at]) > 0 else None

    def _where(self, finite: Any, x: Any) -> Any:
        if self.is_torch:
            return x.where(finite, x.new_zeros(()))
        import numpy

        return numpy.where(finite, x, 0.0)

    def write(self, target: Any, values: Any, unwritten: Any = None) -> None:
        """Into memory of the case, rounded to its dtype, but for what is masked."""
        if unwritten is None:
            target[...] = values
        elif self.is_torch:
            target.copy_(target.where(unwritten, values.to(target.dtype)))
        else:
            target[~unwritten] = values[~unwritten].astype(target.dtype)
