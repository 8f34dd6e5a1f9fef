"""An op of the user's: what its reference's signature says, as data, and what computes it."""

from __future__ import annotations

import inspect
import json
import pathlib
import sys
import typing
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

from .. import registry
from . import _words
from ._words import BadOp, Tensor

Function = Callable[..., Any]
Words = Union[str, Sequence[str]]


def _list(words: Words) -> list[str]:
    return words.split() if isinstance(words, str) else [str(w) for w in words]


class Op:
    """A reference and what follows from it. Made by `kmark.op`; called, it is its reference."""

    def __init__(
        self,
        reference: Function,
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
        self.tensors: list[Tensor] = []
        self.attrs: dict[str, Any] = {}
        self._words: dict[str, list[str]] = {}
        self.axes = _list(axes)
        self.impls: dict[str, registry.Adapter] = {}
        self.mutants: dict[str, registry.Adapter] = {}
        self.file = inspect.getsourcefile(reference) or ""
        try:
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
        """Tensors, attributes and axes from the signature."""
        signature = inspect.signature(self.reference)
        free = []
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise BadOp(f"*{parameter.name}: a reference names all of its parameters")
            annotation, has_default = parameter.annotation, parameter.default is not parameter.empty
            if _words.is_text(annotation) and not has_default:
                self.tensors.append(_words.tensor(parameter.name, annotation, "in"))
            elif has_default:
                self._attribute(parameter.name, parameter.default, annotation)
            else:
                free.append(parameter.name)
        if not self.tensors:
            raise BadOp('no parameter says what tensor it is, as x: "m n" does')
        returned = signature.return_annotation
        if _words.is_text(returned):
            self.tensors += _words.outputs(returned, self.tensors)
        if not any(t.role != "in" for t in self.tensors):
            raise BadOp('it does not say what it returns, as -> "y: m n" does')
        stated = bool(self.axes)
        for t in self.tensors:
            for word in _words.names(t.dims):
                if word not in self.axes and word not in self.attrs:
                    if stated:
                        raise BadOp(f"{t.name}: {word} is none of its axes ({' '.join(self.axes)})")
                    self.axes.append(word)
        for word in free:
            if word not in self.axes:
                raise BadOp(f"{word} is no tensor, axis or attribute; write what it is, or give it a default")

    def _attribute(self, name: str, default: Any, annotation: Any) -> None:
        if not isinstance(default, (bool, int, float, str)):
            raise BadOp(f"{name}: an attribute is a number, a flag or a word, not {default!r}")
        self.attrs[name] = default
        if isinstance(default, str):
            text = annotation if not _words.is_text(annotation) else None
            words = [str(w) for w in typing.get_args(text)] if text is not None else []
            self._words[name] = words if default in words else [default]

    def impl(self, function: Optional[Function] = None, **options: Any) -> Any:
        """Registers a function that computes the op: its parameters are tensors, axes and attributes by name; it
        returns the outputs, or writes to those that it takes. `devices`, `arrays`: as for `kmark.impl`."""
        return self._registered(self.impls, function, options)

    def mutant(self, function: Optional[Function] = None, **options: Any) -> Any:
        """Registers a function that is wrong on purpose: `kmark verify --mutants` must reject it."""
        return self._registered(self.mutants, function, options)

    def _registered(self, where: dict[str, registry.Adapter], function: Optional[Function], options: Any) -> Any:
        def register(function: Function) -> Function:
            registered = registry.impl(op=self.name, **options)(function)
            where[function.__name__] = registered.kmark_adapter
            return registered

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
            return {"name": name, "default": _number(default), "kind": "number"}
        return {"name": name, "default": default, "kind": {"words": self._words[name]}}

    def describe(self, file: Optional[str] = None) -> dict[str, Any]:
        """As plain data, for the engine."""
        from ._mutants import mutants

        every = ["cpu", "cuda"]
        listed = [{"name": n, "about": a.about, "devices": list(a.devices)} for n, a in self.impls.items()]
        listed.append({"name": REFERENCE, "about": "the reference, in the case's dtype", "devices": every})
        wrong = [{"name": n, "about": a.about, "devices": list(a.devices)} for n, a in self.mutants.items()]
        wrong += [{"name": MUTANT + n, "about": m.about, "devices": every} for n, m in mutants(self).items()]
        return {
            "name": self.name, "about": self.about, "file": file or self.file, "hash": self.hash(),
            "axes": self.axes, "attrs": [self._attr(n, d) for n, d in self.attrs.items()], "dtypes": self.dtypes,
            "configs": self.configs, "tensors": [t.describe() for t in self.tensors], "flops": self.flops,
            "impls": listed, "mutants": wrong,
        }  # fmt: skip

    def hash(self) -> str:
        return registry._hash(self.reference)

    def arguments(self, case: registry.Case, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """What the reference is called with."""
        known: dict[str, Any] = {**arrays, **{name: self.value(case, name) for name in self.attrs}}
        parameters = inspect.signature(self.reference).parameters
        return {name: known[name] if name in known else case.axes[name] for name in parameters}

    def value(self, case: registry.Case, name: str) -> Any:
        """An attribute as the type of its default."""
        text, default = case.attrs[name], self.attrs[name]
        return text == "yes" if isinstance(default, bool) else type(default)(text)

    def cost(self) -> Optional[str]:
        return self.flops

    def verify(self, function: Function, *, case: Optional[str] = None, dtype: Optional[str] = None, **sizes: Any) -> Any:
        """Whether `function` is right, judged here and now. `case`: `"64x512"`; axes and attributes by name too."""
        from ._notebook import verify

        return verify(self, function, case, dtype, sizes)

    def run(self, *functions: Function, case: Optional[str] = None, dtype: Optional[str] = None, **options: Any) -> Any:
        """Verifies and times functions, in turns; without any, those of `impl`."""
        from ._notebook import run

        return run(self, functions, case, dtype, options)


# The reference itself as an impl, and what stands before the name of a mutant made of it.
REFERENCE = "reference"
MUTANT = "mutant."


def op(function: Optional[Function] = None, **options: Any) -> Any:
    """Makes an op of its reference, a function in fp64.

        @kmark.op(dtypes="bf16 f32", configs=["1024x4096"], flops="4*m*n")
        def norm(x: "m n", w: "n normal(1,0.1)", eps=1e-5) -> "y: m n":
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w

    - A parameter with a text is a tensor: its sizes (axes, or expressions of them without blanks), a dtype if it is not
      the case's, how its values are drawn (`rows`: normal, with zero, tiny, large and shifted rows among them; `normal(mean,std)`,
      `uniform(low,high)`, `logits`, `constant(c)`, `index(n)`, `indptr(n)`, `made`), `inout` if it is changed.
    - A parameter with a default is an attribute.
    - Behind the arrow stand the outputs.

    Options: `name`; `axes` in their order; `dtypes`; `configs`: sizes to run, in the order of axes; `flops`: an
    expression; `inputs(rng, **sizes)` returns the tensors whose values are `made`; `bound(expect, **arguments)` returns
    the slack of every output instead of the derived one; `library`: numpy or torch, if it is not what the reference uses."""
    if function is not None:
        return Op(function, **options)
    return lambda function: Op(function, **options)


def _number(value: float) -> str:
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


def main(path: str) -> int:
    """Prints what a file says of its ops, for the host."""
    out = sys.stdout
    sys.stdout = sys.stderr  # what the file prints is not ours
    try:
        ops = load(path)
        text = json.dumps([o.describe(path) for o in ops])
    except Exception as error:  # a user's file may do anything
        where = ""
        trace = error.__traceback__
        while trace is not None:
            if pathlib.Path(trace.tb_frame.f_code.co_filename).name == pathlib.Path(path).name:
                where = f" (line {trace.tb_lineno})"
            trace = trace.tb_next
        words = str(error).split("\n")[0]
        print(words if isinstance(error, BadOp) else f"{type(error).__name__}: {words}{where}", file=sys.stderr)
        return 2
    out.write(text)
    return 0
