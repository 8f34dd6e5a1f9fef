"""The reference, and the mutants made of it, as impls."""

from __future__ import annotations

from typing import Any, Callable

from ..registry import Adapter, Case, Unsupported
from ._arrays import Arrays
from ._mutants import Mutant, Values, mutants
from ._op import ABOUT_REFERENCE, MUTANT, REFERENCE, Op

# What a mutant says when there is nothing to spoil.
HARMLESS = "the mutant is harmless on this case"


def adapter(op: Op, name: str) -> Adapter:
    """Of the reference or a mutant by name; KeyError for any other."""
    if name == REFERENCE:
        bind: Callable[[Case, Any], Any] = lambda case, t: _reference(op, case, t)  # noqa: E731
        about = ABOUT_REFERENCE
    elif name.startswith(MUTANT):
        mutant = mutants(op)[name[len(MUTANT) :]]
        bind = lambda case, t: _spoiled(op, mutant, case, t)  # noqa: E731
        about = mutant.about
    else:
        raise KeyError(name)
    return Adapter(op.name, name, about, bind, ("cpu", "cuda"), op.library, True, None)


def outputs_of(op: Op, returned: Any, arguments: dict[str, Any]) -> Values:
    """What a call gave, by output; what it returned nothing for was changed in place."""
    outputs = op.outputs
    if isinstance(returned, dict):
        found = dict(returned)
    elif returned is None:
        found = {}
    elif isinstance(returned, (tuple, list)):
        found = dict(zip([t.name for t in outputs], returned))
    else:
        fresh = [t.name for t in outputs if t.role == "out"] or [outputs[0].name]
        found = {fresh[0]: returned}
    for t in outputs:
        if t.name not in found:
            if t.role != "inout":
                raise TypeError(f"the reference of {op.name} returns no {t.name}")
            found[t.name] = arguments[t.name]
    return found


def _inputs(op: Op, t: Any) -> Values:
    return {x.name: getattr(t, x.name) for x in op.tensors if x.role != "out"}


def _reference(op: Op, case: Case, t: Any) -> Callable[[], Any]:
    arrays, inputs = Arrays(op.library), _inputs(op, t)

    def launch() -> Any:
        arguments = op.arguments(case, {name: arrays.accumulated(x) for name, x in inputs.items()})
        found = outputs_of(op, op.reference(**arguments), arguments)
        return {name: arrays.like(y, getattr(t, name)) for name, y in found.items()}

    return launch


def _spoiled(op: Op, mutant: Mutant, case: Case, t: Any) -> Callable[[], None]:
    arrays = Arrays(op.library)

    def answer(inputs: Values) -> Values:
        arguments = op.arguments(case, {n: arrays.copy(x) for n, x in inputs.items()})
        return outputs_of(op, op.reference(**arguments), arguments)

    def launch() -> None:
        inputs = {n: arrays.wide(x) for n, x in _inputs(op, t).items()}
        right = {n: y for n, y in answer(inputs).items()}
        done = mutant.spoil(arrays, right, answer, inputs)
        if done is None:
            raise Unsupported(HARMLESS)
        values, unwritten = done
        for name, y in values.items():
            arrays.write(getattr(t, name), y, unwritten.get(name))

    return launch
