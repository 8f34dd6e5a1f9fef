"""Mutants that every op can have, made of its reference: the right answer, spoiled in one way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from . import _words
from ._arrays import Arrays

if TYPE_CHECKING:
    from ._op import Op

# Outputs by name, as arrays in fp64.
Values = dict[str, Any]


@dataclass
class Mutant:
    """`spoil(arrays, right, answer, inputs)` returns what is written and, by output, a mask of elements that are not.
    `answer(inputs)` is the right answer for other inputs. `None`: on this case there is nothing to spoil."""

    about: str
    spoil: Callable[[Arrays, Values, Callable[[Values], Values], Values], Any]


def mutants(op: Op) -> dict[str, Mutant]:
    """By name. What an op has nothing of, it has no mutant of."""
    found = {
        "stale-tail": Mutant("the last elements are not written", _unwritten(lambda a, y: a.tail(y))),
        "last-block-missing": Mutant("the end of every row is not written", _unwritten(lambda a, y: a.row_ends(y))),
        "row-of-another": Mutant("one row is that of its neighbour", _row_of_another),
        "another-seed": Mutant("the answer for other inputs", _another_seed),
        "one-element-off": Mutant("one element is off by a sixteenth", _one_off),
        "scale-off": Mutant("everything is larger by a part in a thousand", _scaled),
    }
    for axis in _reduced(op):
        about = f"whatever runs over {axis} misses its last term"
        found[f"last-{axis}-missing"] = Mutant(about, _without_last(op, axis))
    return found


def _reduced(op: Op) -> list[str]:
    """Axes of inputs that some output does not have: something is summed, or looked up, over them."""
    inside = [n for t in op.tensors if t.role != "out" and t.is_float for n in t.dims]
    some = [{*_words.names(t.dims), *t.dims} for t in op.outputs]
    fixed = [word for word in dict.fromkeys(inside) if word.isdigit() and word != "1"]
    plain = [axis for axis in [*op.axes, *fixed] if axis in inside]
    reduced = [axis for axis in plain if any(axis not in names for names in some)]
    # A norm or a softmax keeps its axis and runs over it all the same.
    return reduced or plain[-1:]


def _unwritten(where: Callable[[Arrays, Any], Any]) -> Any:
    def spoil(arrays: Arrays, right: Values, _answer: Any, _inputs: Values) -> Any:
        return right, {name: where(arrays, y) for name, y in right.items()}

    return spoil


def _row_of_another(arrays: Arrays, right: Values, _answer: Any, _inputs: Values) -> Any:
    spoiled, any_differs = {}, False
    for name, y in right.items():
        rows = arrays.rows(arrays.copy(y))
        for i in range(len(rows) - 1, 0, -1):
            if not arrays.same(rows[i], rows[i - 1]):
                rows[i] = rows[i - 1]
                any_differs = True
                break
        spoiled[name] = rows.reshape(y.shape)
    return (spoiled, {}) if any_differs else None


def _another_seed(arrays: Arrays, right: Values, answer: Any, inputs: Values) -> Any:
    turned = {n: arrays.turned(x) if arrays.is_float(x) else x for n, x in inputs.items()}
    other = answer(turned)
    return (other, {}) if any(not arrays.same(other[n], right[n]) for n in right) else None


def _one_off(arrays: Arrays, right: Values, _answer: Any, _inputs: Values) -> Any:
    spoiled, any_differs = {}, False
    for name, y in right.items():
        spoiled[name] = arrays.copy(y)
        at = arrays.largest(y)
        if at is not None and not any_differs:
            flat = spoiled[name].reshape(-1)
            flat[at] = flat[at] * (1 + 1 / 16) if arrays.is_float(y) else flat[at] + 1
            any_differs = True
    return (spoiled, {}) if any_differs else None


def _scaled(arrays: Arrays, right: Values, _answer: Any, _inputs: Values) -> Any:
    floats = [n for n, y in right.items() if arrays.is_float(y) and arrays.largest(y) is not None]
    if not floats:
        return None
    return {n: y * 1.001 if n in floats else y for n, y in right.items()}, {}


def _without_last(op: Op, axis: str) -> Any:
    places = {t.name: t.dims.index(axis) for t in op.tensors if t.role != "out" and t.is_float and axis in t.dims}

    def spoil(arrays: Arrays, right: Values, answer: Any, inputs: Values) -> Any:
        cut = dict(inputs)
        for name, place in places.items():
            cut[name] = arrays.copy(inputs[name])
            cut[name][(slice(None),) * place + (-1,)] = 0
        other = answer(cut)
        return (other, {}) if any(not arrays.same(other[n], right[n]) for n in right) else None

    return spoil
