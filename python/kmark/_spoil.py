"""Wrong values for arrays that a function is about to write: what is right afterwards, the function made right."""

from __future__ import annotations

import sys
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator

from . import _arrays

#: In the middle of nowhere, and small enough for every dtype. Not NaN, with which no comparison is true: a check that
#: asks whether any element is too far off would pass it.
WRONG = -123


def must_be_array(value: Any, what: str) -> None:
    """TypeError for what cannot be filled."""
    try:
        if not hasattr(value, "fill") and not _arrays.is_torch(value) and memoryview(value).readonly:
            raise TypeError("it is read-only")
        if _arrays.is_numpy(value) and not value.flags.writeable:
            raise TypeError("it is read-only")
    except TypeError as error:
        name = type(value).__name__
        raise TypeError(f"{what}: give the arrays that functions write; {name} cannot be filled ({error})") from None


def spoil(array: Any) -> None:
    """Fills it; twice in a row may be as it was before. TypeError for what cannot be filled."""
    try:
        if _arrays.is_torch(array):
            torch = sys.modules["torch"]
            with torch.no_grad():
                array.logical_not_() if array.dtype == torch.bool else array.fill_(WRONG)
        elif _arrays.is_numpy(array):
            kind = array.dtype.kind
            if kind == "b":
                array[...] = ~array
            else:
                array.fill(-WRONG if kind == "u" else WRONG)
        elif hasattr(array, "fill"):
            array.fill(WRONG)
        else:
            view = memoryview(array).cast("B")
            view[:] = bytes(byte ^ 0xA5 for byte in view)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{type(array).__name__} cannot be filled ({error})") from None


class Returned:
    """Arrays that functions returned and that somebody may return again: those that live on, and views."""

    def __init__(self) -> None:
        self._known: dict[int, Callable[[], Any]] = {}

    def note(self, value: Any) -> None:
        for array in _arrays.arrays_in(value):
            is_view = array._is_view() if _arrays.is_torch(array) else getattr(array, "base", None) is not None
            self._known[id(array)] = _holding(array) if is_view else _watching(array)

    @contextmanager
    def spoiled(self) -> Iterator[int]:
        """Wrong values in them meanwhile; says in how many."""
        arrays = [array for array in (get() for get in self._known.values()) if array is not None]
        kept = []
        for array in arrays:
            copy = array.clone() if _arrays.is_torch(array) else array.copy()
            try:
                spoil(array)
                kept.append((array, copy))
            except TypeError:
                pass  # nobody can write it
        try:
            yield len(kept)
        finally:
            _put_back(kept)


def _put_back(kept: Iterable[tuple[Any, Any]]) -> None:
    for array, copy in kept:
        if _arrays.is_torch(array):
            with sys.modules["torch"].no_grad():
                array.copy_(copy)
        else:
            array[...] = copy


def _holding(array: Any) -> Callable[[], Any]:
    return lambda: array


def _watching(array: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(array)
    except TypeError:  # NumPy's scalars, which nobody changes
        return lambda: None
