"""What is right for a case: the reference in fp64 and the slack around it, kept for the next impl that is judged."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from typing import Any, Optional

import numpy as np

from .. import _engine, bounds
from ..registry import Case
from ._op import Op

# Bytes of answers that are kept.
KEPT = 1 << 30


class Answer:
    """What the engine asks of a truth: parts by grade, and how the bound was found."""

    def __init__(self, op: Op, case: Case, tensors: dict[str, Any], device: str, runs: int = 16) -> None:
        self.op, self.case, self.device = op, case, device
        self.names = [t.name for t in op.outputs]
        outputs = [bounds.Output(t.name, t.dtype or case.dtype, t.role == "inout") for t in op.outputs]
        arrays = {t.name: array(*tensors[t.name]) for t in op.tensors if t.role != "out"}
        self.arguments = arguments = op.arguments(case, arrays)
        runs = runs if op.bound is None else 2
        operands = _operands(op, case)
        self.truth = bounds.truth(
            op.reference, arguments, outputs, library=op.library, device=device, runs=runs, matmul=operands
        )
        for name, expect in zip(self.names, self.truth.expect):
            shape = tuple(tensors[name][1])
            if expect.shape != shape:
                raise bounds.BadReference(f"the reference gives {name} the shape {expect.shape}, not {shape}")
        self.stated: Optional[list[np.ndarray]] = None
        if op.bound is not None:
            self.stated = _stated(op, self.truth.expect, arguments)
        self.bytes = sum(e.nbytes for e in self.truth.expect) * 3 + sum(x.nbytes for x in arrays.values())
        self.has_theirs = bool(op.collection)

    def parts(self, grade: str) -> list[tuple[str, bytes, bytes]]:
        slack = self.stated if self.stated is not None else self.truth.slack(grade)
        return [
            (name, np.ascontiguousarray(e, "<f8").tobytes(), np.ascontiguousarray(s, "<f8").tobytes())
            for name, e, s in zip(self.names, self.truth.expect, slack)
        ]

    def theirs(self, outputs: dict[str, Any]) -> tuple[str, bool, str, dict[str, float]]:
        """What the check of the problem's own collection says of outputs, which are like inputs."""
        arrays = {name: array(*values) for name, values in outputs.items()}
        ok, why, figures = self.op.theirs(self.case, self.arguments, arrays, self.device)  # type: ignore[attr-defined]
        return self.op.collection, ok, why, {n: min(v, 1e300) if v == v else 1e300 for n, v in figures.items()}

    def told(self) -> tuple[str, float, bool, list[str]]:
        if self.stated is not None:
            return "stated by the op", 0.0, False, []
        width = max(self.truth.width, default=0.0)
        return self.truth.how, min(width, 1e300), self.truth.ill_conditioned, list(self.truth.blind)


def _operands(op: Op, case: Case) -> str:
    """The narrowest float type among the inputs: what a kernel would multiply."""
    widths = {"f8e4m3": 1, "f8e5m2": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
    words = [t.dtype or case.dtype for t in op.tensors if t.role != "out" and t.is_float]
    return min(words, key=lambda w: widths[w], default=case.dtype)


def _stated(op: Op, expect: list[np.ndarray], arguments: dict[str, Any]) -> list[np.ndarray]:
    assert op.bound is not None
    given = op.bound(expect[0] if len(expect) == 1 else expect, **arguments)
    slacks = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(slacks) != len(expect):
        raise bounds.BadReference(f"bound gives slack for {len(slacks)} outputs; there are {len(expect)}")
    return [np.broadcast_to(np.asarray(s, dtype=np.float64), e.shape) for s, e in zip(slacks, expect)]


def array(raw: bytes, shape: list[int], dtype: str) -> np.ndarray:
    """An input as the reference gets it: fp64, or whole numbers."""
    values = np.frombuffer(raw, "<f8").reshape(shape)
    return values.astype(np.int64) if dtype.startswith("i") else values.copy()


class Maker:
    """Makes inputs in processes that define ops themselves: `KNOWN` has them by name."""

    def make(self, text: str, tensor: str) -> bytes:
        case = Case(text, "cpu")
        return made(KNOWN[case.op], case, tensor)


KNOWN: dict[str, Op] = {}


def tensors_of(op: Op, text: str) -> dict[str, Any]:
    """The tensors of a case, in a process that defines the op."""
    KNOWN[op.name] = op
    for t in op.tensors:
        if t.fill == "made":
            made(op, Case(text, "cpu"), t.name)  # says what is wrong, if anything is
    return _engine.own_inputs(text, Maker())


class Answers:
    """Of one process; impls of a case are judged on the same values one after the other."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], Answer] = OrderedDict()

    def of(self, op: Op, case: Case, inputs: dict[str, Any], device: str) -> Answer:
        key = (case.id, case.seed)
        if key not in self._known:
            self._known[key] = Answer(op, case, inputs, device)
            while len(self._known) > 1 and sum(a.bytes for a in self._known.values()) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]


def made(op: Op, case: Case, tensor: str) -> bytes:
    """Values of an input that the op's `inputs` makes, as fp64."""
    if op.inputs is None:
        raise bounds.BadReference(f"{tensor} is made by inputs=, which is missing")
    rng = np.random.default_rng(case.seed % (1 << 63))
    sizes = {**case.axes, **{name: op.value(case, name) for name in op.attrs}}
    found = op.inputs(rng, **_taken(op.inputs, sizes))
    if not isinstance(found, dict) or tensor not in found:
        raise bounds.BadReference(f"op {op.name}: inputs= returns no {tensor}; it returns a dict of arrays by name")
    values = found[tensor]
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def _taken(function: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Those of the values that the function has parameters for."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return values
    return {name: value for name, value in values.items() if name in parameters}
