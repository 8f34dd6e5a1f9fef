"""The worker process of a Python family: `python -m kmark.worker FAMILY --device cuda:0`, started by kmark itself.

Rust answers the host's requests and calls back here for two things: to bind an adapter to a case, and to say what an
exception means."""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import inspect
import os
import pathlib
import platform
import re
import sys
import traceback
from types import SimpleNamespace
from typing import Any, Callable, Optional

from . import _native, foreign, registry
from .own._launch import adapter
from .own._op import MUTANT, REFERENCE, Op
from .own._op import load as load_ops
from .own._op import main as describe
from .registry import ADAPTERS, Adapter, Case, Unsupported


class Adapters:
    """What Rust asks of Python."""

    def __init__(self, family: str):
        self.family = family
        self.files: dict[str, Any] = {}
        self.ops: list[Op] = []
        self.answers: Any = None
        registry.load()
        installed()  # before any other code could have a say in it

    def has(self, op: str, name: str) -> bool:
        return is_file(name) or (op, name) in ADAPTERS

    def bind(self, text: str, name: str, device: str, tensors: dict[str, Any], file: Optional[str] = None) -> Bound:
        """`file`: where the case's op is defined, if it is one of a user's."""
        case = Case(text, device, arranges=not is_file(name))
        adapter = self.of_file(case, name, file) if is_file(name) else ADAPTERS[case.op, name]
        if not adapter.strided and case.attrs.get("memory", "dense") != "dense":
            raise Unsupported(f"takes dense tensors only, not memory={case['memory']}")
        if device not in adapter.devices:
            raise Unsupported(f"runs on {' and '.join(adapter.devices)}, not on {device}")
        arrays = {key: to_array(tensor, adapter.arrays) for key, tensor in tensors.items()}
        launch = adapter.bind(case, Tensors(arrays))
        if not callable(launch):
            raise TypeError(f"{name} must return the function that launches, not {type(launch).__name__}")
        return Bound(case, adapter, launch)

    def forget(self) -> None:
        """A case is over: nothing that was compiled for it alone is held any more."""
        compile = sys.modules.get("kmark.impls._compile")
        if compile is not None:
            compile.forget()

    def release(self) -> None:
        """What the launches of a case kept goes back to the GPU, where other workers need it."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def of_file(self, case: Case, name: str, file: Optional[str]) -> Adapter:
        """A function of the user's: registered for this op, or any function of that name."""
        path, function = split(name)
        problem = foreign.load(file) if file else None
        if problem is not None:
            own_code = function == REFERENCE or function.startswith(MUTANT)
            return adapter(problem[0], function) if own_code else problem[0].candidate(path, function)
        if path not in self.files:
            self.files[path] = registry.load_file(path)
        module = self.files[path]
        own = next((v for v in vars(module).values() if isinstance(v, Op) and v.name == case.op), None)
        if own is not None and (function == REFERENCE or function.startswith(MUTANT)):
            return adapter(own, function)
        registered = [made for of, made in registry.REGISTERED if of == module.__name__ and made.name == function]
        for made in registered:
            if made.op == case.op:
                return made
        if registered:
            raise Unsupported(f"{function} is an impl of {registered[0].op}, not of {case.op}")
        chosen = getattr(module, function, None)
        if chosen is None:
            raise AttributeError(f"{path} has no function {function}")
        if not callable(chosen):
            raise TypeError(f"{function} in {path} is no function, but {type(chosen).__name__}")
        return registry.adapter_of(chosen, case.op, name, registry.arrays_of(path))

    def own(self, name: str) -> Op:
        """An op of the file that this process judges."""
        if not self.ops:
            self.ops = load_ops(self.family.partition(":")[2])
        return next(op for op in self.ops if op.name == name)

    def truth(self, text: str, inputs: dict[str, Any]) -> Any:
        """What is right for a case, given its inputs."""
        case = Case(text, "cpu")
        if self.answers is None:
            from .own._judge import Answers

            self.answers = Answers()
        return self.answers.of(self.own(case.op), case, inputs, "cpu")

    def make(self, text: str, tensor: str) -> bytes:
        from .own._judge import made

        case = Case(text, "cpu")
        return made(self.own(case.op), case, tensor)

    def explain(self, error: BaseException) -> tuple[str, str, str]:
        return *explain(error, self.family), told(error)


def split(name: str) -> tuple[str, str]:
    """File and function; a solution in JSON names its function itself."""
    path, _, function = name.rpartition(":")
    return (path, function) if path else (name, "")


def is_file(name: str) -> bool:
    return split(name)[0].endswith((".py", ".json", ".yml"))


class Tensors(SimpleNamespace):
    """The tensors of a case by name; `None` for those that this case has not."""

    def __init__(self, arrays: dict[str, Any]):
        super().__init__(**arrays)

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)
        return None


class Bound:
    """An adapter bound to a case: what Rust reads once, when it is bound. From then on no code of this package runs
    between two launches."""

    def __init__(self, case: Case, adapter: Adapter, launch: Callable[[], Any]):
        self.launch = launch
        self.build_ns = None if case.build_ns is None else float(case.build_ns)
        self.tune_ns = None if case.tune_ns is None else float(case.tune_ns)
        self.contract = adapter.contract_of(case)
        self.notes = case.notes + [receipt(adapter)]
        self.libraries = installed()
        arrangements = case.arrangements

        def refresh() -> None:
            for again in arrangements:
                again()

        self.refresh = refresh if arrangements else None  # inputs have changed


def to_array(tensor: Any, kind: str) -> Any:
    """The engine's memory as an array of a library, without a copy."""
    if kind == "numpy":
        import numpy

        if tensor.dtype in ("bf16", "f8e4m3", "f8e5m2"):
            raise Unsupported(f"NumPy has no {tensor.dtype}")
        return numpy.asarray(tensor)
    if kind != "torch":
        return tensor
    import torch

    array = torch.from_dlpack(tensor)
    # DLPack's older form has no fp8: it travels as bytes.
    return array.view(registry.torch_dtype(tensor.dtype)) if tensor.dtype.startswith("f8") else array


def receipt(adapter: Adapter) -> str:
    """Interpreter and versions of what the adapter's worker has loaded, for the record."""
    parts = [f"Python {platform.python_version()} ({sys.executable})"]
    for module, package in PACKAGES.items():
        if module in sys.modules:
            try:
                parts.append(f"{package} {importlib.metadata.version(package)}")
            except importlib.metadata.PackageNotFoundError:
                version = getattr(sys.modules[module], "__version__", "of unknown version")
                parts.append(f"{module} {version}")
    settings = os.environ.get("KMARK_SETTINGS")
    return ", ".join(parts) + (f"; set: {settings}" if settings else "")


@functools.cache
def installed() -> str:
    """Interpreter and versions of all libraries that adapters use and this environment has, loaded or not: part of the
    hash of everything that runs here."""
    parts = [f"Python {platform.python_version()}"]
    for package in sorted(set(PACKAGES.values())):
        try:
            parts.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return ", ".join(parts)


# Module -> distribution, for receipts.
PACKAGES = {
    "numpy": "numpy", "torch": "torch", "triton": "triton", "quack": "quack-kernels", "cutlass": "nvidia-cutlass-dsl",
    "liger_kernel": "liger-kernel", "flash_attn": "flash-attn-4", "flash_attn_interface": "flash-attn-3",
    "flashinfer": "flashinfer-python", "deep_gemm": "deep_gemm", "sgl_kernel": "sglang-kernel", "fla": "fla-core",
    "tilelang": "tilelang", "xformers": "xformers",
}  # fmt: skip


def explain(error: BaseException, family: str) -> tuple[str, str]:
    """The status of a record and its message."""
    words = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    text = f"{type(error).__name__}: {words}".rstrip(": ")
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, Unsupported):
        return "unsupported", str(error)
    if isinstance(error, ImportError):
        return "unavailable", f"{text}; {how_to_get(family)}"
    if "OutOfMemoryError" in kinds or isinstance(error, MemoryError):
        return "out-of-memory", text.split("\n")[0]
    if kinds & {"CompilationError", "BackendCompilerFailed", "InductorError", "PTXASError", "DSLRuntimeError"}:
        return "build-failed", text
    where = [frame for frame in traceback.extract_tb(error.__traceback__) if "/kmark/worker.py" not in frame.filename]
    place = f" ({pathlib.Path(where[-1].filename).name}:{where[-1].lineno})" if where else ""
    return "crashed", text.split("\n")[0] + place


def told(error: BaseException) -> str:
    """The traceback of what went wrong, for the record; what is merely not supported needs none."""
    if isinstance(error, Unsupported):
        return ""
    return "".join(traceback.format_exception(error))[-TOLD:]


# Characters of a traceback that are kept: the last ones say what happened.
TOLD = 8000

# Libraries that no environment of ours has, and why.
ABSENT = {
    "oink": "Oink is not on the package index; it comes with the sources of KernelAgent (meta-pytorch/KernelAgent)",
    "max": "MAX comes with `pip install modular`; kmark recognises it and has no launch of it yet",
}


def how_to_get(family: str) -> str:
    return os.environ.get("KMARK_INSTALL") or ABSENT.get(family, "install it into the Python that runs this worker")


def torch_stream(device: str) -> Optional[int]:
    """A stream of torch's, made the current one, if this environment has torch and the device is a GPU."""
    if not device.startswith("cuda"):
        return None
    try:
        import torch
    except ImportError:
        return None
    number = int(device.partition(":")[2] or 0)
    torch.cuda.set_device(number)
    stream = torch.cuda.Stream(number)
    torch.cuda.set_stream(stream)
    torch_stream.keep = stream  # type: ignore[attr-defined]
    return int(stream.cuda_stream)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kmark.worker", description=inspect.getdoc(sys.modules[__name__]))
    parser.add_argument("family")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--describe", action="store_true", help="print what the ops of a file are, and leave")
    parser.add_argument("--try", action="append", dest="tries", help="run the reference of a case, and leave")
    parser.add_argument("--count", action="append", dest="counts", help="count the arithmetic of a case, and leave")
    args = parser.parse_args()
    if args.describe or args.tries or args.counts:
        _native.load()
        sys.exit(describe(args.family.partition(":")[2], args.tries or [], args.counts or []))
    _native.load()
    from . import _kmark

    _kmark.serve(args.family, args.device, torch_stream(args.device), Adapters(args.family))


if __name__ == "__main__":
    main()
