"""`python -m kmark.foreign trace DEFINITION RUN`: the records of a run as flashinfer-bench Traces, a line each."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from typing import Any, Iterator, Mapping, Optional

from .. import _engine, _native
from ..own._op import REFERENCE
from ..own._words import BadOp
from . import load
from .definition import WHICH, Definition

STATUS = {
    "ok": "PASSED", "wrong": "INCORRECT_NUMERICAL", "inconsistent": "RUNTIME_ERROR", "impossible": "RUNTIME_ERROR",
    "crashed": "RUNTIME_ERROR", "out-of-memory": "RUNTIME_ERROR", "hung": "TIMEOUT", "build-failed": "COMPILE_ERROR",
}  # fmt: skip


def traces(definition: Definition, run: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Of every record of the definition that was checked. Workloads of the same sizes share a record."""
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    lines = (run / "records.jsonl").read_text(encoding="utf-8").splitlines()
    records = [r for r in map(json.loads, lines) if r["op"] == definition.name and r["status"] in STATUS]
    references = {r["case"]: _time(r) for r in records if r["impl"].endswith(f":{REFERENCE}")}
    for record in records:
        if record["impl"].endswith(f":{REFERENCE}"):
            continue
        for i, workload in enumerate(definition.workloads, 1):
            sizes = {**workload.axes, WHICH: i} if definition.by_workload else workload.axes
            if sizes == record["axes"]:
                yield {
                    "definition": definition.raw["name"],
                    "workload": workload.raw,
                    "solution": _solution(record["impl"]),
                    "evaluation": _evaluation(record, about, references.get(record["case"])),
                }


def _evaluation(record: Mapping[str, Any], run: Mapping[str, Any], reference: Optional[float]) -> dict[str, Any]:
    status = STATUS[record["status"]]
    theirs = (record.get("verify") or {}).get("theirs") or {}
    figures, time = theirs.get("figures") or {}, _time(record)
    correctness = performance = None
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        verdict = {"ok": theirs.get("ok"), "why": theirs.get("why", "")}
        extra = {"kmark": {"grade": (record.get("verify") or {}).get("grade"), "flashinfer_bench": verdict}}
        correctness = {
            "max_relative_error": figures.get("max_relative_error", 0.0),
            "max_absolute_error": figures.get("max_absolute_error", 0.0),
            "extra": extra,
        }
    if status == "PASSED" and time is not None:
        speedup = reference / time if reference else 0.0
        performance = {
            "latency_ms": time / 1e6, "reference_latency_ms": (reference or 0.0) / 1e6, "speedup_factor": speedup,
        }  # fmt: skip
    libraries = {"kmark": run["kmark"]}
    for note in record.get("notes", []):
        words = [part.split(" ") for part in note.split("; ")[0].split(", ")]
        libraries |= {word[0].lower(): word[1] for word in words if len(word) > 1 and word[0] in ("Python", "torch")}
    return {
        "status": status, "environment": {"hardware": record["device"]["name"], "libs": libraries},
        "timestamp": run["started"], "log": record["message"], "correctness": correctness, "performance": performance,
    }  # fmt: skip


def _time(record: Mapping[str, Any]) -> Optional[float]:
    samples, visits, at = record["samples_ns"], [], 0
    for visit in record["visits"]:
        visits.append(samples[at : at + visit["samples"]])
        at += visit["samples"]
    return _engine.time(visits)[0] if samples else None


def _solution(impl: str) -> str:
    """The name that a solution gives itself."""
    try:
        return str(json.loads(pathlib.Path(impl).read_text(encoding="utf-8"))["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return impl


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kmark.foreign", description=__doc__)
    parser.add_argument("what", choices=["trace"])
    parser.add_argument("definition", help="the Definition that was run")
    parser.add_argument("run", type=pathlib.Path, help="the folder of the run")
    args = parser.parse_args()
    _native.load()
    try:
        found = load(args.definition)
        if not found or not isinstance(found[0], Definition):
            raise BadOp("this is no flashinfer-bench Definition; Traces are made of those")
        for trace in traces(found[0], args.run):
            print(json.dumps(trace))
    except BadOp as why:
        print(f"{args.definition}: {why}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except (OSError, ValueError, KeyError) as error:
        print(f"{args.run}: is it the folder of a run? ({error!r})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
