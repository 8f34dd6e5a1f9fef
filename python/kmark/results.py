"""What the harness gives back: raw samples, and everything that can be derived from them."""

from __future__ import annotations

import math
import os
import statistics
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Iterator, Mapping, Optional, Sequence, Union, overload

from . import _engine, _show, _units

Path = Union[str, "os.PathLike[str]"]
Scalar = Union[int, float, str, bool, None]


@dataclass(frozen=True)
class Visit:
    """One turn of a function. Two visits of one round are a comparison of the function with itself."""

    round: int
    samples: int
    conditions: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class Failure:
    """A function without a time at a point of a sweep, or of a run: refused (`status` "unsupported" or "unavailable"),
    wrong, crashed. `message` is one line, `traceback` what Python said of it."""

    name: str
    case: str
    point: Mapping[str, Scalar]
    status: str
    message: str
    traceback: str = field(default="", repr=False)
    #: The run and the record that it was read from.
    origin: Any = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        return _label(self.name, self.point)

    def __str__(self) -> str:
        return f"{self.label}: {self.status}: {self.message}"


@dataclass(frozen=True, repr=False)
class Result:
    """One function's times. Samples are per launch, in ns, in the order of measuring; outliers stay.

    r = kmark.Harness().measure(step, "step", bytes=3 * a.nbytes)
    r.time_ns, r.ci, r.p99, r.gbps
    r.save("runs/today")
    print(r.compare("runs/last-week"))
    """

    name: str
    samples_ns: tuple[float, ...]
    visits: tuple[Visit, ...]
    mode: str
    device: Mapping[str, str]
    verified: bool
    flops: Optional[float] = None
    bytes: Optional[float] = None
    items: Optional[float] = None
    #: What is computed: functions of one case do the same work. An op, in runs of `kmark run`.
    case: str = ""
    #: Where in a sweep this is.
    point: Mapping[str, Scalar] = field(default_factory=dict)
    #: The processor's clock at each sample; empty where it cannot be read.
    clock_mhz: tuple[float, ...] = ()
    #: The first call ever, compiling and all, by the host's clock.
    first_call_ns: Optional[float] = None
    #: Results of one group took turns with each other.
    group: str = ""
    calibration: Mapping[str, Optional[float]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    started: str = ""
    #: What ended the last visit: precision, budget, samples.
    stop: Optional[str] = None
    #: Of the function's text, where there is one.
    hash: str = ""
    remarks: tuple[str, ...] = ()
    #: The run and the record that it was read from.
    origin: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.samples_ns:
            raise ValueError(f"{self.name} has no samples")
        if not all(math.isfinite(ns) and ns > 0 for ns in self.samples_ns):
            raise ValueError(f"{self.name} has samples that are no durations")
        if sum(v.samples for v in self.visits) != len(self.samples_ns):
            raise ValueError(f"the visits of {self.name} do not add up to its {len(self.samples_ns)} samples")

    @cached_property
    def _time(self) -> tuple[float, float, float]:
        return _engine.time(self.by_visit())

    @property
    def time_ns(self) -> float:
        """What a call takes: the mean of the middle half of the visits, each the mean of the middle half of its
        samples. Steadier than the median (`p50`), and as robust."""
        return self._time[0]

    @property
    def ci(self) -> tuple[float, float]:
        """The 95 % interval of that time, in ns."""
        return self._time[1:]

    @property
    def precision(self) -> float:
        """Half that interval, relative to the time."""
        return (self.ci[1] - self.ci[0]) / 2 / self.time_ns if self.time_ns else math.inf

    @property
    def mean(self) -> float:
        return statistics.fmean(self.samples_ns)

    @property
    def std(self) -> float:
        """Of the samples (n - 1); not a number for a single one."""
        return statistics.stdev(self.samples_ns) if len(self.samples_ns) > 1 else math.nan

    @property
    def min(self) -> float:
        return min(self.samples_ns)

    @property
    def max(self) -> float:
        return max(self.samples_ns)

    def percentile(self, q: float) -> float:
        """The time in ns below which the share `q` of the samples lies: `percentile(0.95)`."""
        if not 0 <= q <= 1:
            raise ValueError(f"percentile: q lies between 0 and 1, so write 0.95, not {q}")
        return _engine.percentile(self.samples_ns, q)

    @property
    def p50(self) -> float:
        return self.percentile(0.50)

    @property
    def p90(self) -> float:
        return self.percentile(0.90)

    @property
    def p95(self) -> float:
        return self.percentile(0.95)

    @property
    def p99(self) -> float:
        return self.percentile(0.99)

    def _rate(self, amount: Optional[float]) -> Optional[float]:
        return amount / self.time_ns if amount is not None and self.time_ns else None

    @property
    def gbps(self) -> Optional[float]:
        """GB/s, if `bytes` was given."""
        return self._rate(self.bytes)

    @property
    def tflops(self) -> Optional[float]:
        """TFLOP/s, if `flops` was given."""
        rate = self._rate(self.flops)
        return None if rate is None else rate / 1e3

    @property
    def items_per_s(self) -> Optional[float]:
        """Items (tokens, queries, rows) per second, if `items` was given."""
        rate = self._rate(self.items)
        return None if rate is None else rate * 1e9

    def by_visit(self) -> list[list[float]]:
        """The samples, one list per visit."""
        lists, at = [], 0
        for visit in self.visits:
            lists.append(list(self.samples_ns[at : at + visit.samples]))
            at += visit.samples
        return lists

    def in_pairs(self) -> list[list[float]]:
        """The visits that verdicts are made of: two per round, in order. The last one, after which the output
        was checked, has no second."""
        rounds: dict[int, list[list[float]]] = {}
        for visit, samples in zip(self.visits, self.by_visit()):
            rounds.setdefault(visit.round, []).append(samples)
        return [samples for pair in rounds.values() if len(pair) == 2 and all(pair) for samples in pair]

    @cached_property
    def noise(self) -> Optional[float]:
        """How far the function is from itself: the mean difference of the two visits of a round, relative."""
        times = [_engine.time([samples])[0] for samples in self.in_pairs()]
        logs = [math.log(a / b) for a, b in zip(times[::2], times[1::2]) if a > 0 and b > 0]
        return math.expm1(abs(statistics.fmean(logs))) if len(logs) >= 2 else None

    @property
    def core_mhz(self) -> Optional[float]:
        """The clock of a CPU's core while the function was timed."""
        on_cpu = self.device.get("kind") == "cpu"
        return statistics.geometric_mean(self.clock_mhz) if on_cpu and self.clock_mhz else None

    @property
    def label(self) -> str:
        """The name with its place in a sweep."""
        return _label(self.name, self.point)

    @property
    def notes(self) -> list[str]:
        """What a reader of the number must know."""
        return _show.notes(self)

    def compare(self, base: Union[Result, Path]) -> Comparison:
        """This against `base`, a result, or the same function of the same case in a run that was saved. Results that
        took turns (`Harness.versus`) are compared by their rounds; for others, what a machine differs from run to run
        is allowed for, as `kmark compare` does."""
        if isinstance(base, Result):
            return _compare(base, self)
        from ._runs import load

        found = [r for r in load(base) if (r.name, r.case, dict(r.point), r.mode) == self._key]
        if len(found) != 1:
            raise ValueError(f"{os.fspath(base)}: {len(found) or 'no'} results like '{self.label}' of '{self.case}'")
        return _compare(found[0], self)

    @property
    def _key(self) -> tuple[str, str, dict[str, Scalar], str]:
        return self.name, self.case, dict(self.point), self.mode

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Writes the folder of a run with this result alone; as `Results.save`."""
        Results([self]).save(folder, overwrite=overwrite)

    def __repr__(self) -> str:
        return f"<kmark.Result {self}>"

    def __str__(self) -> str:
        return _show.result_text(self)

    def _repr_html_(self) -> str:
        return _show.result_html(self)


@dataclass(frozen=True)
class Comparison:
    """`new` against `base`. `ratio` is the time of base over that of new: 2 means twice as fast.

    `low` and `high` enclose the ratio; `sees` is the smallest relative difference that would have been found,
    without which a "same" means nothing. `note` says why there is no verdict, if there cannot be one."""

    base: str
    new: str
    ratio: float
    low: Optional[float]
    high: Optional[float]
    sees: Optional[float]
    verdict: str
    note: str = ""

    @property
    def speedup(self) -> float:
        return self.ratio

    @property
    def improvement_pct(self) -> float:
        """Time saved, in percent of the base's."""
        return 100 * (1 - 1 / self.ratio)

    def __str__(self) -> str:
        enclosed = "" if self.low is None or self.high is None else f" ({self.low:.3f} to {self.high:.3f})"
        why = self.note or _units.sees(self.sees)
        return f"{self.new} is {self.ratio:.3f}× as fast as {self.base}{enclosed}: {self.verdict}, {why}"


def _label(name: str, point: Mapping[str, Scalar]) -> str:
    return " ".join([name, *(f"{k}={v}" for k, v in point.items())])


def _compare(base: Result, new: Result) -> Comparison:
    note = _not_comparable(base, new)
    if note:
        ratio = base.time_ns / new.time_ns if new.time_ns else math.nan
        return Comparison(base.label, new.label, ratio, None, None, None, "ambiguous", note)
    in_turns = bool(base.group) and base.group == new.group
    side = lambda r: (r.in_pairs(), r.time_ns, r.core_mhz)
    found = _engine.verdict(side(base), side(new), None if in_turns else base.device["kind"])
    interval = found["low"], found["high"]
    return Comparison(base.label, new.label, found["ratio"], *interval, found["sees"], found["verdict"], found["note"])


def _not_comparable(base: Result, new: Result) -> str:
    """Why two results cannot be told apart, in words, or nothing."""
    if base.device.get("id") != new.device.get("id") or base.device.get("name") != new.device.get("name"):
        return f"other devices, {base.device.get('name')} and {new.device.get('name')}"
    if base.mode != new.mode:
        return f"other clocks, {base.mode} and {new.mode}"
    if dict(base.point) != dict(new.point):
        return "other points of the sweep"
    return ""


class Results(Sequence[Result]):
    """Several results: a table when printed, a sequence otherwise.

        rs = kmark.Harness().versus({"old": old, "new": new})
        rs["new"].time_ns, rs.comparison("new").verdict
        pandas.DataFrame(rs.to_records())

    `base` names the one that others are held against, within each group; the first, if none is named.
    `skipped` are points of a sweep that were refused, `failed` those that raised or were wrong, with the reason."""

    def __init__(
        self,
        results: Sequence[Result],
        base: Optional[str] = None,
        skipped: Sequence[Failure] = (),
        failed: Sequence[Failure] = (),
    ) -> None:
        self._results = list(results)
        self.base = base
        self.skipped = list(skipped)
        self.failed = list(failed)

    @overload
    def __getitem__(self, key: Union[int, str]) -> Result: ...
    @overload
    def __getitem__(self, key: slice) -> Results: ...
    def __getitem__(self, key: Union[int, str, slice]) -> Union[Result, Results]:
        if isinstance(key, slice):
            return Results(self._results[key], self.base)
        if isinstance(key, int):
            return self._results[key]
        found = [r for r in self if key in (r.name, r.label)]
        if len(found) != 1:
            names = ", ".join(dict.fromkeys(r.label for r in found or self))
            raise KeyError(f"{'several are' if found else 'none is'} named '{key}'; there are {names}")
        return found[0]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def __add__(self, other: Results) -> Results:
        rest = [*self.skipped, *other.skipped], [*self.failed, *other.failed]
        return Results([*self, *other], self.base, *rest)

    def where(self, **point: Scalar) -> Results:
        """Those at a point of a sweep: `where(m=4096)`."""
        return Results([r for r in self if all(r.point.get(k) == v for k, v in point.items())], self.base)

    @property
    def noise(self) -> Optional[float]:
        """The A/A noise: what these results differ from themselves, the 95 % quantile over them."""
        known = [r.noise for r in self if r.noise is not None]
        return _engine.percentile(known, 0.95) if known else None

    def base_of(self, result: Result) -> Optional[Result]:
        """The one that `result` is held against; none for the base itself and for one that took no turns."""
        group = [r for r in self if result.group and r.group == result.group]
        base = next((r for r in group if self.base in (None, r.name)), None)
        return None if base is None or base is result else base

    def comparison(self, of: Union[int, str, Result]) -> Optional[Comparison]:
        """One of these against its base."""
        result = of if isinstance(of, Result) else self[of]
        base = self.base_of(result)
        return None if base is None else _compare(base, result)

    @property
    def comparisons(self) -> list[Comparison]:
        return [c for c in map(self.comparison, self) if c is not None]

    def against(self, base: str) -> Results:
        """The same with another base."""
        if base not in {r.name for r in self}:
            raise KeyError(f"none is named '{base}'; there are {', '.join(dict.fromkeys(r.name for r in self))}")
        return Results(self._results, base, self.skipped, self.failed)

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict per result, for pandas, csv or json."""
        return [_show.record(r, self.comparison(r)) for r in self]

    def plot(
        self, path: Optional[Path] = None, *, x: Optional[str] = None, y: str = "time", backend: Optional[str] = None
    ) -> Any:
        """Draws them: a line per function over the axis `x` of a sweep (its first of numbers), with intervals, or
        bars where there is none. `y`: "time", "gbps", "tflops" or "items". Saved to `path` if given.

        With matplotlib the axes are returned, else an SVG that notebooks show; `backend="svg"` (or "matplotlib") says
        which.

        h.sweep(makers, {"n": [1024, 4096, 16384]}).plot("exp.svg")
        """
        from ._plot import plot

        return plot(self, path, x, y, backend)

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Writes the folder of a run, as `kmark run --out` does: `kmark.load`, `kmark report`, `kmark compare` and
        `kmark merge` read it. What is there is kept unless `overwrite=True`. Results of other devices or settings are
        other runs: save them apart."""
        from ._runs import save

        save(folder, self, overwrite)

    def __str__(self) -> str:
        return _show.results_text(self)

    def __repr__(self) -> str:
        return f"<kmark.Results of {len(self)}>\n{self}"

    def _repr_html_(self) -> str:
        return _show.results_html(self)
