"""An op of the user's: what its reference's signature says, as data, and what computes it."""

from __future__ import annotations

import inspect
import json
import pathlib
import sys
import typing
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

from .. import registry
from . import _words
from ._words import BadOp, Tensor

Function = Callable[..., Any]
Words = Union[str, Sequence[str]]


def _list(words: Words) -> list[str]:
    return words.split() if isinstance(words, str) else [str(w) for w in words]


class Registered(NamedTuple):
    """A function of the op, and how it is bound."""

    function: Function
    adapter: registry.Adapter


class Op:
    """A reference and what follows from it. Made by `kmark.op`; called, it is its reference."""

    #: Whose check stands beside ours, of a problem of another collection.
    collection = ""

    def __init__(
        self,
        reference: Function,
        contract: str,
        *,
        name: Optional[str] = None,
        axes: Words = (),
        dtypes: Words = ("f32",),
        configs: Words = (),
        flops: Optional[str] = None,
        inputs: Optional[Function] = None,
        bound: Optional[Function] = None,
        library: Optional[str] = None,
    ) -> None:
        self.reference, self.inputs, self.bound, self.flops = reference, inputs, bound, flops
        self.name = name or reference.__name__.replace("_", "-")
        self.about = (inspect.getdoc(reference) or "an op of the user's").split("\n", 1)[0]
        self.dtypes, self.configs = _list(dtypes), _list(configs)
        self.attrs: dict[str, Any] = {}
        self._words: dict[str, list[str]] = {}
        self.axes = _list(axes)
        self.impls: dict[str, Registered] = {}
        self.mutants: dict[str, Registered] = {}
        self.file = inspect.getsourcefile(reference) or ""
        try:
            self.tensors = _words.contract(contract)
            self._read()
        except BadOp as why:
            raise BadOp(f"op {self.name}: {why}") from None
        self.library = library or _library(reference)
        if self.library not in ("numpy", "torch"):
            raise BadOp(f"op {self.name}: library is numpy or torch, not {self.library!r}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.reference(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<kmark.Op {self.name}: {', '.join(t.name for t in self.tensors)}>"

    def _read(self) -> None:
        """Attributes from the signature, axes from both."""
        known = {t.name: t for t in self.tensors}
        free = []
        parameters = inspect.signature(self.reference).parameters
        for name, parameter in parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise BadOp(f"*{name}: a reference names all of its parameters")
            if name in known:
                if known[name].role == "out":
                    raise BadOp(f"{name} is an output: a reference returns it")
            elif parameter.default is not parameter.empty:
                self._attribute(name, parameter.default, parameter.annotation)
            else:
                free.append(name)
        lost = [t.name for t in self.tensors if t.role != "out" and t.name not in parameters]
        if lost:
            raise BadOp(f"its reference has no parameter {lost[0]}")
        made = [t.name for t in self.tensors if t.fill == "made"]
        if made and self.inputs is None:
            raise BadOp(f"{made[0]} is made, but there is no inputs= to make it")
        stated = bool(self.axes)
        for t in self.tensors:
            for word in _words.names(t.dims):
                if word not in self.axes and word not in self.attrs:
                    if stated:
                        raise BadOp(f"{t.name}: {word} is none of its axes ({' '.join(self.axes)})")
                    self.axes.append(word)
        for word in free:
            if word not in self.axes:
                raise BadOp(
                    f"{word} is no tensor or axis of '{self.name}'; put it into the contract or give it a default"
                )

    def _attribute(self, name: str, default: Any, annotation: Any) -> None:
        if not isinstance(default, (bool, int, float, str)):
            raise BadOp(f"{name}: an attribute is a number, a flag or a word, not {default!r}")
        self.attrs[name] = default
        if isinstance(default, str):
            words = [str(w) for w in typing.get_args(annotation)]
            self._words[name] = words if default in words else [default]

    def impl(self, function: Optional[Function] = None, **options: Any) -> Any:
        """Registers a function that computes the op: its parameters are tensors, axes and attributes by name; it
        returns the outputs, or writes to those that it takes. `devices`, `arrays`: as for `kmark.impl`."""
        return self._registered(self.impls, function, options)

    def mutant(self, function: Optional[Function] = None, **options: Any) -> Any:
        """Registers a function that is wrong on purpose: `kmark verify --mutants` must reject it."""
        return self._registered(self.mutants, function, options)

    def _registered(self, where: dict[str, Registered], function: Optional[Function], options: Any) -> Any:
        def register(function: Function) -> Function:
            given = {"devices": ("cpu", "cuda"), "arrays": self.library, **options}
            registry.impl(op=self.name, **given)(function)
            made = registry.REGISTERED[-1][1]
            where[made.name] = Registered(function, made)
            return function

        return register if function is None else register(function)

    @property
    def outputs(self) -> list[Tensor]:
        return [t for t in self.tensors if t.role != "in"]

    def _attr(self, name: str, default: Any) -> dict[str, Any]:
        if isinstance(default, bool):
            return {"name": name, "default": "yes" if default else "no", "kind": "flag"}
        if isinstance(default, int):
            return {"name": name, "default": str(default), "kind": "integer"}
        if isinstance(default, float):
            return {"name": name, "default": number(default), "kind": "number"}
        return {"name": name, "default": default, "kind": {"words": self._words[name]}}

    def describe(self, file: Optional[str] = None) -> dict[str, Any]:
        """As plain data, for the engine."""
        from ._mutants import mutants

        every = ["cpu", "cuda"]
        listed = [_listed(made) for _, made in self.impls.values()]
        listed.append({"name": REFERENCE, "about": ABOUT_REFERENCE, "devices": every})
        wrong = [_listed(made) for _, made in self.mutants.values()]
        wrong += [{"name": MUTANT + n, "about": m.about, "devices": every} for n, m in mutants(self).items()]
        return {
            "name": self.name, "about": self.about, "file": file or self.file, "hash": self.hash(),
            "axes": self.axes, "attrs": [self._attr(n, d) for n, d in self.attrs.items()], "dtypes": self.dtypes,
            "configs": self.configs, "tensors": [t.describe() for t in self.tensors], "flops": self.flops,
            "countable": self.library == "torch",
            "impls": listed, "mutants": wrong,
        }  # fmt: skip

    def hash(self) -> str:
        return registry.hash_of(self.reference, self.file or None)

    def arguments(self, case: registry.Case, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """What the reference is called with."""
        known: dict[str, Any] = {**arrays, **{name: self.value(case, name) for name in self.attrs}}
        parameters = inspect.signature(self.reference).parameters
        return {name: known[name] if name in known else case.axes[name] for name in parameters}

    def value(self, case: registry.Case, name: str) -> Any:
        """An attribute as the type of its default."""
        text, default = case.attrs[name], self.attrs[name]
        return text == "yes" if isinstance(default, bool) else type(default)(text)

    def verify(
        self, function: Function, *, case: Optional[str] = None, dtype: Optional[str] = None, **values: Any
    ) -> Any:
        """Whether `function` is right, judged here and now. `case`: `"64x512"`; axes and attributes by name too."""
        from ._notebook import verify

        return verify(self, function, case, dtype, values)

    def run(self, *functions: Function, case: Optional[str] = None, dtype: Optional[str] = None, **options: Any) -> Any:
        """Verifies and times functions, in turns; without any, those of `impl`."""
        from ._notebook import run

        return run(self, functions, case, dtype, options)


# The reference itself as an impl, and what stands before the name of a mutant made of it.
REFERENCE = "reference"
ABOUT_REFERENCE = "the reference in the accumulator's precision, rounded once"
MUTANT = "mutant."


def op(contract: str, **options: Any) -> Callable[[Function], Op]:
    """Makes an op of its reference, a function in fp64.

        @kmark.op("x: m n, w: n normal(1,0.1) -> y: m n", dtypes="bf16 f32", configs=["1024x4096"])
        def norm(x, w, eps=1e-5):
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w

    The contract names the tensors, outputs behind the arrow. Behind a name stand its sizes (axes, or expressions of
    them without blanks), its dtype if it is not the case's, how its values are drawn, and `inout` if it is changed in
    place. Values: `rows` (normal, with zero, tiny, large and shifted rows among them; where there are several sizes,
    that is the default), `normal(mean,std)`, `uniform(low,high)`, `logits`, `zeros`, `ones`, `constant(c)`, `index(n)`,
    `indptr(n)`, `made`. Parameters with a default are attributes, those without are tensors or axes.

    Options: `name`; `axes` in their order; `dtypes`; `configs`: sizes to run, in the order of axes; `flops`: an
    expression; `inputs(rng, **sizes)` returns the tensors whose values are `made`; `bound(expect, **arguments)` returns
    the slack of every output instead of the derived one; `library`: numpy or torch, if the reference shows neither."""
    return lambda reference: Op(reference, contract, **options)


def _listed(made: registry.Adapter) -> dict[str, Any]:
    return {"name": made.name, "about": made.about, "devices": list(made.devices)}


def number(value: float) -> str:
    """As suites write numbers: `1e-6`, not `1e-06`."""
    text = repr(value)
    if "e" in text:
        mantissa, _, exponent = text.partition("e")
        return f"{mantissa}e{int(exponent)}"
    if value != 0 and not 1e-4 <= abs(value) < 1e9:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:g}" if float(f"{value:g}") == value else text


def _library(function: Function) -> str:
    """What the reference computes with: what it names, else what its file has imported."""
    named = {n for code in _codes(function.__code__) for n in code.co_names}
    scope = {n: v.__name__.split(".")[0] for n, v in function.__globals__.items() if inspect.ismodule(v)}
    used = {module for name, module in scope.items() if name in named}
    if "torch" in used or ("numpy" not in used and "torch" in scope.values() and "numpy" not in scope.values()):
        return "torch"
    return "numpy"


def _codes(code: Any) -> Iterable[Any]:
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _codes(constant)


def load(path: str) -> list[Op]:
    """The ops that a file or folder defines; the error is one line."""
    from .. import foreign

    found = foreign.load(path)
    if found is None:
        module = registry.load_file(path)
        found = [value for value in vars(module).values() if isinstance(value, Op)]
    if not found:
        raise BadOp("there is no op in it; @kmark.op makes one of a reference")
    return found


def _tried(ops: list[Op], text: str, path: str) -> None:
    """Runs a case's reference; BadReference says what is wrong with it."""
    from ._judge import Answer, tensors_of

    case = registry.Case(text, "cpu")
    op = next(o for o in ops if o.name == case.op)
    _learnt(op, case, path)
    Answer(op, case, tensors_of(op, text), "cpu", runs=2)


def _counted(ops: list[Op], text: str, path: str) -> int:
    """Floating-point operations of a reference's products, as torch counts them, on shapes alone."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from .. import _engine

    case = registry.Case(text, "cpu")
    op = next(o for o in ops if o.name == case.op)
    arrays = {}
    for name, (shape, dtype) in _engine.own_shapes(_learnt(op, case, path)).items():
        if any(t.name == name and t.role != "out" for t in op.tensors):
            number = torch.int64 if dtype.startswith("i") else torch.float64
            arrays[name] = torch.empty(shape, dtype=number, device="meta")
    try:
        with FlopCounterMode(display=False) as counter:
            op.reference(**op.arguments(case, arrays))
    except Exception:  # it looks at values, or does what torch cannot do on shapes
        return 0
    return int(counter.get_total_flops())


def _learnt(op: Op, case: registry.Case, path: str) -> str:
    """The case, in a process that has learnt its op."""
    from .. import _engine

    axes, attrs = list(case.axes.items()), list(case.attrs.items())
    return _engine.own_case(json.dumps(op.describe(path)), case.dtype, axes, attrs, case.seed)[0]


def main(path: str, tries: Sequence[str] = (), counts: Sequence[str] = ()) -> int:
    """Prints what a file says of its ops, for the host; runs or counts their references on cases that it names."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what the file prints is not ours
    try:
        ops = load(path)
        text = json.dumps([o.describe(path) for o in ops])
        for case in tries:
            _tried(ops, case, path)
        if counts:
            text = json.dumps([_counted(ops, case, path) for case in counts])
    except Exception as error:  # a user's file may do anything
        where = ""
        trace = error.__traceback__
        while trace is not None:
            if pathlib.Path(trace.tb_frame.f_code.co_filename).name == pathlib.Path(path).name:
                where = f" (line {trace.tb_lineno})"
            trace = trace.tb_next
        words = str(error).split("\n")[0]
        ours = type(error).__name__ in ("BadOp", "BadReference")
        print(words if ours else f"{type(error).__name__}: {words}{where}", file=sys.stderr)
        return 2
    out.write(text)
    return 0
