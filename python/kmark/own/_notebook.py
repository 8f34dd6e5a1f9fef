"""An op in a notebook: functions that live in this process are judged and timed here."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from .. import _engine
from ..registry import Case, adapter_of, torch_dtype
from ._judge import Answer, tensors_of
from ._launch import outputs_of
from ._op import Function, Op, number

SEED = 42
_NUMPY = {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4"}


class Judged:
    """The gate's word on a function; true if it is right."""

    def __init__(self, case: str, name: str, found: Mapping[str, Any]) -> None:
        self.case, self.name, self.found = case, name, dict(found)
        self.problems: list[str] = list(found["problems"])
        self.grade: Optional[str] = found.get("grade")

    def __bool__(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        worst = max((r["worst"] for r in self.found["regions"]), default=0.0)
        bound = self.found.get("bound") or {}
        how = f"; {bound['how']}" if bound else ""
        if self:
            seen = f"{self.found['elements']} elements, the worst at {worst:.2f} of what is allowed{how}"
            return f"{self.name}: right ({self.grade}) on {self.case}: {seen}"
        return f"{self.name}: wrong on {self.case}: {'; '.join(self.problems)}{how}"


class _Bench:
    """A case of the op in this process: inputs by seed, as arrays of the library."""

    def __init__(self, op: Op, config: Optional[str], dtype: Optional[str], values: Mapping[str, Any]) -> None:
        self.op = op
        self.description = json.dumps(op.describe())
        word = dtype or op.dtypes[0]
        axes = {name: int(values[name]) for name in op.axes if name in values}
        if not axes and (config or op.configs):
            sizes = (config or op.configs[0]).split("x")
            if len(sizes) != len(op.axes):
                raise ValueError(f"case '{'x'.join(sizes)}': {op.name} wants {'x'.join(op.axes)}")
            axes = {name: int(size) for name, size in zip(op.axes, sizes)}
        attrs = [(n, _word(v)) for n, v in values.items() if n not in op.axes]
        self.text, self.seeds = _engine.own_case(self.description, word, list(axes.items()), attrs, SEED)

    def case(self, seed: int) -> tuple[str, Case]:
        text = json.dumps({**json.loads(self.text), "seed": seed})
        return text, Case(text, "cpu")

    def arrays(self, case: Case, inputs: Mapping[str, Any], library: str) -> dict[str, Any]:
        """Inputs in their dtype, and outputs that nobody has written."""
        found = {}
        for t in self.op.tensors:
            dtype = t.dtype or case.dtype
            if t.role != "out":
                raw, shape, _ = inputs[t.name]
                values = np.frombuffer(raw, "<f8").reshape(shape)
                found[t.name] = _as(values, dtype, library)
        return found


def _as(values: Any, dtype: str, library: str) -> Any:
    if library == "torch":
        import torch

        return torch.from_numpy(values.copy()).to(torch_dtype(dtype))
    if dtype not in _NUMPY:
        raise ValueError(f"NumPy has no {dtype}; choose another dtype")
    return values.astype(_NUMPY[dtype])


def _bytes(value: Any, dtype: str, library: str) -> bytes:
    if library == "torch":
        import torch

        raw = value.detach().to(torch_dtype(dtype)).contiguous().cpu().view(torch.uint8)
        return bytes(raw.numpy().tobytes())
    return np.ascontiguousarray(value, dtype=_NUMPY[dtype]).tobytes()


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else str(value)


class _Tensors:
    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.__dict__.update(arrays)


class _Bound:
    """A function on one set of values, and what is right there."""

    def __init__(self, op: Op, function: Function, text: str, case: Case, bench: _Bench) -> None:
        self.op, self.text, self.case = op, text, case
        known = [*op.impls.values(), *op.mutants.values()]
        made = next((r.adapter for r in known if r.function is function), None)
        adapter = made or adapter_of(function, op.name, _name(function), op.library)
        self.library = adapter.arrays
        inputs = tensors_of(op, text)
        self.answer = Answer(op, case, inputs, "cpu")
        self.arrays = bench.arrays(case, inputs, self.library)
        self.pristine = {t.name: self.arrays[t.name] + 0 for t in op.tensors if t.role == "inout"}
        self.launch = adapter.bind(case, _Tensors(self.arrays))

    def restore(self) -> None:
        for name, before in self.pristine.items():
            self.arrays[name][...] = before

    def judge(self, returned: Any) -> dict[str, Any]:
        """The gate's word on what a call gave."""
        outputs, raw = outputs_of(self.op, returned, self.arrays), {}
        for t, expect in zip(self.op.outputs, self.answer.truth.expect):
            shape = tuple(outputs[t.name].shape)
            if shape != expect.shape:
                return {"regions": [], "elements": 0, "problems": [f"{t.name} has shape {shape}, not {expect.shape}"]}
            raw[t.name] = _bytes(outputs[t.name], t.dtype or self.case.dtype, self.library)
        found: dict[str, Any] = json.loads(_engine.own_judge(self.text, raw, self.answer))
        return found


def _name(function: Function) -> str:
    return str(getattr(function, "__name__", "function"))


def verify(
    op: Op, function: Function, config: Optional[str], dtype: Optional[str], values: Mapping[str, Any]
) -> Judged:
    """On every set of values that a run would check."""
    bench = _Bench(op, config, dtype, values)
    total: dict[str, Any] = {"regions": [], "elements": 0, "problems": []}
    for seed in bench.seeds:
        bound = _Bound(op, function, *bench.case(seed), bench)
        found = bound.judge(bound.launch())
        total["elements"] += found["elements"]
        total["regions"] += found["regions"]
        total["bound"] = found.get("bound")
        total["grade"] = max(total.get("grade"), found.get("grade"), key=[None, "tight", "loose"].index)
        total["problems"] += found["problems"]
        if found["problems"]:
            break
    return Judged(json.loads(bench.text)["id"], _name(function), total)


def run(
    op: Op, functions: Sequence[Function], config: Optional[str], dtype: Optional[str], options: dict[str, Any]
) -> Any:
    """Verified first; whoever is wrong is not timed. What timed calls leave is judged again."""
    from .._work import Work
    from ..harness import Harness

    chosen = list(functions) or [r.function for r in op.impls.values()]
    values = {n: options.pop(n) for n in [*op.axes, *op.attrs] if n in options}
    harness = Harness(**options)
    bench, works, wrong = _Bench(op, config, dtype, values), {}, []
    for function in chosen:
        judged = verify(op, function, config, dtype, values)
        if not judged:
            wrong.append((judged.name, str(judged)))
            continue
        bound = _Bound(op, function, *bench.case(bench.seeds[0]), bench)
        works[judged.name] = Work(
            bound.launch,
            check=lambda returned, bound=bound: not bound.judge(returned)["problems"],
            setup=bound.restore if bound.pristine else None,
        )
    if not works:
        raise ValueError("; ".join(text for _, text in wrong) or f"{op.name} has no functions to run")
    results = harness.versus(works)
    results.skipped = wrong
    return results
