"""A stand-in for the compiled part, whose clock is a script: a function's `ns` is what a call of it takes."""

from __future__ import annotations

import json
import math
import pathlib
import random
import sys
import tempfile
import types
import unittest
from typing import Any, Callable, Optional
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import kmark  # noqa: E402


def built() -> bool:
    """Whether the real one is there."""
    try:
        import kmark._kmark  # noqa: F401
    except ImportError:
        return False
    return True


def time(visits: list[list[float]]) -> tuple[float, float, float]:
    s = sorted(ns for samples in visits for ns in samples)
    if not s:
        raise ValueError("no samples")
    return percentile(s, 0.5), percentile(s, 0.3), percentile(s, 0.7)


def percentile(samples: list[float], q: float) -> float:
    s, at = sorted(samples), q * (len(samples) - 1)
    i = int(at)
    return s[i] + (at - i) * (s[min(i + 1, len(s) - 1)] - s[i])


def turns(rounds: int, budget_ns: int, key: int, round_: int, spent_ns: list[int]) -> list[int]:
    order = [i for i, spent in enumerate(spent_ns) if spent < budget_ns or round_ < 3]
    random.Random(key + round_).shuffle(order)
    return order + order[::-1]


def verdict(
    base_and_time: tuple[list[list[float]], float, Optional[float]],
    new_and_time: tuple[list[list[float]], float, Optional[float]],
    across: Optional[str] = None,
) -> dict[str, Any]:
    base, new = base_and_time[0], new_and_time[0]
    assert len(base) % 2 == 0 and len(new) % 2 == 0, "visits come in pairs"

    def level(visits: list[list[float]]) -> float:
        return sum(math.log(time([v])[0]) for v in visits) / len(visits)

    if min(len(base), len(new)) < 4:
        ratio = math.exp(level(base) - level(new)) if base and new else math.nan
        return {"verdict": "ambiguous", "ratio": ratio, "low": ratio, "high": ratio, "sees": None, "note": ""}
    difference, limit = level(base) - level(new), 0.05 if across else 0.01
    word = "faster" if difference > limit else "slower" if difference < -limit else "same"
    ends = math.exp(difference - limit), math.exp(difference + limit)
    return {
        "verdict": word, "ratio": math.exp(difference), "low": ends[0], "high": ends[1],
        "sees": math.expm1(2 * limit), "note": "",
    }  # fmt: skip


class Session:
    kind = "cpu"
    opened: list[tuple[str, Optional[int]]] = []
    #: Names of the functions in the order of their visits, and what each visit was asked for.
    log: list[tuple[Any, dict[str, Any]]] = []

    def __init__(self, device: str = "auto", stream: Optional[int] = None) -> None:
        if device == "cuda:9":
            raise RuntimeError("there is no GPU 9")
        Session.opened.append((device, stream))
        self.device = {"kind": self.kind, "name": f"Fake {self.kind.upper()}", "id": f"{self.kind}-0"}
        self.calibration = {
            "clock_step_ns": 1.0, "empty_launch_ns": 30.0, "known_launch_ratio": 1.0, "timer_ratio": 1.0,
            **({"empty_call_ns": 100.0} if self.kind == "cpu" else {}),
        }  # fmt: skip

    def visit(self, function: Callable[[], Any], **asked: Any) -> dict[str, Any]:
        Session.log.append((function, asked))
        function()
        ns = float(getattr(function, "ns", 1000))
        count = min(asked["max_samples"], 20)
        samples = [ns * (1 + 0.001 * (i % 7)) for i in range(count)]
        hot = self.kind == "cuda" and getattr(function, "hot", False)
        conditions = {"power_w": 700.0, "throttled": ["power"] if hot else []} if self.kind == "cuda" else None
        return {
            "samples_ns": samples,
            "clock_mhz": [2000.0] * count,
            "stop": "precision",
            "conditions": conditions,
        }


def append_run(folder: str, run: str, records: list[str]) -> None:
    """The files of a run, without the checks of the compiled part."""
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / "run.json").write_text(run)
    with (path / "records.jsonl").open("a") as file:
        file.writelines(record + "\n" for record in records)


def load_runs(path: str) -> list[dict[str, Any]]:
    folder = pathlib.Path(path)
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [{"name": path, "run": json.loads((folder / "run.json").read_text()), "records": records}]


def module() -> types.ModuleType:
    made = types.ModuleType("kmark._kmark")
    for name, value in {
        "time": time,
        "percentile": percentile,
        "verdict": verdict,
        "turns": turns,
        "append_run": append_run,
        "load_runs": load_runs,
        "Session": Session,
    }.items():
        setattr(made, name, value)
    made.__version__ = "0.0.fake"  # type: ignore[attr-defined]
    return made


def taking(ns: float, **marks: Any) -> Any:
    """A function that the stand-in times as `ns`, and that counts its calls."""

    def fn() -> float:
        fn.calls += 1  # type: ignore[attr-defined]
        return ns

    fn.calls, fn.ns = 0, ns  # type: ignore[attr-defined]
    for name, value in marks.items():
        setattr(fn, name, value)
    return fn


class Faked(unittest.TestCase):
    kind = "cpu"

    def setUp(self) -> None:
        fake = module()
        for patch in (
            mock.patch.dict(sys.modules, {"kmark._kmark": fake}),
            mock.patch.object(kmark, "_kmark", fake, create=True),
            mock.patch.object(Session, "kind", self.kind),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        Session.opened, Session.log = [], []
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def raises(self, kind: type[Exception], text: str) -> Any:
        return self.assertRaisesRegex(kind, text)
