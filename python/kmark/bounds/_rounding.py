"""Random rounding of arrays under a model, for any library whose functions have NumPy's names (`xp`).

A library adds how random numbers are drawn and how its types are asked about. Arrays are changed in place."""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

from ._formats import FLOATS
from ._model import ABSOLUTE, EXPONENTIALS, FUNCTION, LOGISTIC, WALK, Model

# What is added to 1 in fp64 must be more than this to be random still.
SEEN = 2.0**-40


class Rounding:
    """One run of a reference. `unknown`: operations without a rule; `lost`: ways by which values left the library."""

    xp: Any

    def __init__(self, model: Model) -> None:
        self.model = model
        self.unknown: set[str] = set()
        self.lost: set[str] = set()

    def draw(self, like: Any) -> Any:
        """Uniform between -1 and 1; real and imaginary part apart."""
        raise NotImplementedError

    def sign(self) -> float:
        """1 or -1."""
        raise NotImplementedError

    def is_float(self, values: Any) -> bool:
        raise NotImplementedError

    def nonzero(self, values: Any) -> Any:
        """1.0 where an element is not zero, else 0.0."""
        raise NotImplementedError

    def fits(self, values: Any, word: str) -> bool:
        """Whether all are values of the type."""
        raise NotImplementedError

    def spread(self, values: Any, amplitude: Any, where: Any = True) -> None:
        """Adds up to `amplitude`, uniformly."""
        finite = self.xp.isfinite(amplitude)
        if where is not True or not finite.all():
            amplitude = self.xp.where(finite & where, amplitude, 0.0)
        noise = self.draw(values)
        noise *= amplitude
        values += noise

    def _scale(self, values: Any, relative: Any, least: float) -> bool:
        """Adds up to `relative` of themselves to all, if none but zeros are smaller than `least`: the common case, in
        few passes. Otherwise it does nothing."""
        if not isinstance(relative, float) or relative < SEEN:
            return False
        small = self.xp.abs(values) < least
        if bool((small & (values != 0)).any()):
            return False
        noise = self.draw(values)
        noise *= relative
        noise += 1.0
        values *= noise
        return True

    def each(self, values: Any, units: Any, where: Any = True, least: float = 0.0) -> None:
        """Every element is off by so many units, of itself or of `least`."""
        if self.model.exact or not self.is_float(values):
            return
        if where is True and not least and self._scale(values, self.model.unit * units, self.model.tiny):
            return self.store(values, where)
        size = self.xp.clip(self.xp.abs(values), least, None)
        amplitude = size * (self.model.unit * units)
        # The smallest numbers may be flushed to zero, or to the smallest of the others.
        amplitude = self.xp.where((size > 0) & (size < self.model.tiny), self.model.tiny, amplitude)
        self.spread(values, amplitude, where)
        self.store(values, where)

    def function(self, name: str, values: Any, units: float, argument: Any, terms: Any, where: Any = True) -> None:
        """Every element is the function of an argument; `terms`: the size of what that is the sum of."""
        off = units + self._reach(name, argument, terms, values)
        self.each(values, off, where, least=1.0 if name in ABSOLUTE else 0.0)

    def _reach(self, name: str, argument: Any, terms: Any, result: Any) -> Any:
        """Units by which the function of a rounded argument is off."""
        if name in EXPONENTIALS:
            return self.xp.abs(argument) if terms is None else terms
        return self.xp.abs(argument) * (1 - result) if name in LOGISTIC else 0.0

    def walk(self, values: Any, squares: Any, terms: Any, cut: Any = None) -> None:
        """Every element is a sum of so many terms, with this sum of squares; tensor cores lose `cut` on top."""
        if self.model.exact or not self.is_float(values):
            return
        deviation = WALK * self.model.unit * terms**0.5 * self.xp.sqrt(squares + self.xp.abs(values) ** 2)
        self.spread(values, math.sqrt(3) * deviation)
        if cut is not None:
            # What is cut off may be alike in all elements, or not: where they cancel later, this makes a difference.
            values += self.xp.sign(values) * cut * (self.sign() / 6)
            self.spread(values, math.sqrt(3) / 6 * cut)
        if self.model.store:
            # Products before they are added up, or partial sums: of the size of the terms, not of their sum.
            self.spread(values, 2 * FLOATS[self.model.store].unit * self.xp.sqrt(squares))
        self.store(values)

    def store(self, values: Any, where: Any = True) -> None:
        """Rounds to the model's 16-bit type, if it stores intermediates in one."""
        if self.model.store and self.is_float(values):
            self.round_to(values, self.model.store, where)

    def round_to(self, values: Any, word: str, where: Any = True) -> None:
        f = FLOATS[word]
        if where is True and self._scale(values, f.unit, f.least_half / f.unit):
            return
        size = self.xp.abs(values)
        self.spread(values, self.xp.where(size > 0, self.xp.clip(f.unit * size, f.least_half, None), 0.0), where)

    def perturb(self, values: Any) -> None:
        """Makes inputs be off by what a function may lose that adds up any of their axes."""
        if not self.model.exact and self.is_float(values):
            units = FUNCTION * math.sqrt(max(values.shape, default=1))
            self.spread(values, units * self.model.unit * self.xp.abs(values))

    def product(self, multiply: Callable[..., Any], operands: Sequence[Any], terms: int, matrix: bool = True) -> Any:
        """Sums of products of elements of the operands, at most so many to a sum; `matrix`: what matrix units make."""
        if self.model.exact or not any(map(self.is_float, operands)):
            return multiply(*operands)
        matrix = matrix and terms > 1
        if self.model.operand and matrix:
            operands = [self._operand(o, self.model.operand) for o in operands]
        value = multiply(*operands)
        count: Any = float(terms)
        if not all(bool((o != 0).all()) for o in operands):
            count = multiply(*[self.nonzero(o) for o in operands])
        squares = multiply(*[self.xp.abs(o) ** 2 for o in operands])
        share = self.model.cut(terms) if matrix else 0.0
        self.walk(value, squares, count, share * self.xp.sqrt(terms * squares) if share else None)
        return value

    def _operand(self, values: Any, word: str) -> Any:
        """What a matrix unit is handed: rounded to its 16-bit type, unless it is of that type."""
        if not self.is_float(values) or self.fits(values, word):
            return values
        values = self.copy(values)
        self.round_to(values, word)
        return values

    def copy(self, values: Any) -> Any:
        raise NotImplementedError
