"""What an honest kernel loses in one operation, as numbers: the same for every library.

A kernel computes in its accumulator's precision, in any order, and rounds once at the end. So each operation of the
reference is off by a few units of the accumulator, and a sum of n terms by the random walk of its partial sums. All of
it is drawn from uniform distributions; the caller turns the spread of the outputs into a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

from ._formats import FLOATS

# Units of the accumulator that one element may be off by. Libraries round roots and quotients a little worse than sums,
# and their elementary functions worse than roots; anything without a line here is taken for an elementary function.
SUM, ROOT, FUNCTION = 1.0, 2.0, 4.0

# Functions whose argument kernels scale to base 2 before they round it: relative, they are off by units of its size, or
# of the size of what it is the difference of. The logistic function is one of these where it is small.
EXPONENTIALS = ("exp", "exp2", "expm1")
LOGISTIC = ("expit", "sigmoid")

# Functions that kernels approximate to so many units of 1, not of the result.
ABSOLUTE = ("erf", "ndtr", "special_ndtr")

# The roundings of partial sums, as a share of unit * sqrt(terms) * sqrt(sum of squares + square of the sum), at one
# standard deviation. One chain over the terms in turn, the worst of orders, comes to half of this.
WALK = 0.5

# How many standard deviations a bound is, by grade. Roundings to 16 bits are few and bounded: less is enough.
DEVIATIONS = {"tight": 6.0, "loose": 3.5}


@dataclass(frozen=True)
class Model:
    """`unit` of the accumulator (0: exact); results below `tiny` may be flushed; `store`: intermediates are rounded to
    this 16-bit type as well; `product`: the type that operands of matrix products have."""

    unit: float = 0.0
    tiny: float = 0.0
    store: Optional[str] = None
    product: Optional[str] = None

    @property
    def exact(self) -> bool:
        return self.unit == 0.0

    @property
    def operand(self) -> Optional[str]:
        """The 16-bit type that operands of products must be rounded to, if they are not of that type."""
        return self.product if self.product in ("bf16", "f16") else None

    def cut(self, terms: float) -> float:
        """What tensor cores lose on top, as a part of |a row| |b column|: they cut sums off towards zero."""
        if self.exact or self.product is None or FLOATS[self.product].size > 2:
            return 0.0
        lost = FLOATS["f32"].unit * math.sqrt(terms) / 8
        if FLOATS[self.product].size == 1:
            lost += (1.2e-3 + 2e-2 / math.sqrt(terms)) / math.sqrt(terms)
        return lost


def accumulator(word: str) -> str:
    return "f64" if word == "f64" else "f32"
