"""Results as JSON: files and the fields in them. Only what was measured is written; the rest is derived again."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any, Callable, Mapping, TypeVar, Union

SCHEMA = 1
Path = Union[str, "os.PathLike[str]"]
T = TypeVar("T")


def write(path: Path, content: Mapping[str, Any], overwrite: bool) -> None:
    """A whole file or none: written beside its place, then moved there."""
    target = pathlib.Path(path)
    refuse_existing(target, overwrite)
    # A line per field: readable, and not a line per sample.
    fields = (f"{json.dumps(k)}: {json.dumps(v, allow_nan=False, ensure_ascii=False)}" for k, v in content.items())
    text = "{\n" + ",\n".join(fields) + "\n}\n"
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(beside, 0o644)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise


def refuse_existing(target: pathlib.Path, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} is there already; choose another name or say overwrite=True")


def read(path: Path, make: Callable[[Mapping[str, Any]], T]) -> T:
    """ValueError with the file's name for what is not as it should be; OSError if it cannot be read."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"), parse_constant=_no_constant)
        if not isinstance(content, dict):
            raise ValueError("it holds no object")
        return make(content)
    except json.JSONDecodeError as error:
        raise ValueError(f"{os.fspath(path)}: no JSON, or cut off, at line {error.lineno}: {error.msg}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def result_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The results in a folder; there must be some."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(f"{os.fspath(folder)}: no results in this folder")
    return files


def one(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A result's file."""
    return {"schema": SCHEMA, "kind": "kmark-result", **fields}


def several(rows: list[dict[str, Any]], base: Any, skipped: Any) -> dict[str, Any]:
    """The file of several."""
    return {"schema": SCHEMA, "kind": "kmark-results", "base": base, "skipped": skipped, "results": rows}


def fields_of_one(content: Mapping[str, Any]) -> dict[str, Any]:
    _head(content, "kmark-result")
    return _result(content)


def fields_of_several(content: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Any, list[tuple[str, str]]]:
    """The fields of each, the base, and what was skipped."""
    _head(content, "kmark-results")
    rows, base, skipped = content.get("results"), content.get("base"), content.get("skipped", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("'results' is no list of results")
    if base is not None and not isinstance(base, str):
        raise ValueError("'base' is no name")
    if not isinstance(skipped, list) or not all(isinstance(s, list) and len(s) == 2 for s in skipped):
        raise ValueError("'skipped' is no list of names and reasons")
    return [_result(row) for row in rows], base, [(str(name), str(why)) for name, why in skipped]


def _head(content: Mapping[str, Any], kind: str) -> None:
    found = content.get("kind")
    if found != kind:
        other = {"kmark-result": "Result.load", "kmark-results": "Results.load"}.get(str(found))
        raise ValueError(f"it holds no {kind}" + (f"; {other} reads it" if other else ""))
    if content.get("schema") != SCHEMA:
        raise ValueError(f"schema {content.get('schema')!r}; this version of kmark reads {SCHEMA}")


_NUMBER = (int, float)
_FIELDS: dict[str, tuple[type, ...]] = {
    "name": (str,), "samples_ns": (list,), "visits": (list,), "mode": (str,), "device": (dict,),
    "verified": (bool,),
    "flops": (*_NUMBER, type(None)), "bytes": (*_NUMBER, type(None)), "items": (*_NUMBER, type(None)),
    "point": (dict,), "clock_mhz": (list,), "first_call_ns": (*_NUMBER, type(None)), "group": (str,),
    "calibration": (dict,), "environment": (dict,), "settings": (dict,), "started": (str,),
}  # fmt: skip


def _result(content: Mapping[str, Any]) -> dict[str, Any]:
    values = _fields(content, _FIELDS, "")
    values["samples_ns"] = _numbers(content, "samples_ns")
    values["clock_mhz"] = _numbers(content, "clock_mhz")
    values["visits"] = [_visit(at, visit) for at, visit in enumerate(content["visits"])]
    return values


_VISIT: dict[str, tuple[type, ...]] = {
    "round": (int,), "samples": (int,), "stop": (str,), "conditions": (dict, type(None)),
}  # fmt: skip


def _visit(at: int, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"visits[{at}] is no object")
    values = _fields(content, _VISIT, f"visits[{at}].")
    if values["samples"] < 0:
        raise ValueError(f"visits[{at}].samples is negative")
    return values


def _fields(content: Mapping[str, Any], wanted: Mapping[str, tuple[type, ...]], where: str) -> dict[str, Any]:
    values = {}
    for name, types in wanted.items():
        if name not in content:
            raise ValueError(f"'{where}{name}' is missing")
        value = content[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError(f"'{where}{name}' is {json.dumps(value)[:40]}, which is not what belongs there")
        values[name] = value
    return values


def _numbers(content: Mapping[str, Any], name: str) -> tuple[float, ...]:
    for at, value in enumerate(content[name]):
        if not isinstance(value, _NUMBER) or isinstance(value, bool):
            raise ValueError(f"{name}[{at}] is {json.dumps(value)[:40]}, which is no number")
    return tuple(float(value) for value in content[name])
