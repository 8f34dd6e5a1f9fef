"""The pytest plugin: the fixture `kmark`, a table at the end, and verdicts against an earlier run.

def test_sort(kmark):
    assert kmark(sorted, [3, 1, 2]) == [1, 2, 3]

pytest --kmark-out runs/base
pytest --kmark-compare runs/base --kmark-fail slower=3%
"""

from __future__ import annotations

import pathlib
import re
import tempfile
from typing import Any, Callable, Mapping, Optional

import pytest

from . import _engine, _units
from ._work import Workable, name_of
from .harness import Harness
from .results import Result, Results

SERIAL = "kmark: nothing is timed under xdist, whose processes disturb each other; run without -n"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kmark", "timing with kmark")
    group.addoption("--kmark-out", metavar="DIR", help="keep results in this folder, which `kmark report` reads")
    group.addoption("--kmark-compare", metavar="DIR", help="hold results against a run that was kept before")
    group.addoption(
        "--kmark-fail", metavar="slower=3%", help="fail if a function is slower by so much, for certain, than before"
    )
    group.addoption("--kmark-device", default="auto", metavar="NAME", help="auto, cpu, cuda, cuda:1 [default: auto]")
    group.addoption("--kmark-budget", default="1s", metavar="TIME", help="sampling time per function [default: 1s]")
    group.addoption("--kmark-rounds", default=20, type=int, metavar="N", help="rounds [default: 20]")
    group.addoption("--kmark-off", action="store_true", help="call functions once and time nothing")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BENCH] = Bench(config)


@pytest.fixture
def kmark(request: pytest.FixtureRequest) -> Timed:
    """Times functions: `kmark(fn, *args)` returns what `fn` returned; `kmark.measure` and `kmark.versus` are those of
    `kmark.Harness`."""
    return Timed(request.config.stash[BENCH], request.node.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    bench = session.config.stash[BENCH]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["kmark_used"] = bench.used
    bench.compare()
    if bench.regressions() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process of xdist's ends."""
    node.config.stash[BENCH].used |= getattr(node, "workeroutput", {}).get("kmark_used", False)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    config.stash[BENCH].summarise(terminalreporter)


class Bench:
    """What a session measures: one harness, made when it is first needed."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        self.base, self.out = option("kmark_compare"), option("kmark_out")
        self.threshold = _threshold(option("kmark_fail"), self.base)
        under_xdist = hasattr(config, "workerinput") or bool(getattr(config.option, "numprocesses", None))
        self.why_off = SERIAL if under_xdist else "kmark: --kmark-off: nothing is timed" if option("kmark_off") else ""
        self.used = False
        self.results = Results([])
        self.rows: list[dict[str, Any]] = []
        self._options = {"budget": option("kmark_budget"), "rounds": option("kmark_rounds")}
        self._device = option("kmark_device")
        self._harness: Optional[Harness] = None
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None
        if self.base is not None and not pathlib.Path(self.base).exists():
            raise pytest.UsageError(f"--kmark-compare: {self.base} does not exist")
        if self.out is not None and (pathlib.Path(self.out) / "run.json").exists():
            raise pytest.UsageError(f"--kmark-out: {self.out} holds a run already; choose another name")
        if self.base is not None and not self.why_off:
            try:
                _engine.load_runs(self.base)
            except ValueError as error:
                raise pytest.UsageError(f"--kmark-compare: {error}") from None

    @property
    def harness(self) -> Harness:
        if self._harness is None:
            out = self.out
            if out is None and self.base is not None:
                self._folder = tempfile.TemporaryDirectory(prefix="kmark-")
                out = str(pathlib.Path(self._folder.name) / "run")
            self._harness = Harness(self._device, out=out, **self._options)
        return self._harness

    def keep(self, results: Results) -> None:
        self.results = self.results + results

    def compare(self) -> None:
        if self.base is None or self._harness is None or not len(self.results):
            return
        found = _engine.compare_runs([str(self.base)], [str(self._harness.out)], self.threshold or 0.0)
        self.rows = [row for row in found["rows"] if "new_ns" in row]

    def regressions(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["regression"]] if self.threshold is not None else []

    def summarise(self, reporter: Any) -> None:
        if self.why_off and self.used:
            reporter.write_line(self.why_off)
        if len(self.results):
            reporter.section("kmark")
            reporter.write_line(str(self.results))
        if self.rows:
            reporter.write_line("")
            reporter.write_line(f"against {self.base}:")
        for row in self.rows:
            reporter.write_line(_told(row), red=row in self.regressions())
        if self.out is not None and len(self.results):
            reporter.write_line(f"kept in {self.out}; kmark report {self.out} shows it")
        if self._folder is not None:
            self._folder.cleanup()


BENCH = pytest.StashKey[Bench]()


class Timed:
    """The fixture of one test, whose name is the case of all that it times."""

    def __init__(self, bench: Bench, case: str) -> None:
        self._bench, self._case = bench, case
        self._names: list[str] = []
        #: What was measured last.
        self.last = Results([])

    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Times `fn(*args, **kwargs)` and returns what a call of it returned."""
        call = (lambda: fn(*args, **kwargs)) if args or kwargs else fn
        value = call()
        self._bench.used = True
        if not self._bench.why_off:
            self.measure(call, name_of(fn, "function"))
        return value

    def measure(self, fn: Workable, name: Optional[str] = None, **what: Any) -> Optional[Result]:
        """As `Harness.measure`; nothing where nothing is timed."""
        if self._off(fn):
            return None
        name = self._own(name_of(fn, "function") if name is None else name)
        self._take(Results([self._bench.harness.measure(fn, name, case=self._case, **what)]))  # type: ignore[arg-type]
        return self.last[0]

    def versus(self, functions: Mapping[str, Workable], **what: Any) -> Optional[Results]:
        """As `Harness.versus`; nothing where nothing is timed."""
        if any([self._off(fn) for fn in functions.values()]):
            return None
        named = {self._own(name): fn for name, fn in functions.items()}
        self._take(self._bench.harness.versus(named, case=self._case, **what))
        return self.last

    def _off(self, fn: Workable) -> bool:
        """Where nothing is timed, a function is called all the same: it must not raise."""
        self._bench.used = True
        if self._bench.why_off:
            (fn[0] if isinstance(fn, tuple) else fn)()
        return bool(self._bench.why_off)

    def _own(self, name: str) -> str:
        """A test may time a function twice."""
        self._names.append(name)
        count = self._names.count(name)
        return name if count == 1 else f"{name}#{count}"

    def _take(self, results: Results) -> None:
        self.last = results
        self._bench.keep(results)


def _threshold(asked: Optional[str], base: Optional[str]) -> Optional[float]:
    if asked is None:
        return None
    found = re.fullmatch(r"slower=([0-9]*\.?[0-9]+)(%?)", asked)
    if found is None:
        raise pytest.UsageError(f"--kmark-fail: '{asked}' is not like slower=3%")
    if base is None:
        raise pytest.UsageError("--kmark-fail: give the run to compare with, too: --kmark-compare DIR")
    return float(found[1]) / (100 if found[2] else 1)


def _told(row: Mapping[str, Any]) -> str:
    """A row of a comparison in a line."""
    name = f"{row['case']} {row['impl']}"
    if "speedup" not in row:
        return f"{name}: {row['outcome']}"
    note = row.get("note") or _units.sees(row.get("visible"))
    line = f"{name}: {row['speedup']:.3f}× as fast ({row['lo']:.3f} to {row['hi']:.3f}): {row['outcome']}, {note}"
    return f"{line} [too slow]" if row["regression"] else line
