"""Element types by the words of the command line: how precise they are, how far apart their values lie."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import numpy as np

_asarray = np.asarray  # while a reference runs, the name stands for something else


class Format(NamedTuple):
    """Bits of the significand (the hidden one counts), least normal exponent, largest finite value, bytes."""

    precision: int
    least: int
    largest: float
    size: int

    @property
    def unit(self) -> float:
        """Half a spacing at 1: what rounding to nearest may cost, relative."""
        return 2.0**-self.precision

    @property
    def least_half(self) -> float:
        """Half the spacing of the smallest values, normal or not."""
        return float(np.ldexp(1.0, self.least - self.precision)) if self.precision < 53 else 0.0


FLOATS = {
    "f64": Format(53, -1022, float(np.finfo(np.float64).max), 8),
    "f32": Format(24, -126, float(np.finfo(np.float32).max), 4),
    "f16": Format(11, -14, 65504.0, 2),
    "bf16": Format(8, -126, 3.3895313892515355e38, 2),
    "f8e4m3": Format(4, -6, 448.0, 1),
    "f8e5m2": Format(3, -14, 57344.0, 1),
}
INTEGERS = ("i64", "i32", "i16", "i8", "u8", "bool")
WORDS = (*FLOATS, *INTEGERS)


def spacing(x: Any, word: str) -> Any:
    """The distance between neighbouring values of the type around `x`."""
    f = FLOATS[word]
    x = _asarray(x, dtype=np.float64)
    _, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))  # |x| = fraction * 2**exponent, fraction from 1/2
    exponent = np.where(x == 0.0, f.least, np.maximum(exponent - 1, f.least))
    return np.ldexp(1.0, exponent - f.precision + 1)


def to_nearest(x: Any, word: str) -> Any:
    """`x` (float64) rounded once to the nearest value of the type, ties to even. Too large: infinite, NaN in e4m3."""
    f = FLOATS[word]
    x = _asarray(x, dtype=np.float64)
    if word == "f64":
        return x
    with np.errstate(all="ignore"):
        shift = 1.5 * 2.0**52 * spacing(x, word)  # added to this, x becomes a multiple of its spacing
        nearest = np.copysign((x + shift) - shift, x)
        beyond = np.copysign(np.nan if word == "f8e4m3" else np.inf, x)
        return np.where(np.isfinite(x), np.where(np.abs(nearest) > f.largest, beyond, nearest), x)


def sixteen_bits(words: list[str]) -> Optional[str]:
    """The coarsest 16-bit type among them."""
    return next((word for word in ("bf16", "f16") if word in words), None)
