"""Numbers as people write and read them."""

from __future__ import annotations

import math
import re
from typing import Optional, Union

Duration = Union[str, int, float]

_SCALE = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "min": 60e9}
_DAY_NS = 86_400e9


def nanoseconds(duration: Duration, what: str, *, zero: bool = False) -> int:
    """`"200ms"`, `"1s"`, or seconds as a number. `what` names it in errors; `zero` says that none is fine."""
    if isinstance(duration, str):
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(ns|us|µs|ms|s|min|m)\s*", duration)
        if not found:
            raise ValueError(f"{what}: '{duration}' is not a duration; write it like '200ms', '1s' or 0.2 (seconds)")
        ns = float(found[1]) * _SCALE[found[2]]
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        ns = float(duration) * 1e9
    else:
        raise TypeError(f"{what}: write a duration like '200ms', '1s' or 0.2 (seconds), not {duration!r}")
    if not (ns >= 1 or (zero and ns == 0)) or ns > _DAY_NS:
        raise ValueError(f"{what}: {duration!r} does not lie between 1 ns and 24 hours")
    return round(ns)


def digits(value: float) -> str:
    """Three significant digits, no exponent."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    return f"{value:.{0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"


def time(ns: float) -> str:
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= size:
            return f"{digits(ns / size)} {unit}"
    return f"{digits(ns)} ns"


def percent(fraction: float) -> str:
    return f"{digits(100 * fraction)} %"


def sees(fraction: Optional[float]) -> str:
    """The smallest difference that would have been seen; beyond a factor of two its size says nothing."""
    if fraction is None or not math.isfinite(fraction):
        return "too few rounds to tell"
    return "sees > 100 %" if fraction > 1 else f"sees {percent(fraction)}"
