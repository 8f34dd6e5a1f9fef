"""Timing people's own functions with the engine that times kernels: in turns, and with intervals."""

from __future__ import annotations

import itertools
import pathlib
import re
import secrets
import time
from datetime import datetime, timezone
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from . import _caller, _engine, _files, _units
from ._work import Check, Function, Turn, Work, Workable, name_of, named, work_of
from .registry import Unsupported
from .results import Comparison, Path, Result, Results, Scalar, Visit


class Harness:
    """Measures functions without arguments on one device.

        h = kmark.Harness()
        r = h.measure(lambda: a @ b, "matmul", flops=2 * n**3, check=lambda y: np.allclose(y, wanted))
        print(r)                                              # time with its interval, TFLOP/s, device
        print(h.versus({"old": old, "new": new}))             # in turns, with verdicts
        print(h.sweep(make, {"m": [1, 4096], "n": [4096, 7168]}))

    - `device`: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1".
    - `mode`: "cold" (nothing in the cache; default on a GPU), "hot" (launch after launch; default on the
      CPU), on a GPU also "graph" and "e2e" (the host's clock, from the call to the end of a wait).
    - `budget`: sampling time per function, "200ms", "1s" or seconds; it ends earlier when the time's 95 %
      interval is narrower than `precision`. `min_samples` and `max_samples` bound each visit; the same number
      twice fixes it.
    - `rounds`: in each, every function is visited twice. More rounds sharpen verdicts faster than more
      budget.
    - `warmup`: until times are steady, or as long as you say.
    - `out`: a folder in which every result is kept as a JSON file of its own.

    On a GPU, functions must launch on one stream, must not wait for it, and are timed by events on it. It is
    `stream` if given, torch's current stream if torch is imported, CUDA's default stream otherwise. Calls are
    repeated on the same data: a function that changes its inputs must be one to which that is the same."""

    def __init__(
        self,
        device: str = "auto",
        *,
        mode: Optional[str] = None,
        budget: _units.Duration = "1s",
        precision: float = 0.005,
        rounds: int = 20,
        warmup: Optional[_units.Duration] = None,
        min_samples: int = 5,
        max_samples: int = 2000,
        stream: Optional[int] = None,
        out: Optional[Path] = None,
        overwrite: bool = False,
    ) -> None:
        self.budget_ns = _units.nanoseconds(budget, "budget")
        self.warmup_ns = None if warmup is None else _units.nanoseconds(warmup, "warmup", zero=True)
        if not 0 < precision < 1:
            raise ValueError(f"precision lies between 0 and 1, like 0.005 for 0.5 %; {precision} does not")
        if rounds < 1:
            raise ValueError(f"rounds must be 1 or more, not {rounds}")
        if not 1 <= min_samples <= max_samples:
            raise ValueError(f"samples: 1 <= min ({min_samples}) <= max ({max_samples}) does not hold")
        self.precision, self.rounds = precision, rounds
        self.min_samples, self.max_samples = min_samples, max_samples
        self.out, self.overwrite = None if out is None else pathlib.Path(out), overwrite
        self._follows_torch = stream is None
        if stream is None:
            device, stream = _caller.stream(device)
        self.stream, self._opened = stream, device
        self._session = _engine.session(device, stream)
        self.device = dict(self._session.device)
        self.calibration = dict(self._session.calibration)
        self.mode = _caller.mode(mode, self.device["kind"], self.stream)

    def __repr__(self) -> str:
        return f"<kmark.Harness on {self.device['name']}, {self.mode}, {self.rounds} rounds>"

    def measure(
        self,
        fn: Function,
        name: Optional[str] = None,
        *,
        flops: Optional[float] = None,
        bytes: Optional[float] = None,
        items: Optional[float] = None,
        check: Optional[Check] = None,
        setup: Optional[Function] = None,
    ) -> Result:
        """One function. Without `check` the result says that it is unverified.

        h.measure(lambda: np.add(a, b, out=c), "add", bytes=3 * a.nbytes, check=lambda: (c == a + b).all())
        """
        name = name_of(fn) if name is None else name
        work = work_of(Work(fn, flops, bytes, items, check, setup), name)
        return self._turns({name: work})[0]

    def versus(
        self,
        functions: Mapping[str, Workable],
        *,
        base: Optional[str] = None,
        flops: Optional[float] = None,
        bytes: Optional[float] = None,
        items: Optional[float] = None,
        check: Optional[Check] = None,
        setup: Optional[Function] = None,
    ) -> Results:
        """Several functions that do the same work, in turns and balanced order, so that drift hits all alike;
        each is also compared with itself. `base` (default: the first) is what verdicts refer to. What is
        given here holds for every function that says no other: `{"a": f, "b": kmark.Work(g, check=other)}`.
        """
        if base is not None and base not in functions:
            raise ValueError(f"base: none is named '{base}'; there are {', '.join(functions)}")
        common = Work(lambda: None, flops, bytes, items, check, setup)
        works = {name: work_of(value, name, common) for name, value in functions.items()}
        return Results(self._turns(works), base)

    def compare(self, base: Union[Workable, Result], new: Union[Workable, Result], **what: Any) -> Comparison:
        """Is `new` faster than `base`? Keywords are those of `versus`. Two results are compared as they are.

        print(h.compare(old, new))      # new is 1.520× as fast as old (1.490 to 1.550): faster, sees 1.40 %
        """
        if isinstance(base, Result) or isinstance(new, Result):
            if isinstance(base, Result) and isinstance(new, Result):
                return new.compare(base)
            raise TypeError("compare: a result and a function cannot take turns; give two functions")
        names = [name_of(work_of(f, side).fn, side) for f, side in ((base, "base"), (new, "new"))]
        if names[0] == names[1]:
            names = ["base", "new"]
        found = self.versus(dict(zip(names, (base, new))), **what).comparison(1)
        assert found is not None
        return found

    def sweep(
        self,
        make: Union[Callable[..., Workable], Mapping[str, Callable[..., Workable]]],
        grid: Mapping[str, Sequence[Any]],
        name: Optional[str] = None,
        *,
        base: Optional[str] = None,
    ) -> Results:
        """Every combination of the grid. `make(**point)` returns the function, or `(fn, flops, bytes)`, or a
        `Work`; it may raise `kmark.Unsupported("why")` to leave a point out. Several makers by name take
        turns at each point.

        def make(m, n):
            x, y = np.ones((m, n)), np.empty((m, n))
            return lambda: np.exp(x, out=y), None, 2 * x.nbytes
        h.sweep(make, {"m": [1, 4096], "n": [4096, 7168]}, "exp")
        """
        makers = dict(make) if isinstance(make, Mapping) else {name_of(make) if name is None else name: make}
        if base is not None and base not in makers:
            raise ValueError(f"base: none is named '{base}'; there are {', '.join(makers)}")
        for axis, values in grid.items():
            if isinstance(values, str) or not list(values):
                raise ValueError(f"grid: '{axis}' needs a list of values, not {values!r}")
        results, skipped = Results([], base), []
        for values in itertools.product(*grid.values()):
            point = dict(zip(grid, values))
            place = {axis: _caller.scalar(value) for axis, value in point.items()}
            works = {}
            for label, maker in makers.items():
                full = _label(label, place)
                try:
                    with named(full):
                        works[label] = work_of(maker(**point), full)
                except Unsupported as why:
                    skipped.append((full, str(why)))
            if works:
                results = results + Results(self._turns(works, place))
        results.skipped = skipped
        return results

    def _turns(self, works: Mapping[str, Work], point: Optional[Mapping[str, Scalar]] = None) -> list[Result]:
        """All of them checked, then timed in turns, then checked again."""
        if not works:
            raise ValueError("no functions to measure")
        self._same_stream()
        place = dict(point or {})
        taken = [Turn(name, _label(name, place), work) for name, work in works.items()]
        files = self._files(taken)
        started, group = datetime.now(timezone.utc).isoformat(timespec="milliseconds"), secrets.token_hex(4)
        for turn in taken:
            turn.first()
        key = secrets.randbits(64)
        for round_ in range(self.rounds):
            spent = [t.spent_ns for t in taken]
            for at in _engine.turns(self.rounds, self.budget_ns, key, round_, spent):
                self._visit(taken[at], round_)
        for turn in taken:
            self._close(turn)
        common: dict[str, Any] = {
            "mode": self.mode, "device": self.device, "calibration": self.calibration,
            "environment": _caller.environment(),
            "started": started, "group": group, "point": place,
        }  # fmt: skip
        results = [turn.result({**self._settings(), "place": i}, common) for i, turn in enumerate(taken)]
        for file, result in zip(files, results):
            result.save(file, overwrite=self.overwrite)
        return results

    def _visit(self, turn: Turn, round_: int) -> None:
        start = time.perf_counter_ns()
        share = self.budget_ns // (2 * self.rounds)
        self._sample(turn, round_, share, self.min_samples, self.max_samples, self.warmup_ns)
        turn.spent_ns += time.perf_counter_ns() - start

    def _close(self, turn: Turn) -> None:
        """One more timed call, beyond the rounds, and the check of it: others may have written since."""
        if turn.work.check is not None:
            self._sample(turn, self.rounds, 0, 1, 1, 0)
            turn.check_again()

    def _sample(self, turn: Turn, round_: int, budget: int, least: int, most: int, warmup: Optional[int]) -> None:
        turn.ready()
        with named(turn.label), _caller.no_collection():
            seen = self._session.visit(
                turn.work.fn,
                mode=self.mode,
                budget_ns=max(1, budget),
                precision=self.precision,
                min_samples=least,
                max_samples=most,
                warmup_ns=warmup,
            )
        turn.samples_ns += seen["samples_ns"]
        turn.clock_mhz += seen["clock_mhz"]
        turn.visits.append(Visit(round_, len(seen["samples_ns"]), seen["stop"], seen["conditions"]))

    def _settings(self) -> dict[str, Any]:
        names = ("budget_ns", "precision", "rounds", "warmup_ns", "min_samples", "max_samples")
        return {name: getattr(self, name) for name in names}

    def _files(self, taken: Sequence[Turn]) -> list[pathlib.Path]:
        """Where results will be kept; known, and free, before any time is spent."""
        if self.out is None:
            return []
        files = [self.out / (re.sub(r"[^\w.=+-]+", "_", turn.label) + ".json") for turn in taken]
        for at, file in enumerate(files):
            if file in files[:at]:
                raise ValueError(f"two functions would be kept in {file}; give them names that differ in letters")
            _files.refuse_existing(file, self.overwrite)
        return files

    def _same_stream(self) -> None:
        """Launches elsewhere would not be timed at all."""
        if self._follows_torch and self.device["kind"] == "cuda":
            if _caller.stream(self._opened)[1] != self.stream:
                raise RuntimeError(
                    "torch's current stream is not the one this Harness times; make the Harness after "
                    "importing torch and inside the same `with torch.cuda.stream(...)`, or give it stream="
                )


def _label(name: str, place: Mapping[str, Scalar]) -> str:
    return " ".join([name, *(f"{axis}={value}" for axis, value in place.items())])
