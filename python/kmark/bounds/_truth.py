"""The truth about a case of an op, from its reference alone: exact runs for the expectation, random rounding for the
bound. Knows no library; `Caller` runs the reference in one."""

from __future__ import annotations

import random
from typing import Any, NamedTuple, Optional, Protocol, Sequence

import numpy as np

from . import _blocks
from ._errors import BadReference
from ._formats import FLOATS, sixteen_bits, spacing
from ._model import DEVIATIONS, Model, accumulator
from ._outputs import Output

# Slack beyond this part of the RMS of what is expected says nothing any more.
ILL_CONDITIONED = 0.01


class Ran(NamedTuple):
    """Outputs of one run, operations without a rule, and ways by which values left the library."""

    outputs: list[np.ndarray]
    unknown: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()


class Caller(Protocol):
    """A reference in its library. `wide`: whether exact runs are more precise than fp64 when asked to be."""

    words: str
    wide: bool

    def run(self, model: Model, seed: list[int], wide: bool, perturb: bool) -> Ran: ...

    def random_state(self) -> Any: ...


class Truth:
    """What a case's outputs should be, and how far an honest kernel may be off.

    `expect`: fp64, as the reference computes it. `free`: elements about which runs disagree in kind (indices, NaN,
    infinities): nothing can be demanded there. `how` the bound was found; `width`: its median over half a spacing of
    the output's dtype; `blind`: what it cannot see, one line each."""

    def __init__(self, caller: Caller, outputs: Sequence[Output], runs: int, seed: int, matmul: Optional[str]) -> None:
        self._caller, self._outputs, self._runs, self._seed, self._matmul = caller, outputs, runs, seed, matmul
        self.blind: list[str] = []
        kinds = {accumulator(o.dtype) for o in outputs if o.is_float} or {"f32"}
        self._exact = {kind: self._expectation(kind) for kind in sorted(kinds)}
        first = next(iter(self._exact.values()))
        self._perturb = bool(first.lost)
        self._slack: dict[str, list[np.ndarray]] = {}
        self.free: list[Optional[np.ndarray]] = []
        self.expect = [self._exact[self._kind(o)].outputs[i].astype(np.float64) for i, o in enumerate(outputs)]
        self._slack["tight"] = self._tight()
        self._describe(first)

    def slack(self, grade: str) -> list[np.ndarray]:
        """How far each element may be off before its last rounding; infinite where it is free. The loose grade, for
        16-bit outputs, includes the tight one; its runs are made when it is first asked for."""
        if grade not in DEVIATIONS:
            raise ValueError(f"grade '{grade}' is neither tight nor loose")
        if grade not in self._slack:
            self._slack[grade] = self._loose()
        return self._slack[grade]

    def _kind(self, output: Output) -> str:
        """The accumulator that the output comes from; indices come from that of the other outputs."""
        return accumulator(output.dtype) if output.is_float else next(iter(self._exact))

    def _expectation(self, kind: str) -> Ran:
        """Two exact runs, which must agree to the bit."""
        wide = kind == "f64" and self._caller.wide
        before = self._caller.random_state(), random.getstate()
        try:
            first = self._caller.run(Model(), [self._seed, 0], wide, False)
        except BadReference:
            if not wide:
                raise
            self._caller.wide = wide = False  # a function that knows nothing wider than fp64
            first = self._caller.run(Model(), [self._seed, 0], wide, False)
        if repr(before) != repr((self._caller.random_state(), random.getstate())):
            raise BadReference("the reference uses random numbers; make them an input of the op")
        second = self._caller.run(Model(), [self._seed, 0], wide, False)
        for output, a, b in zip(self._outputs, first.outputs, second.outputs):
            if a.shape != b.shape or not np.array_equal(a, b, equal_nan=True):
                raise BadReference(f"the reference is not deterministic: two runs differ in {output.name}")
        if kind == "f64" and not wide:
            self.blind.append("f64 outputs: the expectation is computed in fp64 itself, and the bound is twice as wide")
        return first

    def _model(self, kind: str, store: Optional[str] = None) -> tuple[Model, bool]:
        wide = kind == "f64" and self._caller.wide
        # Where the expectation itself is only fp64, the bound must cover its roundings, too.
        unit = FLOATS[kind].unit * (2.0 if kind == "f64" and not wide else 1.0)
        tiny = 2.0 ** FLOATS[kind].least
        return Model(unit, tiny, store, None if kind == "f64" else self._matmul), wide

    def _spread(self, kind: str, store: Optional[str]) -> tuple[list[np.ndarray], list[np.ndarray], set[str]]:
        """RMS of the outputs' deviation over the runs, which elements differ in kind, and operations without a rule."""
        model, wide = self._model(kind, store)
        exact = self._exact[kind]
        spread = [np.zeros(y.shape) for y in exact.outputs]
        differ = [np.zeros(y.shape, dtype=bool) for y in exact.outputs]
        unknown: set[str] = set()
        for k in range(self._runs):
            ran = self._caller.run(model, [self._seed, 1 + k, len(store or "")], wide, self._perturb)
            unknown |= ran.unknown
            for output, y, e, total, other in zip(self._outputs, ran.outputs, exact.outputs, spread, differ):
                if y.shape != e.shape:
                    raise BadReference(f"the shape of {output.name} depends on how the reference rounds")
                _blocks.over(_add, *(np.atleast_1d(a) for a in (total, other, y, e)), output)
        return [total / self._runs**0.5 for total in spread], differ, unknown

    def _tight(self) -> list[np.ndarray]:
        slack: list[np.ndarray] = []
        found = {kind: self._spread(kind, None) for kind in self._exact}
        for i, output in enumerate(self._outputs):
            kind = self._kind(output)
            deviation, differ = found[kind][0][i], found[kind][1][i]
            bound = DEVIATIONS["tight"] * deviation if output.is_float else np.zeros(differ.shape)
            if output.dtype == "f64":
                # The expectation was rounded to fp64, unless it is zero indeed.
                bound = bound + np.where(self._exact[kind].outputs[i] != 0, spacing(self.expect[i], "f64"), 0.0)
            bound[differ] = np.inf
            self.free.append(differ if differ.any() else None)
            slack.append(bound)
        unknown = set().union(*(names for _, _, names in found.values()))
        for name in sorted(unknown):
            self.blind.append(f"{name} has no rule of its own: its inputs and its result were perturbed instead")
        return slack

    def _loose(self) -> list[np.ndarray]:
        store = sixteen_bits([o.dtype for o in self._outputs])
        tight = self._slack["tight"]
        if store is None or "f32" not in self._exact:
            return tight
        deviation, differ, _ = self._spread("f32", store)
        loose = []
        for output, bound, sigma, other in zip(self._outputs, tight, deviation, differ):
            if output.dtype not in ("bf16", "f16"):
                loose.append(bound)
                continue
            wide = np.maximum(bound, DEVIATIONS["loose"] * sigma)
            wide[other] = np.inf
            loose.append(wide)
        return loose

    def _describe(self, first: Ran) -> None:
        what = "inputs perturbed at random" if self._perturb else f"random rounding of {self._caller.words}"
        self.how = f"{what}, {self._runs} runs"
        if self._perturb:
            by = ", ".join(sorted(first.lost))
            self.blind.append(f"values leave the library by {by}: what is computed with them is not rounded at random")
        self.width: list[float] = []
        self.ill_conditioned = False
        for output, expect, slack in zip(self._outputs, self.expect, self._slack["tight"]):
            known = np.isfinite(slack) & np.isfinite(expect)
            self._describe_output(output, expect, slack, known)

    def _describe_output(self, output: Output, expect: np.ndarray, slack: np.ndarray, known: np.ndarray) -> None:
        free = int(np.count_nonzero(np.isinf(slack)))
        if free:
            self.blind.append(
                f"{output.name}: {free} of {slack.size} elements are free, since runs disagree about them"
            )
        nan = int(np.count_nonzero(np.isnan(expect)))
        if nan:
            self.blind.append(f"{output.name}: {nan} of {slack.size} elements are NaN in the reference itself")
        if not output.is_float or not known.any():
            self.width.append(0.0)
            return
        with np.errstate(all="ignore"):
            width = slack[known] / (0.5 * spacing(expect[known], output.dtype))
        self.width.append(float(np.median(np.nan_to_num(width))))
        rms = float(np.sqrt(np.mean(expect[known] ** 2)))
        self.ill_conditioned |= float(np.median(slack[known])) > ILL_CONDITIONED * rms > 0


def _add(_: int, total: np.ndarray, other: np.ndarray, y: np.ndarray, e: np.ndarray, output: Output) -> None:
    """Adds a run to the root of the sum of squares, and to what differs in kind."""
    off = (y - e).astype(np.float64, copy=False)
    if not np.isfinite(off).all():
        both = np.isfinite(y) & np.isfinite(e)
        other |= ~both & ~((y == e) | (np.isnan(y) & np.isnan(e)))
        off[~both] = 0.0
    if not output.is_float:
        other |= y != e
    if output.dtype == "f64":
        np.hypot(total, off, out=total)  # squares would underflow
    else:
        np.sqrt(total * total + off * off, out=total)
