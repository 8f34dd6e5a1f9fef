"""Adapters: how a Python library computes an op. One binds a case and returns a launch; Rust verifies and times it."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import pkgutil
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Optional, Sequence, Union

Launch = Callable[[], Any]
Function = Callable[..., Any]
Contract = Union[str, Callable[["Case"], Optional[str]], None]


class Unsupported(Exception):
    """Raised by an adapter for a case that its library does not do; the text says why."""


class Case:
    """An op at one problem, as an adapter sees it: axes are attributes, attributes are items."""

    def __init__(self, text: str, device: str, arranges: bool = True):
        raw = json.loads(text)
        self.id: str = raw["id"]
        self.op: str = raw["op"]
        self.dtype: str = raw["dtype"]
        self.axes: dict[str, int] = raw["axes"]
        self.attrs: dict[str, str] = raw["attrs"]
        self.seed: int = raw["seed"]
        self.device = device
        self.arranges = arranges
        self.build_ns: Optional[int] = None
        self.tune_ns: Optional[int] = None
        self.notes: list[str] = []
        self.arrangements: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> int:
        axes = self.__dict__.get("axes", {})
        if name in axes:
            return axes[name]
        raise AttributeError(f"{self.__dict__.get('op')} has no axis {name}; it has {', '.join(axes)}")

    def __getitem__(self, name: str) -> str:
        return self.attrs[name]

    def flag(self, name: str) -> bool:
        """A yes/no attribute."""
        return self.attrs[name] == "yes"

    def number(self, name: str) -> float:
        return float(self.attrs[name])

    def count(self, name: str) -> int:
        return int(self.attrs[name])

    @property
    def torch_dtype(self) -> Any:
        return torch_dtype(self.dtype)

    @contextmanager
    def building(self) -> Iterator[None]:
        """What happens inside is compiling."""
        start = time.perf_counter_ns()
        yield
        self.build_ns = (self.build_ns or 0) + time.perf_counter_ns() - start

    @contextmanager
    def tuning(self, alone: bool = False) -> Iterator[None]:
        """What happens inside is choosing among variants by timing them. `alone`: never while other processes compile
        ahead of a run, because the library compiles by several processes anyway, and times between."""
        if alone and os.environ.get("KMARK_AHEAD"):
            raise Unsupported("it chooses by timing, when its turn comes")
        start = time.perf_counter_ns()
        yield
        self.tune_ns = (self.tune_ns or 0) + time.perf_counter_ns() - start

    def arranged(self, make: Callable[[], Any]) -> Any:
        """An input in the form that the library wants, made outside the launch, and again whenever inputs change. For
        adapters of the package only: in a user's file the work of a launch could hide there."""
        if not self.arranges:
            raise TypeError("inputs are arranged inside the launch; only adapters of the package may do it outside")
        made = make()

        def again() -> None:
            made.copy_(make())

        self.arrangements.append(again)
        return made

    def note(self, text: str) -> None:
        """A line for the record."""
        self.notes.append(text)


_TORCH = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i32": "int32", "i64": "int64",
}  # fmt: skip


def torch_dtype(name: str) -> Any:
    """The torch dtype of one of ours."""
    import torch

    return getattr(torch, _TORCH[name])


@dataclass
class Adapter:
    """One registered function."""

    op: str
    name: str
    about: str
    bind: Callable[[Case, Any], Launch]
    devices: tuple[str, ...]
    arrays: str
    strided: bool
    contract: Contract
    function: Optional[Function] = None

    @property
    def family(self) -> str:
        return self.name.split("/", 1)[0]

    def hash(self) -> str:
        """Of the function and what it imports from beside itself; reads files, so only who needs it asks."""
        return hash_of(self.function, _file(self.function)) if self.function else ""

    def contract_of(self, case: Case) -> Optional[str]:
        return self.contract(case) if callable(self.contract) else self.contract


#: Of the package, by op and name.
ADAPTERS: dict[tuple[str, str], Adapter] = {}
#: Of users' files, in the order in which they were registered.
REGISTERED: list[tuple[str, Adapter]] = []

DEVICES = ("cpu", "cuda")
ARRAYS = ("torch", "numpy", "dlpack")


def impl(
    name: Optional[str] = None,
    *,
    op: Optional[str] = None,
    about: str = "",
    devices: Union[str, Sequence[str], None] = None,
    arrays: Optional[str] = None,
    strided: Optional[bool] = None,
    contract: Contract = None,
) -> Callable[[Function], Function]:
    """Makes a function an impl of an op.

    A function `f(case, t)` binds: it prepares what can be prepared once and returns the function that is timed. One
    whose parameters are named like the op's tensors, axes or attributes is itself called for every launch; what it
    returns are the op's outputs, unless it took them as parameters and wrote them. A parameter with a default may be
    named as it likes.

    `name` is the function's unless given, `op` that of the file for adapters of ours. `devices` says where it runs
    (default: "cuda"), `arrays` what it takes ("torch", the default, "numpy", or "dlpack" for anything with
    `__dlpack__`), `strided` that any strides will do, and `contract` where it differs from what the op asks.

    A function without this decorator runs on any device, takes any strides, and gets torch tensors, or NumPy arrays if
    its file imports numpy and not torch."""
    places = ("cuda",) if devices is None else (devices,) if isinstance(devices, str) else tuple(devices)
    unknown = [place for place in places if place not in DEVICES]
    if unknown or not places:
        raise ValueError(f"impl: devices are {' and '.join(DEVICES)}, not {', '.join(map(repr, unknown)) or 'none'}")
    if arrays is not None and arrays not in ARRAYS:
        raise ValueError(f"impl: arrays='{arrays}' is none of {', '.join(ARRAYS)}")

    def register(function: Function) -> Function:
        of = op or function.__module__.rsplit(".", 1)[-1].replace("_", "-")
        made = adapter_of(function, of, name or _name(function), arrays or "torch")
        made.about = about or made.about
        made.devices, made.strided, made.contract = places, bool(strided), contract
        if not function.__module__.startswith(f"{__package__}.impls."):
            REGISTERED.append((function.__module__, made))
            return function
        key = (of, made.name)
        if key in ADAPTERS:
            raise ValueError(f"{of} has two impls named {made.name}")
        ADAPTERS[key] = made
        return function

    return register


def adapter_of(function: Function, op: str, name: str, arrays: str) -> Adapter:
    """An adapter of a plain function: on any device, with any strides."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise TypeError(f"{name} does not tell its parameters; write a function around it that has them") from None
    bind = function if [p.name for p in parameters][:2] == ["case", "t"] else by_name(function, parameters)
    about = (inspect.getdoc(function) or "").split("\n", 1)[0]
    return Adapter(op, name, about, bind, DEVICES, arrays, True, None, function)


def arrays_of(file: str) -> str:
    """What functions of a file take: NumPy arrays if it imports numpy and not torch, or if there is no torch."""
    tops = {module.split(".")[0] for module in _imported(pathlib.Path(file).read_bytes())}
    if "numpy" in tops and "torch" not in tops:
        return "numpy"
    return "torch" if "torch" in tops or importlib.util.find_spec("torch") else "numpy"


def _name(function: Function) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _file(function: Function) -> Optional[str]:
    try:
        return inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return None


def by_name(function: Function, parameters: Sequence[inspect.Parameter]) -> Callable[[Case, Any], Launch]:
    """Binds a function whose parameters are tensors, axes and attributes; what has a default may be neither."""

    def bind(case: Case, t: Any) -> Launch:
        values: list[Any] = []
        named: dict[str, Any] = {}
        skipped = False
        for p in parameters:
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                continue
            if p.default is not p.empty and not is_known(case, t, p.name):
                skipped = True
            elif p.kind is p.KEYWORD_ONLY or (skipped and p.kind is p.POSITIONAL_OR_KEYWORD):
                named[p.name] = value_of(case, t, p.name)
            else:
                values.append(value_of(case, t, p.name))

        def launch() -> Any:
            return function(*values, **named)

        def launch_in_order() -> Any:
            return function(*values)

        return launch if named else launch_in_order

    return bind


def is_known(case: Case, t: Any, name: str) -> bool:
    return name in vars(t) or name in case.axes or name in case.attrs


def value_of(case: Case, t: Any, name: str) -> Any:
    """What a parameter of that name stands for. An attribute is a bool, a number or a word."""
    if name in vars(t):
        return vars(t)[name]
    if name in case.axes:
        return case.axes[name]
    if name not in case.attrs:
        known = [*vars(t), *case.axes, *case.attrs]
        raise TypeError(f"{case.op} has no tensor, axis or attribute {name}; this case has {', '.join(known)}")
    text = case.attrs[name]
    if text in ("yes", "no"):
        return text == "yes"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def hash_of(function: Callable[..., Any], file: Optional[str]) -> str:
    """Changes with the text of the file that holds the function, and of all that it imports from beside itself."""
    texts = b"\0".join(name.encode() + b"\0" + text for name, text in _sources(file)) if file else b""
    qualified = str(getattr(function, "__qualname__", _name(function)))
    return hashlib.blake2b(texts + qualified.encode(), digest_size=8).hexdigest()


@functools.cache
def _imported(text: bytes) -> set[str]:
    """Modules that a text imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level < 2:
            found |= {node.module} if node.module else {name.name for name in node.names}
    return found


@functools.cache
def _sources(file: str) -> list[tuple[str, bytes]]:
    """Names and texts of a file and of the files in its folder that it imports, and those that they import."""
    found: dict[pathlib.Path, bytes] = {}
    open_paths = [pathlib.Path(file)]
    while open_paths:
        path = open_paths.pop()
        if path in found or not path.is_file():
            continue
        found[path] = path.read_bytes()
        for module in _imported(found[path]):
            beside = path.parent.joinpath(*module.split("."))
            open_paths += [beside.with_suffix(".py"), beside / "__init__.py"]
    return sorted((path.name, text) for path, text in found.items())


def load() -> dict[tuple[str, str], Adapter]:
    """All adapters of the package."""
    from . import impls

    for module in pkgutil.iter_modules(impls.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{impls.__name__}.{module.name}")
    return ADAPTERS


def load_file(path: str) -> Any:
    """A user's file as a module, which finds what lies beside it."""
    folder = str(pathlib.Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("kmark_user_" + pathlib.Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module
