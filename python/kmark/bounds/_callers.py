"""A reference called in its library, once exactly or once rounded at random."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from . import _numpy
from ._errors import BadReference, raised
from ._model import Model
from ._numpy_rules import plain
from ._outputs import Output, collect
from ._truth import Caller, Ran


def caller(
    reference: Callable[..., Any], arguments: dict[str, Any], outputs: Sequence[Output], library: str, device: str
) -> Caller:
    if library == "numpy":
        return NumPy(reference, arguments, outputs)
    if library == "torch":
        from ._torch import Torch

        return Torch(reference, arguments, outputs, device)
    raise ValueError(f"library '{library}' is neither numpy nor torch")


class NumPy:
    words = "NumPy operations"

    def __init__(self, reference: Callable[..., Any], arguments: dict[str, Any], outputs: Sequence[Output]) -> None:
        self.reference, self.arguments, self.outputs = reference, arguments, outputs
        self.wide = _numpy.WIDER

    def run(self, model: Model, seed: list[int], wide: bool, perturb: bool) -> Ran:
        run = _numpy.Run(model, seed, wide)
        try:
            returned, after = _numpy.call(run, self.reference, self.arguments, perturb)
        except Exception as error:
            raise raised(error) from error

        def taken(value: Any) -> Any:
            if not isinstance(value, _numpy.Noisy) and isinstance(value, np.ndarray) and value.dtype.kind == "f":
                run.lost.add("an array that NumPy made by itself")
            elif isinstance(value, (float, np.floating)):
                run.lost.add("a Python number")
            return plain(value)

        found = collect(returned, after, self.outputs, taken)
        if model.exact:
            self._unchanged(after)
        return Ran(found, frozenset(run.unknown), frozenset(run.lost))

    def _unchanged(self, after: dict[str, Any]) -> None:
        may_change = {o.name for o in self.outputs if o.in_place}
        for name, value in self.arguments.items():
            if isinstance(value, np.ndarray) and name not in may_change:
                if not np.array_equal(value, plain(after[name]), equal_nan=value.dtype.kind == "f"):
                    raise BadReference(f"the reference changes its input {name}, which is no output in place")

    def random_state(self) -> Any:
        state = np.random.get_state()
        return [np.asarray(part).tolist() for part in state] if isinstance(state, tuple) else state
