"""Whether an array is what it should be, by the rule that the gate holds kernels to."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from . import _arrays, _engine

Inputs = Union[Mapping[str, Any], Sequence[Any]]


@dataclass(frozen=True, repr=False)
class Closeness:
    """What `kmark.close` found: true or false, and one line when printed. `index`, `got`, `expected` and `allowed` are
    those of the worst element, `ratio` its error as a multiple of what is allowed there, `beyond` how many elements are
    off by more. `grade` of a right output: "tight" (rounded once) or "loose" (rounded on the way as well). `how` says
    where the bound comes from. Of several outputs these are the worst one's; `outputs` has all by name."""

    ok: bool
    name: str
    grade: Optional[str]
    elements: int
    beyond: int
    ratio: float
    index: Optional[tuple[int, ...]]
    got: Optional[float]
    expected: Optional[float]
    allowed: Optional[float]
    problem: str
    how: str
    outputs: Mapping[str, Closeness]

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        how = f" (bound: {self.how})"
        if not self.ok:
            return f"wrong: {self.problem}{how}"
        if self.index is None or self.got is None:
            return f"close: nothing was asked of the {self.name}{how}"
        at = f"{self.name}[{', '.join(map(str, self.index))}]" if self.index else self.name
        return (
            f"close, {self.grade}: {at}, the worst of {self.elements}, is {self.got:.6e}, expected "
            f"{self.expected:.6e} ± {self.allowed:.1e}; {self.ratio:.2g} of what is allowed{how}"
        )

    def __repr__(self) -> str:
        return f"<kmark.Closeness {self}>"


def close(
    got: Any,
    expected: Any,
    inputs: Optional[Inputs] = None,
    *,
    slack: Any = None,
    dtype: Optional[str] = None,
    grade: str = "loose",
) -> Closeness:
    """Is `got` a right result? Every element is judged by itself: it may be off by half a spacing of its dtype at the
    expected value, plus `slack`. There is no tolerance to choose. False, with the worst element, is an answer, not an
    exception.

        print(kmark.close(y, reference, {"x": x, "w": w}))      # the bound is derived from the reference
        assert kmark.close(y, y64, slack=1e-6 * abs(x64).sum(1))    # or you state it

    - `expected`: a function that computes the result, called with `inputs` in fp64 and, for the bound, several times
      with its intermediates rounded at random; or the result itself, in fp64.
    - `inputs`: the function's arguments, by name or in order; arrays of NumPy or torch.
    - `slack`: how far off a right element may be before its last rounding, absolute: one number or an array. Without
      it an array must be met to the last rounding. `inf` says that anything may stand there.
    - `dtype`: what `got` is rounded to, where its own dtype does not say it: "bf16", "f16", "f32", "f64", "f8e4m3",
      "f8e5m2". Whole numbers must be equal.
    - `grade`: "tight" accepts what was computed in the accumulator's precision and rounded once, "loose" also what was
      rounded on the way (a derived bound knows both).

    Several outputs are a dict or a tuple, as the reference returns them."""
    if grade not in ("tight", "loose"):
        raise ValueError(f"grade: '{grade}' is neither tight nor loose")
    parts = _named(got, "got")
    if callable(expected):
        if slack is not None:
            raise TypeError("close: the bound of a reference function is derived; give its result to state slack=")
        wanted, how = _derived(expected, _arguments(expected, inputs), parts, dtype, grade), ""
    else:
        if inputs is not None:
            raise TypeError("close: inputs= belong to a reference function; a bound for a result is given as slack=")
        wanted, how = _stated(expected, slack, parts), "given" if slack is not None else "the last rounding alone"
    found = {}
    for name, array in parts.items():
        expect, bounds, said = wanted[name]
        # What was derived is rarely reached; of what somebody states, all may be used up.
        found[name] = _one(name, array, expect, bounds, dtype, how or said, None if callable(expected) else 1.0)
    worst = max(found.values(), key=lambda c: (not c.ok, c.ratio))
    return worst if len(found) == 1 else Closeness(**{**vars(worst), "outputs": found})


def _named(value: Any, what: str) -> dict[str, Any]:
    """Outputs by name; one alone is `y`."""
    if isinstance(value, Mapping):
        parts = {str(name): one for name, one in value.items()}
    elif isinstance(value, (tuple, list)) and value and all(_arrays.is_array(one) for one in value):
        parts = {f"y{i}": one for i, one in enumerate(value)}
    else:
        parts = {"y": value}
    for name, one in parts.items():
        if not _arrays.is_array(one):
            import numpy

            if not isinstance(one, (int, float, list)):
                raise TypeError(f"{what}: an array of NumPy or torch is judged, not {type(one).__name__}")
            parts[name] = numpy.asarray(one)
    if not parts:
        raise TypeError(f"{what}: there is no output to judge")
    return parts


def _same_names(parts: Mapping[str, Any], others: Mapping[str, Any], what: str) -> None:
    if set(parts) != set(others):
        raise ValueError(f"{what}: outputs are {', '.join(others)}, but {', '.join(parts)} were got")


def _stated(expected: Any, slack: Any, parts: Mapping[str, Any]) -> dict[str, tuple[Any, list[Any], str]]:
    values = _named(expected, "expected")
    _same_names(parts, values, "expected")
    slacks = slack if isinstance(slack, Mapping) else dict.fromkeys(parts, slack)
    _same_names(parts, slacks, "slack")
    return {
        name: (value, [0.0 if slacks[name] is None else slacks[name]], "") for name, value in values.items()
    }  # fmt: skip


def _arguments(reference: Callable[..., Any], inputs: Optional[Inputs]) -> dict[str, Any]:
    if inputs is None:
        raise TypeError("close: a reference function needs inputs=, its arguments by name or in order")
    if isinstance(inputs, Mapping):
        return dict(inputs)
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    try:
        return dict(inspect.signature(reference).bind(*given).arguments)
    except TypeError as error:
        raise TypeError(f"close: inputs do not fit the reference: {error}") from None


def _derived(
    reference: Callable[..., Any],
    arguments: Mapping[str, Any],
    parts: Mapping[str, Any],
    dtype: Optional[str],
    grade: str,
) -> dict[str, tuple[Any, list[Any], str]]:
    from . import bounds

    library = "torch" if any(_arrays.is_torch(value) for value in arguments.values()) else "numpy"
    outputs = [bounds.Output(name, dtype or _arrays.elements(one, None, name)[1]) for name, one in parts.items()]
    wide = {name: _arrays.widened(value) for name, value in arguments.items()}
    truth = bounds.truth(reference, wide, outputs, library=library)
    slacks = [truth.slack(each) for each in (("tight", "loose") if grade == "loose" else ("tight",))]
    return {name: (truth.expect[i], [s[i] for s in slacks], truth.how) for i, name in enumerate(parts)}


def _one(
    name: str, got: Any, expect: Any, bounds: Sequence[Any], dtype: Optional[str], how: str, share: Optional[float]
) -> Closeness:
    array, held = _arrays.elements(got, dtype, "got")
    wanted = _arrays.as_f64(expect, "expected")
    shape, other = _arrays.shape_of(array), _arrays.shape_of(wanted)
    if shape != other:
        problem = f"{name} has shape {list(shape)}, expected {list(other)}"
        return Closeness(False, name, None, 0, 0, float("inf"), None, None, None, None, problem, how, {})
    slacks = [_slack(bound, wanted, shape) for bound in bounds]
    said = _engine.judge(
        array, held, wanted, slacks[0], loose=slacks[1] if len(slacks) > 1 else None, shape=list(shape), name=name,
        rounds_to=dtype, rms_share=share,
    )  # fmt: skip
    return Closeness(
        said["ok"], name, said["grade"], said["elements"], said["beyond"], said["ratio"],
        None if said["index"] is None else _place(said["index"], shape), said["got"], said["expected"],
        said["allowed"], "; ".join(said["problems"]), how, {},
    )  # fmt: skip


def _slack(slack: Any, like: Any, shape: tuple[int, ...]) -> Any:
    """One number, or one for each element."""
    if isinstance(slack, (int, float)):
        return float(slack)
    made = _arrays.as_f64(slack, "slack")
    if _arrays.shape_of(made) == shape:
        return made
    try:
        if _arrays.is_torch(made):
            return made.broadcast_to(shape).contiguous()
        import numpy

        return numpy.ascontiguousarray(numpy.broadcast_to(made, shape))
    except (ValueError, RuntimeError):
        raise ValueError(f"slack has shape {list(made.shape)}, the output {list(shape)}") from None


def _place(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    place = []
    for length in reversed(shape):
        index, at = divmod(index, length)
        place.append(at)
    return tuple(reversed(place))
