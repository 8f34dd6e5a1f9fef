"""What a reference returned, taken apart into the outputs that its op has."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional, Sequence

import numpy as np

from ._errors import BadReference
from ._formats import FLOATS, WORDS


class Output(NamedTuple):
    """An output: its name, its dtype as the command line spells it, and whether it is an argument changed in place. A
    shape, where it is known, is held against what the reference returns."""

    name: str
    dtype: str
    in_place: bool = False
    shape: Optional[tuple[int, ...]] = None

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


def check(outputs: Sequence[Output]) -> None:
    for output in outputs:
        if output.dtype not in WORDS:
            raise ValueError(f"output {output.name}: dtype '{output.dtype}' is none of {' '.join(WORDS)}")
    if not outputs:
        raise ValueError("an op needs an output")


def collect(returned: Any, after: dict[str, Any], outputs: Sequence[Output], to_numpy: Any) -> list[np.ndarray]:
    """The outputs in order, as NumPy arrays. `after`: the arguments after the call."""
    found = _by_name(returned, outputs)
    for output in outputs:
        if output.name not in found and output.in_place:
            if output.name not in after:
                raise BadReference(f"{output.name} is changed in place, but the reference has no such argument")
            found[output.name] = after[output.name]
    missing = [o.name for o in outputs if o.name not in found]
    if missing:
        raise BadReference(f"the reference returns no {', '.join(missing)}")
    return [_checked(to_numpy(found[o.name]), o) for o in outputs]


def _by_name(returned: Any, outputs: Sequence[Output]) -> dict[str, Any]:
    if returned is None:
        return {}
    names = [o.name for o in outputs]
    if isinstance(returned, dict):
        unknown = [str(name) for name in returned if name not in names]
        if unknown:
            raise BadReference(f"the reference returns {', '.join(unknown)}; the outputs are {', '.join(names)}")
        return dict(returned)
    values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    new = [o.name for o in outputs if not o.in_place]
    for expected in (names, new):
        if len(values) == len(expected):
            return dict(zip(expected, values))
    raise BadReference(f"the reference returns {len(values)} outputs instead of {len(names)} ({', '.join(names)})")


def _checked(value: Any, output: Output) -> np.ndarray:
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        raise BadReference(f"the reference returns {type(value).__name__} for {output.name} instead of an array")
    value = np.asarray(value)
    if output.shape is not None and value.shape != tuple(output.shape):
        if math.prod(value.shape) != 1 or math.prod(output.shape) != 1:
            expected = list(output.shape)
            raise BadReference(
                f"the reference returns {output.name} of shape {list(value.shape)} instead of {expected}"
            )
        value = value.reshape(output.shape)
    if value.dtype.kind not in "fiub":
        raise BadReference(f"the reference returns {value.dtype} for {output.name}; outputs are real numbers")
    if output.is_float and value.dtype.kind == "f" and value.dtype.itemsize < 8:
        raise BadReference(f"the reference returns {value.dtype} for {output.name}; it must compute in float64")
    if not output.is_float and value.dtype.kind == "f" and not np.array_equal(value, np.round(value)):
        raise BadReference(f"the reference returns fractions for {output.name}, which is {output.dtype}")
    return np.ascontiguousarray(value if value.dtype.kind == "f" else value.astype(np.float64)).reshape(value.shape)
