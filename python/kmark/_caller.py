"""What the caller's process says: its streams, its libraries, its garbage collector."""

from __future__ import annotations

import gc
import numbers
import platform
import re
import sys
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Union

from . import _engine

_MODES = {"cpu": ("cold", "hot"), "cuda": ("cold", "hot", "graph", "e2e")}
_LIBRARIES = ("torch", "triton", "numpy", "scipy", "cupy", "numba", "jax", "tilelang")


#: Names of CUDA's default stream, which cannot be captured.
_DEFAULT_STREAM = (0, 1)


def mode(wanted: Optional[str], kind: str, stream: Optional[int]) -> str:
    modes = _MODES.get(kind, _MODES["cuda"])
    if wanted is None:
        return "hot" if kind == "cpu" else "cold"
    if wanted not in modes:
        raise ValueError(f"mode: '{wanted}' is none of {', '.join(modes)}, which there are on {kind}")
    if wanted == "graph" and stream in _DEFAULT_STREAM:
        raise ValueError(
            "mode: CUDA cannot capture its default stream; make the Harness and measure inside "
            "`with torch.cuda.stream(torch.cuda.Stream()):`, or give stream="
        )
    return wanted


def stream(device: str) -> tuple[str, Optional[int]]:
    """The device and the stream on which the caller's functions will launch: torch's current one, if torch is
    there already (it is never imported for this), else CUDA's default one (0), where most others launch."""
    if device == "cpu":
        return device, None
    torch = sys.modules.get("torch")
    number = re.fullmatch(r"cuda:(\d+)", device)
    if torch is None or not (device in ("auto", "cuda") or number) or not torch.cuda.is_available():
        return device, 0
    index = int(number[1]) if number else torch.cuda.current_device()
    return f"cuda:{index}", int(torch.cuda.current_stream(index).cuda_stream)


def environment() -> dict[str, str]:
    """Versions of what is loaded; nothing is imported to find out."""
    found = {
        "kmark": _engine.version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
    }
    for name in _LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    if cuda is not None:
        found["torch_cuda"] = str(cuda)
    return found


def scalar(value: Any) -> Union[int, float, str, bool]:
    """A value of a sweep as JSON can hold it; NumPy's numbers become plain ones, a dtype its name."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else str(value)


@contextmanager
def no_collection() -> Iterator[None]:
    """A collection of garbage is not the function's work."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
