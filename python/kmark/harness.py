"""Timing people's own functions with the engine that times kernels: in turns, and with intervals."""

from __future__ import annotations

import itertools
import pathlib
import secrets
import threading
import time
from datetime import datetime, timezone
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

from . import _caller, _engine, _runs, _spoil, _units
from ._work import Check, Function, Turn, Work, Workable, failure, name_of, named, work_of
from .registry import Unsupported
from .results import Comparison, Failure, Path, Result, Results, Scalar, Visit

#: Two functions that are timed at once disturb each other.
_ONE_AT_A_TIME = threading.RLock()


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
      interval is narrower than `precision`, but not before each visit has `min_samples`; `max_samples` are the
      most of a visit. The same number twice is taken in every visit, whatever the budget.
    - `rounds`: in each, every function is visited twice. More rounds sharpen verdicts faster than more
      budget.
    - `warmup`: until times are steady, or as long as you say.
    - `out`: the folder of a run, as `kmark run` makes it, in which every result is kept at once; `kmark.load`,
      `kmark report` and `kmark compare` read it. `overwrite` replaces a run that is there.

    `last` are the results of the last call, as far as it came: what a sweep had measured before Ctrl-C, for
    instance. Functions are timed one at a time, by whichever thread.

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
        self.out = None if out is None else pathlib.Path(out)
        if self.out is not None:
            _runs.make_room(self.out, overwrite, go_on=True)
        self.last = Results([])
        self._follows_torch = stream is None
        if stream is None:
            device, stream = _caller.stream(device)
        self.stream, self._opened = stream, device
        self._of_thread = threading.local()
        self.device = dict(self._session.device)
        self.calibration = dict(self._session.calibration)
        self.mode = _caller.mode(mode, self.device["kind"], self.stream)

    @property
    def _session(self) -> Any:
        """Of this thread, which opens and calibrates its own."""
        if not hasattr(self._of_thread, "session"):
            self._of_thread.session = _engine.session(self._opened, self.stream)
        return self._of_thread.session

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
        outputs: Any = None,
        case: Optional[str] = None,
    ) -> Result:
        """One function. Without `check` the result says that it is unverified; `kmark.Work` tells what the
        keywords mean. `case` names the work in tables and files; it is the function's name unless given.

        h.measure(lambda: np.add(a, b, out=c), "add", bytes=3 * a.nbytes, check=lambda y: kmark.close(y, a + b))
        """
        name = name_of(fn) if name is None else name
        work = work_of(Work(fn, flops, bytes, items, check, setup, outputs), name)
        self.last = Results([])
        self.last = Results(self._turns({name: work}, case or name))
        return self.last[0]

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
        outputs: Any = None,
        case: Optional[str] = None,
    ) -> Results:
        """Several functions that do the same work, in turns and balanced order, so that drift hits all alike;
        each is also compared with itself. `base` (default: the first) is what verdicts refer to. What is
        given here holds for every function that says no other: `{"a": f, "b": kmark.Work(g, check=other)}`.
        Each is checked by itself: what another one wrote or returned is spoiled before (`kmark.Work`).
        `case` names the work; the names of the functions do unless it is given.
        """
        if base is not None and base not in functions:
            raise ValueError(f"base: none is named '{base}'; there are {', '.join(functions)}")
        common = Work(lambda: None, flops, bytes, items, check, setup, outputs)
        works = {name: work_of(value, name, common) for name, value in functions.items()}
        self.last = Results([], base)
        self.last = Results(self._turns(works, case or _joined(works)), base)
        return self.last

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
        grid: Mapping[str, Iterable[Any]],
        name: Optional[str] = None,
        *,
        base: Optional[str] = None,
    ) -> Results:
        """Every combination of the grid. `make(**point)` returns the function, or `(fn, flops, bytes)`, or a
        `Work`; it may raise `kmark.Unsupported("why")` to leave a point out. Several makers by name take
        turns at each point. `name` names the work.

        A function that raises, or whose check says no, is in `failed` of the results with its traceback, and the
        sweep goes on; if nothing could be measured, its exception is raised. Ctrl-C ends it: `last` of the
        harness has what was measured until then.

        def make(m, n):
            x, y = np.ones((m, n)), np.empty((m, n))
            return lambda: np.exp(x, out=y), None, 2 * x.nbytes
        h.sweep(make, {"m": [1, 4096], "n": [4096, 7168]}, "exp")
        """
        several = isinstance(make, Mapping)
        makers = dict(make) if isinstance(make, Mapping) else {name_of(make) if name is None else name: make}
        if base is not None and base not in makers:
            raise ValueError(f"base: none is named '{base}'; there are {', '.join(makers)}")
        axes = {axis: list(values) if not isinstance(values, str) else [] for axis, values in grid.items()}
        for axis, values in axes.items():
            if not values:
                raise ValueError(f"grid: '{axis}' needs a list of values, not {grid[axis]!r}")
        case = name if name is not None and several else _joined(makers)
        self.last, first = Results([], base), None
        try:
            for chosen in itertools.product(*axes.values()):
                point = dict(zip(axes, chosen))
                found, error = self._at(makers, point, case, base)
                self.last, first = self.last + found, first or error
        except KeyboardInterrupt as stopped:
            if hasattr(stopped, "add_note"):
                stopped.add_note(f"kmark: {len(self.last)} results until then are in `last` of the harness")
            raise
        if not len(self.last) and first is not None:
            raise first
        return self.last

    def _at(
        self, makers: Mapping[str, Callable[..., Workable]], point: Mapping[str, Any], case: str, base: Optional[str]
    ) -> tuple[Results, Optional[BaseException]]:
        """One point of a sweep: what was measured, refused or failed there, and the first that was raised."""
        place = {axis: _caller.scalar(value) for axis, value in point.items()}
        works: dict[str, Work] = {}
        skipped: list[Failure] = []
        raised: dict[str, BaseException] = {}
        for label, maker in makers.items():
            full = _label(label, place)
            try:
                with named(full):
                    works[label] = work_of(maker(**point), full)
            except Unsupported as why:
                skipped.append(Failure(label, case, place, "unsupported", str(why)))
            except Exception as error:
                raised[label] = error
        results = self._turns(works, case, place, raised, skipped) if works else []
        failed = [failure(error, label, case, place) for label, error in raised.items()]
        if not works:
            self._keep([], failed, skipped)
        return Results(results, base, skipped, failed), next(iter(raised.values()), None)

    def _turns(
        self,
        works: Mapping[str, Work],
        case: str,
        point: Optional[Mapping[str, Scalar]] = None,
        raised: Optional[dict[str, BaseException]] = None,
        skipped: Sequence[Failure] = (),
    ) -> list[Result]:
        """All of them checked, then timed in turns, then checked again. Who raises is put into `raised`, where that is
        given, and takes no more turns."""
        if not works:
            raise ValueError("no functions to measure")
        with _ONE_AT_A_TIME:
            self._same_stream()
            place, returned = dict(point or {}), _spoil.Returned()
            taken = [Turn(name, _label(name, place), work, returned) for name, work in works.items()]
            self._refuse_known(case, place, taken)
            started, group = datetime.now(timezone.utc).isoformat(timespec="milliseconds"), secrets.token_hex(4)

            def step(turn: Turn, do: Callable[[], None]) -> None:
                if raised is not None and turn.name in raised:
                    return
                try:
                    do()
                except Exception as error:
                    if raised is None:
                        raise
                    raised[turn.name] = error

            for turn in taken:
                step(turn, turn.first)
            key = secrets.randbits(64)
            for round_ in range(self.rounds):
                spent = [t.spent_ns for t in taken]
                for at in _engine.turns(self.rounds, self.budget_ns, key, round_, spent):
                    step(taken[at], lambda at=at, round_=round_: self._visit(taken[at], round_))  # type: ignore[misc]
            for turn in taken:
                step(turn, lambda turn=turn: self._close(turn))  # type: ignore[misc]
            common: dict[str, Any] = {
                "case": case, "mode": self.mode, "device": self.device, "calibration": self.calibration,
                "environment": _caller.environment(),
                "started": started, "group": group, "point": place,
            }  # fmt: skip
            whole = [turn for turn in taken if not raised or turn.name not in raised]
            results = [turn.result(self._settings(), common) for turn in whole]
            self._keep(results, [failure(e, name, case, place) for name, e in (raised or {}).items()], skipped)
            return results

    def _visit(self, turn: Turn, round_: int) -> None:
        start = time.perf_counter_ns()
        share = self.budget_ns // (2 * self.rounds)
        self._sample(turn, round_, share, self.min_samples, self.max_samples, self.warmup_ns)
        turn.spent_ns += time.perf_counter_ns() - start

    def _close(self, turn: Turn) -> None:
        """One more timed call, beyond the rounds, and the check of it: others may have written since."""
        if turn.work.check is not None:
            turn.spoil()
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
        turn.stop = seen["stop"]
        turn.visits.append(Visit(round_, len(seen["samples_ns"]), seen["conditions"]))

    def _settings(self) -> dict[str, Any]:
        names = ("budget_ns", "precision", "rounds", "warmup_ns", "min_samples", "max_samples")
        return {name: getattr(self, name) for name in names}

    def _refuse_known(self, case: str, place: Mapping[str, Scalar], taken: Sequence[Turn]) -> None:
        """A run has each function of a case once; known before any time is spent."""
        if self.out is not None:
            _runs.refuse_known(self.out, case, place, [turn.name for turn in taken], self.mode)

    def _keep(self, results: Sequence[Result], failed: Sequence[Failure], skipped: Sequence[Failure]) -> None:
        if self.out is None:
            return
        like = _runs.Setting(self.mode, self.device, self.calibration, self._settings(), _caller.environment())
        _runs.append(self.out, [*results, *failed, *skipped], like)

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


def _joined(names: Iterable[str]) -> str:
    """What functions that do the same work are called together."""
    text = ",".join(names)
    return text if len(text) <= 60 else text[:57] + "..."
