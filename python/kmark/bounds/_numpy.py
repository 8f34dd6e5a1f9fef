"""NumPy arrays whose operations round at random: an ndarray that sees every ufunc and every function called on it.

Inside `Run`, functions that make arrays (`np.zeros`, `np.asarray`, …) make these as well, so that what a reference
fills or computes from constants is seen, too. Of what NumPy computes without asking, `_numpy_rules` knows the most
common; the rest is noted in `Run.unknown`. Values that leave as Python numbers (`float(x)`) are noted in `Run.lost`."""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any, Callable, Iterator, Optional, Sequence

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from . import _blocks
from . import _numpy_rules as rules
from ._errors import BadReference
from ._formats import to_nearest
from ._model import Model
from ._rounding import Rounding

MADE = "zeros ones empty full eye identity arange linspace tri array asarray ascontiguousarray asfortranarray"
WIDER = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant

_current: Optional[Run] = None


class _Words(ISeedSequence):
    """Seeds that were drawn: those of NumPy's own are made by functions that mean something else during a run."""

    def __init__(self, words: Any) -> None:
        self.words = rules.plain(words)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self.words


class Run(Rounding):
    """One run of a reference. `wide`: in long double, for kernels whose accumulator is fp64."""

    xp = np

    def __init__(self, model: Model, seed: list[int], wide: bool = False) -> None:
        super().__init__(model)
        self.wide, self.is_block = wide, False
        self.random = np.random.Generator(np.random.PCG64(seed))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        global _current
        kept = {name: getattr(np, name) for name in MADE.split()}
        before, _current = _current, self
        try:
            for name, function in kept.items():
                setattr(np, name, self._making(function))
            with np.errstate(all="ignore"):
                yield
        finally:
            _current = before
            for name, function in kept.items():
                setattr(np, name, function)

    def _making(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.wrap(function(*args, **kwargs))

    def wrap(self, value: Any) -> Any:
        """`value` as an array of ours; a NumPy scalar too, a tuple part by part."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.wrap, value)) if type(value) in (tuple, list) else value
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        array = value if isinstance(value, np.ndarray) else rules.array(value)
        if array.dtype.kind in "fc" and array.dtype.itemsize < (8 if array.dtype.kind == "f" else 16):
            raise BadReference(f"the reference computes in {array.dtype}; keep float64, which the oracle needs")
        return array.view(Noisy)

    def wider(self, dtype: Any) -> Any:
        """The type to compute in where the reference asks for `dtype`."""
        return np.longdouble if self.wide and dtype is not None and np.dtype(dtype) == np.float64 else dtype

    def draw(self, like: np.ndarray) -> np.ndarray:
        if like.dtype.kind == "c":
            return self._uniform(like.shape) + 1j * self._uniform(like.shape)
        return self._uniform(like.shape).astype(like.dtype, copy=False)

    def _uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Of 32 random bits each, which is quick, and enough."""
        size = math.prod(shape)
        words = rules.plain(self.random.bit_generator.random_raw(size // 2 + 1))
        return (words.view(np.int32)[:size] * 2.0**-31).reshape(shape)

    def spread(self, values: Any, amplitude: Any, where: Any = True) -> None:
        self._in_blocks(Rounding.spread, values, amplitude, where)

    def each(self, values: Any, units: Any, where: Any = True, least: float = 0.0) -> None:
        self._in_blocks(Rounding.each, values, units, where, least)

    def round_to(self, values: Any, word: str, where: Any = True) -> None:
        self._in_blocks(Rounding.round_to, values, word, where)

    def _in_blocks(self, method: Callable[..., None], values: Any, *others: Any) -> None:
        """The method on blocks of large arrays, each with random numbers of its own."""
        if self.is_block or not _blocks.is_large(values):
            return method(self, values, *others)
        seeds = self.random.bit_generator.random_raw((_blocks.count(values), 3))

        def task(number: int, *parts: Any) -> None:
            block = copy.copy(self)
            block.is_block = True
            block.random = np.random.Generator(np.random.SFC64(_Words(seeds[number])))
            method(block, *parts)

        _blocks.over(task, values, *others)

    def sign(self) -> float:
        return 1.0 if self.random.random() < 0.5 else -1.0

    def is_float(self, values: Any) -> bool:
        return rules.is_float(values)

    def nonzero(self, values: Any) -> np.ndarray:
        return rules.asarray(values != 0).astype(np.float64)

    def fits(self, values: Any, word: str) -> bool:
        return np.array_equal(to_nearest(values, word), values, equal_nan=True)

    def copy(self, values: Any) -> np.ndarray:
        return rules.array(values)

    def product(self, multiply: Callable[..., Any], operands: Sequence[Any], terms: int, matrix: bool = True) -> Any:
        operands = [rules.asarray(o) for o in operands]
        return super().product(lambda *o: rules.array(multiply(*o)), operands, terms, matrix)


def rounds() -> Optional[Run]:
    """The run in which a reference is being called, if one is."""
    return _current


class Noisy(np.ndarray):
    """An array of a reference's, inside a `Run`."""

    terms: Any = None  # of a sum or difference: the size of what was added

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        run = _current
        given = [rules.plain(i) for i in inputs]
        kwargs = {name: rules.plain(value) for name, value in kwargs.items()}
        if run is None:
            kwargs |= {"out": tuple(rules.plain(o) for o in out)} if out is not None else {}
            return getattr(ufunc, method)(*given, **kwargs)
        if "dtype" in kwargs:
            kwargs["dtype"] = run.wider(kwargs["dtype"])
        if method == "at":
            return rules.scatter(run, ufunc, given)
        terms = [getattr(i, "terms", None) for i in inputs]
        results, added = rules.compute(run, ufunc, method, given, terms, kwargs)
        if out is not None:
            casting, where = kwargs.get("casting", "same_kind"), kwargs.get("where", True)
            for target, result in zip(out, results):
                if target is not None:
                    np.copyto(rules.plain(target), result, casting, where)
            results = tuple(target if target is not None else run.wrap(r) for target, r in zip(out, results))
        else:
            results = tuple(run.wrap(r) for r in results)
        if isinstance(results[0], Noisy):
            results[0].terms = added
        return results[0] if len(results) == 1 else results

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        run = _current
        if run is None:
            return func(*rules.plainly(args), **rules.plainly(kwargs))
        if "dtype" in kwargs:
            kwargs = kwargs | {"dtype": run.wider(kwargs["dtype"])}
        name = func.__name__
        if func in rules.PRODUCTS:
            return run.wrap(rules.PRODUCTS[func](run, *rules.plainly(args), **rules.plainly(kwargs)))
        if name in rules.MADE_OF_UFUNCS:
            return run.wrap(super().__array_function__(func, types, args, kwargs))
        if name in rules.MOVES:
            return run.wrap(func(*rules.plainly(args), **rules.plainly(kwargs)))
        return run.wrap(rules.opaque(run, func, args, kwargs))

    def dot(self, b: Any, out: Any = None) -> Any:
        return np.dot(self, b, out=out)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        run = _current
        result = rules.plain(self).astype(run.wider(dtype) if run else dtype, *args, **kwargs)
        return run.wrap(result) if run else result

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(rules.plain(key) if not isinstance(key, tuple) else rules.plainly(key))
        return found if isinstance(found, np.ndarray) or _current is None else _current.wrap(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.terms = None
        super().__setitem__(rules.plain(key) if not isinstance(key, tuple) else rules.plainly(key), value)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    # Where values leave for Python's own arithmetic, which nobody sees.

    def _leaves(self, by: str) -> np.ndarray:
        if _current is not None and self.dtype.kind in "fc":
            _current.lost.add(by)
        return rules.plain(self)

    def __float__(self) -> float:
        return float(self._leaves("float()"))

    def __int__(self) -> int:
        return int(rules.plain(self))

    def __complex__(self) -> complex:
        return complex(self._leaves("complex()"))

    def item(self, *args: Any) -> Any:
        return self._leaves("item()").item(*args)

    def tolist(self) -> Any:
        return self._leaves("tolist()").tolist()


def call(run: Run, reference: Callable[..., Any], arguments: dict[str, Any], perturb: bool) -> tuple[Any, Any]:
    """The reference under `run` on copies of `arguments`: what it returned, and the arguments afterwards."""
    given = {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            value = rules.array(value, dtype=run.wider(value.dtype))
            if perturb:
                run.perturb(value)
            value = value.view(Noisy)
        given[name] = value
    with run.active():
        return reference(**given), given
