"""A flashinfer-bench Definition as an op: its axes and tensors, its reference, the workloads that lie with it,
solutions in Python as impls. SOL-ExecBench's definitions are read as well, as far as they are the same."""

from __future__ import annotations

import json
import linecache
import pathlib
import re
import types
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np

from ..own._op import number
from ..own._words import BadOp
from ..registry import Adapter, Case, Launch
from . import _solution
from ._problem import AXIS, Problem, Verdict, dtype_word, fill, named, op_name, size
from ._workloads import Workload, find, workloads

# The rule of flashinfer-bench: an element is off if it is by both.
ABSOLUTE = RELATIVE = 1e-2
# Of these, so many elements must not be off.
LENIENT = {"moe_fp8_block_scale": 0.95}
# What a reference computes, by its text: it may not run before there are values.
PRODUCTS = re.compile(r"\b(\w*matmul|einsum|linear|conv\dd|\w*mm|\w*dot\w*)\(|\w\s*@\s*\w")
SOFTMAX = re.compile(r"softmax|logsumexp|\bexp\(")
# Whole numbers that are drawn at random lie below this, on both sides of zero.
WHOLE = 1024
# The extra axis that says which of the workloads a case is, where sizes do not.
WHICH = "workload"


def load(path: pathlib.Path) -> Problem:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadOp(f"no JSON: {error}") from None
    missing = [key for key in ("name", "axes", "inputs", "outputs", "reference") if not raw.get(key)]
    if missing:
        raise BadOp(f"a Definition has a '{missing[0]}', this has not")
    if raw.get("op_type") == "sampling":
        raise BadOp("it draws samples at random: there is no one right answer")
    if raw.get("custom_inputs_entrypoint"):
        raise BadOp("its inputs are made by code of its own (custom_inputs_entrypoint), which is not read")
    return Definition(raw, path)


class Definition(Problem):
    collection = "flashinfer-bench"

    def __init__(self, raw: Mapping[str, Any], path: pathlib.Path) -> None:
        self.raw, used = raw, set(_axes(raw["axes"]))
        used.add(WHICH)
        where = find(path, str(raw.get("op_type", "")), str(raw["name"]))
        self.workloads = workloads(where, raw, path) if where else []
        self.order = {name: named(name, used) for name in raw["inputs"]}
        self.scalars = [name for name, spec in raw["inputs"].items() if spec.get("shape") is None]
        self.returned = {name: named(name, used) for name in raw["outputs"]}
        tensors = [self._tensor(name) for name in raw["inputs"] if name not in self.scalars]
        outputs = [f"{word}: {_words(raw, 'outputs', name)}" for name, word in self.returned.items()]
        if not tensors:
            raise BadOp("none of its inputs is a tensor")
        self.by_workload = _differ(self.workloads, self.scalars)
        axes = [name for name, axis in raw["axes"].items() if axis.get("type") == "var"]
        axes += [WHICH] if self.by_workload else []
        fixed = {} if self.by_workload else self._scalars(self.workloads[0] if self.workloads else None)
        parameters = {self.order[name]: value for name, value in fixed.items()}
        parameters |= {WHICH: AXIS} if self.by_workload else {}
        self.run, library = _reference(raw, path)
        kinds = [dtype_word(spec["dtype"], name) for name, spec in raw["outputs"].items()]
        super().__init__(
            self._call, tensors, outputs, parameters,
            files=[path, *([where] if where else [])], name=op_name(str(raw["name"])),
            about=str(raw.get("description") or f"the definition {raw['name']}").split("\n", 1)[0],
            axes=axes, dtypes=next((k for k in kinds if k[0] in "fb"), kinds[0]), configs=self._configs(axes),
            inputs=self._made, library=library,
        )  # fmt: skip

    def _tensor(self, name: str) -> str:
        words = _words(self.raw, "inputs", name)
        whole = dtype_word(self.raw["inputs"][name]["dtype"], name).startswith("i")
        given = any(w.inputs.get(name, {}).get("type") == "safetensors" for w in self.workloads)
        text = str(self.raw["reference"])
        drawn = fill(bool(PRODUCTS.search(text)), bool(SOFTMAX.search(text)))
        several = len(self.raw["inputs"][name]["shape"]) > 1
        return f"{self.order[name]}: {words}{' made' if whole or given else drawn if several else ''}"

    def _scalars(self, workload: Optional[Workload]) -> dict[str, Any]:
        """Values of scalar inputs, as the types that their dtypes say."""
        found = {}
        for name in self.scalars:
            given = workload.inputs.get(name, {}).get("value") if workload else None
            if given is None:
                raise BadOp(f"{name} is a scalar, and no workload says its value")
            dtype = str(self.raw["inputs"][name].get("dtype"))
            kind = bool if dtype == "bool" else int if dtype.startswith("int") else float
            found[name] = kind(given)
        return found

    def _configs(self, axes: Sequence[str]) -> list[str]:
        found = []
        for i, workload in enumerate(self.workloads):
            sizes = {**workload.axes, WHICH: i + 1}
            found.append("x".join(str(sizes[axis]) for axis in axes))
        return list(dict.fromkeys(found)) if axes else []

    def _workload(self, sizes: Mapping[str, Any]) -> Optional[Workload]:
        if not self.by_workload:
            return self.workloads[0] if self.workloads else None
        which = int(sizes[WHICH])
        if not 0 < which <= len(self.workloads):
            raise BadOp(f"there is no workload {which}; there are {len(self.workloads)}")
        return self.workloads[which - 1]

    def _values(self, given: Mapping[str, Any]) -> list[Any]:
        """Inputs in the order of the definition."""
        told = self._scalars(self._workload(given)) if self.by_workload else {}
        return [told[name] if name in told else given[word] for name, word in self.order.items()]

    def _call(self, given: dict[str, Any]) -> Any:
        return self._outputs(self.run(*self._values(given)))

    def _outputs(self, returned: Any) -> dict[str, Any]:
        names = list(self.returned)
        if isinstance(returned, dict):
            found = dict(returned)
        else:
            found = dict(zip(names, returned if isinstance(returned, (tuple, list)) else (returned,)))
        lost = [name for name in names if found.get(name) is None]
        if lost:
            raise TypeError(f"it returns no {lost[0]}")
        return {word: found[name] for name, word in self.returned.items()}

    def _made(self, rng: Any, **sizes: Any) -> dict[str, Any]:
        """What no fill of ours draws: whole numbers, and what workloads keep in files."""
        workload, found = self._workload(sizes), {}
        for t in self.tensors:
            if t.fill != "made":
                continue
            name = next(n for n, word in self.order.items() if word == t.name)
            shape = tuple(size(dim, sizes) for dim in t.dims)
            spec = workload.inputs.get(name, {}) if workload else {}
            if spec.get("type") == "safetensors":
                assert workload is not None
                found[t.name] = workload.read(name, shape)
            elif t.is_float:
                found[t.name] = rng.standard_normal(shape)
            else:
                found[t.name] = rng.integers(-WHOLE, WHOLE, size=shape)
        return found

    def theirs(
        self, case: Case, arguments: Mapping[str, Any], outputs: Mapping[str, np.ndarray], device: str
    ) -> Verdict:
        arrays = {n: x for n, x in arguments.items() if isinstance(x, np.ndarray)}
        answer = self._call({**arguments, **self.typed(arrays, case, device)})
        ratio = next((r for word, r in LENIENT.items() if word in str(self.raw["name"])), 1.0)
        largest, ok, why = [0.0, 0.0], True, ""
        for name, got in outputs.items():
            right = answer[name].double().cpu().numpy() if self.library == "torch" else answer[name].astype("f8")
            with np.errstate(invalid="ignore"):
                absolute = np.abs(got.astype("f4") - right.reshape(got.shape).astype("f4")).astype("f8")
            relative = absolute / (np.abs(right.reshape(got.shape)) + 1e-8)
            largest = [max(largest[0], _most(absolute)), max(largest[1], _most(relative))]
            off = int(np.count_nonzero((absolute > ABSOLUTE) & (relative > RELATIVE)))
            if not np.isfinite(got).all():
                ok, why = False, why or f"{name} is not finite everywhere"
            elif 1.0 - off / max(1, got.size) < ratio:
                ok, why = False, why or f"{off} of {got.size} elements of {name} are off by more than 1e-2"
        return Verdict(ok, why, {"max_absolute_error": largest[0], "max_relative_error": largest[1]})

    def candidate(self, path: str, name: str) -> Adapter:
        if not path.endswith(".json"):
            return super().candidate(path, name)
        solution = _solution.load(path, str(self.raw["name"]))
        takes_outputs = solution.takes_outputs(len(self.order) + len(self.returned))

        def bind(case: Case, t: Any) -> Launch:
            known = {**vars(t), **case.axes, **{n: self.value(case, n) for n in self.attrs}}
            values = self._values(known)
            if takes_outputs:
                values += [known[word] for word in self.returned.values()]
            run = solution.run

            def writes() -> None:
                run(*values)

            return writes if takes_outputs else lambda: run(*values)

        return Adapter(self.name, path, solution.about, bind, ("cpu", "cuda"), self.library, False, None)


def _most(values: np.ndarray) -> float:
    return float(np.nan_to_num(values, nan=np.inf, posinf=np.inf).max()) if values.size else 0.0


def _axes(raw: Mapping[str, Any]) -> list[str]:
    for name, axis in raw.items():
        if axis.get("type") not in ("var", "const", "expr"):
            raise BadOp(f"axis {name} is of type {axis.get('type')!r}; there are var, const and expr")
    return list(raw)


def _words(raw: Mapping[str, Any], where: str, name: str) -> str:
    """Sizes and dtype of a tensor as a contract writes them; sizes that are constant as numbers."""
    spec = raw[where][name]
    dims = [_dim(str(axis), raw["axes"], name) for axis in spec.get("shape") or []]
    return f"{' '.join(dims) or '1'} {dtype_word(spec['dtype'], name)}"


def _dim(axis: str, axes: Mapping[str, Any], who: str) -> str:
    if axis.isdigit():
        return axis
    if axis not in axes:
        raise BadOp(f"{who} has an axis {axis}, which is none of its axes ({', '.join(axes)})")
    spec = axes[axis]
    if spec["type"] == "const":
        return str(int(spec["value"]))
    if spec["type"] == "var":
        return axis
    text = re.sub(r"\s", "", str(spec.get("expression", ""))).replace("//", "/")
    if not re.fullmatch(r"[\w+*/%()-]+", text):
        raise BadOp(f"axis {axis}: cannot read the expression '{spec.get('expression')}'")
    return "(" + re.sub(r"[A-Za-z_]\w*", lambda m: _dim(m.group(), axes, axis), text) + ")"


def _differ(known: Sequence[Workload], scalars: Sequence[str]) -> bool:
    """Whether sizes do not say everything about a workload."""
    values = {tuple(number(float(w.inputs.get(s, {}).get("value", 0))) for s in scalars) for w in known}
    files = any(spec.get("type") == "safetensors" for w in known for spec in w.inputs.values())
    return len(values) > 1 or files


def _reference(raw: Mapping[str, Any], path: pathlib.Path) -> tuple[Callable[..., Any], str]:
    text = str(raw["reference"])
    file = f"<reference of {path.name}>"
    module = types.ModuleType(f"kmark_reference_{path.stem}")
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), vars(module))
    run = getattr(module, "run", None)
    if not callable(run):
        raise BadOp("its reference has no function 'run'")
    uses_torch = re.search(r"^\s*(import|from)\s+torch\b", text, re.M)
    return run, "torch" if uses_torch else "numpy"
