"""The compiled part of Kernelmark: the devices, their clocks, and the statistics of the engine."""

from collections.abc import Callable
from typing import Any, Literal, TypedDict

__version__: str

class Measured(TypedDict):
    """One turn of a function."""

    samples_ns: list[float]
    clock_mhz: list[float]
    stop: Literal["precision", "budget", "samples"]
    conditions: dict[str, Any] | None

class Verdict(TypedDict):
    """`ratio` is the time of the base over that of the new one: above 1, the new one is faster."""

    verdict: Literal["faster", "slower", "same", "ambiguous"]
    ratio: float
    low: float
    high: float
    sees: float | None
    #: Why there is no verdict, if there cannot be one.
    note: str

class Session:
    """A device with its calibrated clock. RuntimeError, in one line, if it cannot be opened or is off.

    `device`: "auto", "cpu", "cuda", "cuda:1". `stream`: the raw stream on which functions launch (0 is CUDA's
    default stream); the CPU has none and ignores it."""

    def __init__(self, device: str = "auto", stream: int | None = None) -> None: ...
    @property
    def device(self) -> dict[str, str]: ...
    @property
    def calibration(self) -> dict[str, float | None]: ...
    def visit(
        self,
        function: Callable[[], Any],
        *,
        mode: str,
        budget_ns: int,
        precision: float,
        min_samples: int,
        max_samples: int,
        warmup_ns: int | None = None,
    ) -> Measured:
        """Warms up, then times `function` until the median is known to `precision` or the budget is spent."""

def percentile(samples: list[float], q: float) -> float:
    """`q` lies between 0 and 1."""

#: Visits (two in a row are those of one round), the time that is shown, and the clock of a CPU's core in MHz.
Side = tuple[list[list[float]], float, float | None]

def verdict(base: Side, new: Side, across: str | None = None) -> Verdict:
    """Compares two functions. `across`: the kind of device, where they took no turns."""

def append_run(folder: str, run: str, records: list[str]) -> None:
    """Adds records to the run in `folder`, or begins one; all as JSON. ValueError for what does not fit."""

def load_runs(path: str) -> list[dict[str, Any]]:
    """`name`, `run` and `records` of the runs at `path`."""

def compare_runs(base: list[str], new: list[str], threshold: float) -> dict[str, Any]:
    """As `kmark compare --format json` has it."""

class Judged(TypedDict):
    """One output held against what is expected. Of the worst element `index` (flat), what was `got`, `expected` and
    `allowed`, and `ratio`, its error over that; `beyond` is how many elements exceed it."""

    ok: bool
    grade: Literal["tight", "loose"] | None
    elements: int
    beyond: int
    ratio: float
    index: int | None
    got: float | None
    expected: float | None
    allowed: float | None
    rms: float | None
    twin_rms: float | None
    problems: list[str]

def judge(
    got: Any,
    dtype: str,
    expect: Any,
    slack: Any,
    *,
    loose: Any = None,
    shape: list[int] | None = None,
    name: str = "y",
    rounds_to: str | None = None,
    rms_share: float | None = None,
) -> Judged:
    """The gate, for one output. Arrays are NumPy's or torch's in the host's memory, or `bytes`: `got` of elements of
    `dtype` (whole numbers of the same size stand for types that NumPy has not), the others f64. `slack` is how far
    a right element may be off before its last rounding, `loose` the same for kernels that round on the way; absolute,
    one number or one per element, infinite where anything may stand. `rounds_to` is the output's dtype where `got` is
    wider. ValueError for what does not fit together."""

def time(visits: list[list[float]]) -> tuple[float, float, float]:
    """The time that is shown for these visits, and its 95 % interval."""

def turns(rounds: int, budget_ns: int, key: int, round: int, spent_ns: list[int]) -> list[int]:
    """The visits of a round, by number of the function: each twice, in balanced order. Who has spent the budget is
    left out."""

class Tensor:
    """A tensor of the engine's, lent to a library without a copy."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def role(self) -> Literal["in", "out", "inout"]: ...
    @property
    def address(self) -> int: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(self, **asked: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def serve(family: str, device: str, stream: int | None, adapters: Any) -> None:
    """A worker's side of the protocol, until the host leaves."""
