"""Results as the folder of a run (FORMAT.md), and runs as results. The compiled part writes, reads and checks them."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import sys
from datetime import datetime, timezone
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

from . import _arrays, _engine
from .results import Failure, Path, Result, Results, Scalar, Visit

Entry = Union[Result, Failure]

_FILES = ("run.json", "records.jsonl")
_SETTINGS = ("precision", "budget_ns", "rounds", "warmup_ns")
_TIMED = ("ok", "unverified")
_REFUSED = ("unsupported", "unavailable")


class Setting(NamedTuple):
    """What all results of a run have in common."""

    mode: str
    device: Mapping[str, str]
    calibration: Mapping[str, Optional[float]]
    settings: Mapping[str, Any]
    environment: Mapping[str, str]


def load(path: Path) -> Results:
    """The results of a run: its folder, its `records.jsonl`, or a folder that `kmark merge` made. Rows without a time
    are in `skipped` and `failed`. ValueError names the file and what is wrong with it.

        today = kmark.load("kmark-runs/2031-05-01")
        print(today.where(n=4096))
    """
    if not pathlib.Path(path).exists():
        raise FileNotFoundError(f"{os.fspath(path)} does not exist")
    found: list[Result] = []
    skipped: list[Failure] = []
    failed: list[Failure] = []
    base = None
    for loaded in _engine.load_runs(os.fspath(path)):
        run = loaded["run"]
        base = base or run["settings"].get("baseline")
        for record in loaded["records"]:
            if record["status"] in _TIMED:
                found.append(_result(run, record))
            else:
                (skipped if record["status"] in _REFUSED else failed).append(_failure(run, record))
    return Results(found, base, skipped, failed)


def save(folder: Path, results: Results, overwrite: bool) -> None:
    entries: list[Entry] = [*results, *results.failed, *results.skipped]
    if not entries:
        raise ValueError("there are no results to save")
    kinds = {json.dumps(_setting(r)._replace(environment={}), sort_keys=True) for r in results}
    if len(kinds) > 1:
        raise ValueError("these results are of several devices, modes or settings; save them apart and merge them")
    origins = [entry.origin for entry in entries if entry.origin]
    if not len(results) and not origins:
        raise ValueError("there are no times to save")
    make_room(pathlib.Path(folder), overwrite, go_on=False)
    like = _setting(results[0]) if len(results) else _of_run(origins[0][0])
    started = min((r.started for r in results if r.started), default=_now())
    _write(folder, entries, like, started, results.base, origins[0][0] if origins else None)


def append(folder: Path, entries: Sequence[Entry], like: Setting) -> None:
    _write(folder, entries, like, _now(), None, None)


def make_room(folder: pathlib.Path, overwrite: bool, go_on: bool) -> None:
    """A folder for a run: none that holds anything else."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; results are kept in a folder")
    there = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    if "run.json" in there and overwrite:
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
    elif "run.json" in there and not go_on:
        raise FileExistsError(f"{folder} holds a run already; choose another name or say overwrite=True")
    elif there and "run.json" not in there:
        raise FileExistsError(f"{folder} holds something else ({there[0]}); choose another name")


def refuse_known(folder: pathlib.Path, case: str, point: Mapping[str, Scalar], names: Sequence[str], mode: str) -> None:
    if not (folder / "run.json").exists():
        return
    wanted = {(_case_id(case, point), name, mode) for name in names}
    for loaded in _engine.load_runs(os.fspath(folder)):
        for r in loaded["records"]:
            if (r["case"], r["impl"], r["mode"]) in wanted:
                raise FileExistsError(
                    f"{folder} has '{r['impl']}' of '{r['case']}' already; give another case=, or begin anew "
                    "with Harness(out=…, overwrite=True)"
                )


def _setting(r: Result) -> Setting:
    return Setting(r.mode, r.device, r.calibration, {k: r.settings.get(k) for k in _SETTINGS}, r.environment)


def _of_run(run: Mapping[str, Any]) -> Setting:
    settings = run["settings"]
    return Setting(settings["mode"], run["device"], run.get("calibration") or {}, settings, run["environment"])


def _write(
    folder: Path,
    entries: Sequence[Entry],
    like: Setting,
    started: str,
    base: Optional[str],
    run: Optional[Mapping[str, Any]],
) -> None:
    if run is None:
        asked = {k: like.settings[k] for k in _SETTINGS if like.settings.get(k) is not None}
        cases = list(dict.fromkeys(entry.case for entry in entries))
        run = {
            "schema": 1, "kmark": _engine.version(), "started": started,
            "command": [pathlib.Path(sys.executable).name, *sys.argv], "selection": cases,
            "settings": {"precision": 0.005, "budget_ns": 0, "rounds": 0, **asked, "mode": like.mode, "seed": 0,
                         "verify": True, "grade": "loose", **({"baseline": base} if base else {})},
            "device": dict(like.device), "environment": dict(like.environment), "host": platform.node(),
            "calibration": dict(like.calibration) or None, "no_roofs": "a Harness measures none",
        }  # fmt: skip
    made = {**run, "finished": _now()}
    records = [json.dumps(entry.origin[1] if entry.origin else _record(entry, like)) for entry in entries]
    _engine.append_run(os.fspath(folder), json.dumps(made), records)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _case_id(case: str, point: Mapping[str, Scalar]) -> str:
    parts = [f"{name}{value}" if _is_axis(value) else f"{name}-{value}" for name, value in point.items()]
    return "/".join([case, "-".join(parts)] if parts else [case])


def _is_axis(value: Scalar) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _record(entry: Entry, like: Setting) -> dict[str, Any]:
    dtype = entry.point.get("dtype")
    known = {"dtype": dtype} if dtype in _arrays.WORDS.values() else {}
    rest = {k: v for k, v in entry.point.items() if k not in known}
    record: dict[str, Any] = {
        "schema": 1, "case": _case_id(entry.case, entry.point), "op": entry.case, **known,
        "axes": {k: v for k, v in rest.items() if _is_axis(v)},
        "attrs": {k: _word(v) for k, v in rest.items() if not _is_axis(v)},
        "contract": "a Python function", "impl": entry.name, "impl_hash": "", "device": dict(like.device),
        "mode": like.mode, "seed": 0, "samples_ns": [], "clock_mhz": [], "visits": [], "group": "",
        "cost": {"bytes_read": 0, "bytes_written": 0, "flops": 0}, "times": {}, "message": "",
    }  # fmt: skip
    if isinstance(entry, Failure):
        wrong = {"checks": 1, "elements": 0, "regions": [], "problems": [entry.message]}
        more = {"verify": wrong} if entry.status == "wrong" else {}
        return {**record, **more, "status": entry.status, "message": entry.message, "traceback": entry.traceback}
    passed = {"checks": 2, "elements": 0, "regions": [], "problems": []}
    optional = {"stop": entry.stop, "items": entry.items, "verify": passed if entry.verified else None}
    visits = [
        {"round": v.round, "samples": v.samples, **({"conditions": dict(v.conditions)} if v.conditions else {})}
        for v in entry.visits
    ]
    return {
        **record, **{k: v for k, v in optional.items() if v is not None},
        "status": "ok" if entry.verified else "unverified", "impl_hash": entry.hash,
        "samples_ns": list(entry.samples_ns), "clock_mhz": list(entry.clock_mhz), "visits": visits,
        "process": "python", "group": entry.group, "notes": list(entry.remarks),
        "cost": {"bytes_read": round(entry.bytes or 0), "bytes_written": 0, "flops": round(entry.flops or 0)},
        "times": {} if entry.first_call_ns is None else {"first_call_ns": entry.first_call_ns},
    }  # fmt: skip


def _word(value: Scalar) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _value(word: str) -> Scalar:
    if word in ("yes", "no"):
        return word == "yes"
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            pass
    return word


def _point(record: Mapping[str, Any]) -> dict[str, Scalar]:
    dtype = {"dtype": record["dtype"]} if "dtype" in record else {}
    return {**dtype, **record["axes"], **{k: _value(v) for k, v in record["attrs"].items()}}


def _result(run: Mapping[str, Any], record: Mapping[str, Any]) -> Result:
    cost = record["cost"]
    return Result(
        record["impl"], tuple(record["samples_ns"]),
        tuple(Visit(v["round"], v["samples"], v.get("conditions")) for v in record["visits"]),
        record["mode"], record["device"], record["status"] == "ok", flops=cost["flops"] or None,
        bytes=cost["bytes_read"] + cost["bytes_written"] or None, items=record.get("items"), case=record["op"],
        point=_point(record), clock_mhz=tuple(record["clock_mhz"]),
        first_call_ns=record["times"].get("first_call_ns"), group=record["group"],
        calibration=run.get("calibration") or {}, environment=run["environment"], settings=run["settings"],
        started=run["started"], stop=record.get("stop"), hash=record["impl_hash"],
        remarks=tuple(record.get("notes", ())), origin=(run, record),
    )  # fmt: skip


def _failure(run: Mapping[str, Any], record: Mapping[str, Any]) -> Failure:
    return Failure(
        record["impl"], record["op"], _point(record), record["status"], record["message"].split("\n", 1)[0],
        record.get("traceback", ""), (run, record),
    )  # fmt: skip
