"""Kernelmark: how fast is a kernel really?

Time functions of your own, in turns, with intervals and verdicts:

    import kmark
    h = kmark.Harness()
    print(h.versus({"sort": lambda: sorted(data), "copy": lambda: data[:]}))

Or bring an impl of an op, checked against the fp64 oracle: `@kmark.impl(op="rmsnorm")` in a file of yours,
then `kmark run rmsnorm --impl ./mine.py:fast`.
"""

from typing import TYPE_CHECKING

from . import _native

_native.load()

from ._runs import load  # noqa: E402  (the compiled part must be found first)
from ._work import Work, WrongResult  # noqa: E402
from .closeness import Closeness, close  # noqa: E402
from .harness import Harness  # noqa: E402
from .own import Op, op  # noqa: E402
from .registry import Case, Unsupported, impl  # noqa: E402
from .results import Comparison, Failure, Result, Results, Visit  # noqa: E402

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "Case",
    "Closeness",
    "Comparison",
    "Failure",
    "Harness",
    "Op",
    "Result",
    "Results",
    "Unsupported",
    "Visit",
    "Work",
    "WrongResult",
    "__version__",
    "close",
    "impl",
    "load",
    "op",
]


def __getattr__(name: str) -> str:
    # Only the compiled part knows its version, and adapters can be read without it.
    if name == "__version__":
        from . import _engine

        return _engine.version()
    raise AttributeError(f"module 'kmark' has no attribute '{name}'")
