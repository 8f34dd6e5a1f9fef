"""The worker process of a Python family: `python -m kmark.worker FAMILY --device cuda:0`, started by kmark itself.

Rust answers the host's requests and calls back here for two things: to bind an adapter to a case, and to say what an
exception means."""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import inspect
import os
import pathlib
import platform
import sys
import traceback
from types import SimpleNamespace
from typing import Any, Callable, Optional

from . import _native, registry
from .registry import ADAPTERS, Adapter, Case, Unsupported


class Adapters:
    """What Rust asks of Python."""

    def __init__(self, family: str):
        self.family = family
        self.files: dict[str, Any] = {}
        registry.load()

    def has(self, op: str, name: str) -> bool:
        return is_file(name) or (op, name) in ADAPTERS

    def bind(self, text: str, name: str, device: str, tensors: dict[str, Any]) -> Bound:
        case = Case(text, device)
        adapter = self.of_file(case, name) if is_file(name) else ADAPTERS[case.op, name]
        if not adapter.strided and case.attrs.get("memory", "dense") != "dense":
            raise Unsupported(f"takes dense tensors only, not memory={case['memory']}")
        if device not in adapter.devices:
            raise Unsupported(f"runs on {' and '.join(adapter.devices)}, not on {device}")
        arrays = {key: to_array(tensor, adapter.arrays) for key, tensor in tensors.items()}
        launch = adapter.bind(case, Tensors(arrays))
        if not callable(launch):
            raise TypeError(f"{name} must return the function that launches, not {type(launch).__name__}")
        outputs = [key for key, tensor in tensors.items() if tensor.role != "in"]
        gc.collect()
        gc.disable()  # a collection in the middle of a sample is nobody's time; binding collects
        return Bound(case, adapter, launch, outputs)

    def release(self) -> None:
        """A case is over: what its launches kept goes back to the card, where other workers need it."""
        Bound.turn = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def of_file(self, case: Case, name: str) -> Adapter:
        """A function of the user's: registered for this op, or any function of that name."""
        path, _, function = name.rpartition(":")
        if path not in self.files:
            self.files[path] = registry.load_file(path)
        module = self.files[path]
        chosen = getattr(module, function, None)
        if chosen is None:
            raise AttributeError(f"{path} has no function {function}")
        made: Optional[Adapter] = getattr(chosen, "kmark_adapter", None)
        if made is None:
            return registry.adapter_of(chosen, case.op, name)
        if made.op != case.op:
            raise Unsupported(f"{function} is an impl of {made.op}, not of {case.op}")
        return made

    def explain(self, error: BaseException) -> tuple[str, str]:
        return explain(error, self.family)


def is_file(name: str) -> bool:
    return name.rpartition(":")[0].endswith(".py")


class Tensors(SimpleNamespace):
    """The tensors of a case by name; `None` for those that this case has not."""

    def __init__(self, arrays: dict[str, Any]):
        super().__init__(**arrays)

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)
        return None


class Bound:
    """An adapter bound to a case: the launch, and what Rust wants to know about it."""

    # Whose turn it is, what was allocated when it began, and whether what is allocated once was there already.
    turn: Optional[tuple[Bound, dict[str, int], bool]] = None

    def __init__(self, case: Case, adapter: Adapter, launch: Callable[[], Any], outputs: list[str]):
        self.launch = launch
        self.outputs = outputs
        self.build_ns = None if case.build_ns is None else float(case.build_ns)
        self.tune_ns = None if case.tune_ns is None else float(case.tune_ns)
        self.contract = adapter.contract_of(case)
        self.notes = case.notes + [receipt(adapter)]
        self.arrangements = case.arrangements
        self.grown: dict[str, int] = {}

    def refresh(self) -> None:
        """Inputs have changed."""
        for again in self.arrangements:
            again()

    def begin_turn(self, settled: bool) -> None:
        """From here on this one launches. What grew until here is of the turn that ends."""
        live = live_bytes()
        if Bound.turn is not None and Bound.turn[2]:
            Bound.turn[0].grow(Bound.turn[1], live)
        Bound.turn = self, live, settled

    def grow(self, before: dict[str, int], now: dict[str, int]) -> None:
        for kind, live in now.items():
            self.grown[kind] = self.grown.get(kind, 0) + live - before.get(kind, live)

    def check_memory(self, launches: int) -> None:
        """Memory that grows with every launch is a leak."""
        if Bound.turn is not None:
            Bound.turn[0].begin_turn(Bound.turn[2])
        for kind, grown in self.grown.items():
            if launches > 10 and grown > LEAK_BYTES[kind]:
                raise MemoryError(f"keeps {grown // launches:,} bytes more of {kind} memory with every launch: a leak")

    def collect(self, result: Any) -> list[tuple[str, str, Any]]:
        """What a launch returned, as (output, dtype, array); nothing if it wrote into the outputs itself."""
        if result is None:
            return []
        if isinstance(result, dict):
            named = list(result.items())
        else:
            values = list(result) if isinstance(result, (tuple, list)) else [result]
            if len(values) > len(self.outputs):
                raise WrongResult(f"{len(values)} arrays were returned; the op has {len(self.outputs)} outputs")
            named = list(zip(self.outputs, values))
        return [(name, *plain(value)) for name, value in named if value is not None]


# What may be kept beside: caches that fill slowly. The allocator on a card is exact, the host's is not.
LEAK_BYTES = {"the card's": 1 << 20, "the host's": 64 << 20}


def live_bytes() -> dict[str, int]:
    """Bytes in use, by kind of memory."""
    live = {}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        live["the card's"] = torch.cuda.memory_allocated()
    statm = pathlib.Path("/proc/self/statm")
    if statm.exists():
        live["the host's"] = int(statm.read_text().split()[1]) * 4096
    return live


class WrongResult(Exception):
    """A launch returned something that cannot be the op's result."""


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


NAMES = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int32": "i32", "int64": "i64",
}  # fmt: skip


def plain(value: Any) -> tuple[str, Any]:
    """Our name of an array's dtype, and the array dense and as DLPack can carry it."""
    dtype = str(getattr(value, "dtype", type(value).__name__)).rpartition(".")[2]
    name = NAMES.get(dtype, dtype)
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        value = value.detach().contiguous()
        if name.startswith("f8"):
            value = value.view(sys.modules["torch"].uint8)
    elif type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "flags"):
        value = sys.modules["numpy"].ascontiguousarray(value)
        value = value if value.flags.writeable else value.copy()
    return name, value


def receipt(adapter: Adapter) -> str:
    """Interpreter and versions of what the adapter's worker has loaded, for the record."""
    parts = [f"Python {platform.python_version()}"]
    for module, package in PACKAGES.items():
        if module in sys.modules:
            try:
                parts.append(f"{package} {importlib.metadata.version(package)}")
            except importlib.metadata.PackageNotFoundError:
                version = getattr(sys.modules[module], "__version__", "of unknown version")
                parts.append(f"{module} {version}")
    settings = os.environ.get("KMARK_SETTINGS")
    return ", ".join(parts) + (f"; set: {settings}" if settings else "")


# Module -> distribution, for receipts.
PACKAGES = {
    "numpy": "numpy", "torch": "torch", "triton": "triton", "quack": "quack-kernels", "cutlass": "nvidia-cutlass-dsl",
    "liger_kernel": "liger-kernel", "flash_attn": "flash-attn-4", "flash_attn_interface": "flash-attn-3",
    "flashinfer": "flashinfer-python", "deep_gemm": "deep_gemm", "sgl_kernel": "sglang-kernel", "fla": "fla-core",
    "tilelang": "tilelang", "xformers": "xformers",
}  # fmt: skip


def explain(error: BaseException, family: str) -> tuple[str, str]:
    """The status of a record and its message."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, Unsupported):
        return "unsupported", str(error)
    if isinstance(error, WrongResult):
        return "wrong", str(error)
    if isinstance(error, ImportError):
        return "unavailable", f"{text}; {how_to_get(family)}"
    if "OutOfMemoryError" in kinds or isinstance(error, MemoryError):
        return "out-of-memory", text.split("\n")[0]
    if kinds & {"CompilationError", "BackendCompilerFailed", "InductorError", "PTXASError", "DSLRuntimeError"}:
        return "build-failed", text
    where = [frame for frame in traceback.extract_tb(error.__traceback__) if "/kmark/worker.py" not in frame.filename]
    place = f" ({pathlib.Path(where[-1].filename).name}:{where[-1].lineno})" if where else ""
    return "crashed", text.split("\n")[0] + place


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
    args = parser.parse_args()
    _native.load()
    from . import _kmark

    _kmark.serve(args.family, args.device, torch_stream(args.device), Adapters(args.family))


if __name__ == "__main__":
    main()
