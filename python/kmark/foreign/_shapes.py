"""Sizes of tensors as expressions of a task's keys, found from what its cases have."""

from __future__ import annotations

import itertools
from typing import Iterator, Mapping, Optional, Sequence

from ._problem import size

Case = Mapping[str, int]


def expression(values: Sequence[int], cases: Sequence[Case]) -> Optional[str]:
    """What gives these values in these cases; none if nothing simple does."""
    for text in _candidates(values, cases):
        try:
            if all(size(text, case) == value for value, case in zip(values, cases)):
                return text
        except ZeroDivisionError:
            pass
    return None


def _candidates(values: Sequence[int], cases: Sequence[Case]) -> Iterator[str]:
    keys = list(cases[0])
    yield from keys
    yield str(values[0])
    for a, b in itertools.combinations_with_replacement(keys, 2):
        yield f"{a}*{b}"
    for a, b in itertools.permutations(keys, 2):
        yield f"{a}-{b}+1"
        yield f"{a}/{b}"
        yield f"{a}-{b}"
        yield f"{a}+{b}"
    for key in keys:
        a, v = cases[0][key], values[0]
        yield f"{key}+{v - a}" if v > a else f"{key}-{a - v}"
        if v % a == 0:
            yield f"{key}*{v // a}"
        if a % v == 0 and all(case[key] % (a // v) == 0 for case in cases):
            yield f"{key}/{a // v}"
    for key in keys:
        for step in (2, 4, 8, 16, 32, 64, 128, 256, 512):
            yield f"({key}+{step - 1})/{step}"
    for a, b, c in itertools.combinations_with_replacement(keys, 3):
        yield f"{a}*{b}*{c}"
