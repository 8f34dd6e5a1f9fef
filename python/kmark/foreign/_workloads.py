"""The workloads of a flashinfer-bench Definition: sizes, scalars, and tensors that lie in safetensors files."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ..own._words import BadOp


@dataclass
class Workload:
    axes: dict[str, int]
    inputs: dict[str, dict[str, Any]]
    raw: dict[str, Any]
    folder: pathlib.Path

    def read(self, name: str, shape: tuple[int, ...]) -> Any:
        """A tensor from its file, in fp64 or as whole numbers."""
        spec = self.inputs[name]
        from safetensors import safe_open

        with safe_open(str(_file(self.folder, str(spec["path"]))), framework="pt") as file:
            values = file.get_tensor(str(spec["tensor_key"]))
        if tuple(values.shape) != shape:
            raise BadOp(f"{name} is {tuple(values.shape)} in {spec['path']}, not {shape}")
        return (values.double() if values.is_floating_point() else values).numpy()


def find(path: pathlib.Path, op_type: str, name: str) -> Optional[pathlib.Path]:
    """Beside the definition, or where a dataset keeps them: `workloads/<op_type>/<name>.jsonl`."""
    places = [path.with_suffix(".jsonl"), path.parent / "workload.jsonl", path.parent / "workloads.jsonl"]
    for above in list(path.resolve().parents)[:4]:
        places.append(above / "workloads" / op_type / f"{name}.jsonl")
    return next((place for place in places if place.is_file()), None)


def workloads(where: pathlib.Path, definition: Mapping[str, Any], path: pathlib.Path) -> list[Workload]:
    """Those of the definition, each line one: as such, or inside a trace."""
    found = []
    wanted = [name for name, axis in definition["axes"].items() if axis.get("type") == "var"]
    for i, line in enumerate(where.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            if raw.get("definition", definition["name"]) != definition["name"]:
                continue
            raw = raw.get("workload", raw)
            axes = {name: int(raw["axes"][name]) for name in wanted}
            inputs = dict(raw.get("inputs", {}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadOp(f"{where.name}, line {i}: no workload of {definition['name']} ({error!r})") from None
        for name, spec in inputs.items():
            if spec.get("type") not in ("random", "scalar", "safetensors"):
                raise BadOp(f"{where.name}, line {i}: inputs of type {spec.get('type')!r} ({name}) are not read")
            if spec["type"] == "safetensors":
                _readable(where, i, name, spec)
        found.append(Workload(axes, inputs, raw, where.parent))
    return found


def _readable(where: pathlib.Path, line: int, name: str, spec: Mapping[str, Any]) -> None:
    place = f"{where.name}, line {line}: {name} lies in a safetensors file"
    if importlib.util.find_spec("safetensors") is None:
        raise BadOp(f"{place}; pip install safetensors to read it")
    if not _file(where.parent, str(spec.get("path", ""))).is_file():
        raise BadOp(f"{place}, and there is no {spec.get('path')}")


def _file(folder: pathlib.Path, path: str) -> pathlib.Path:
    """Paths are those of a dataset's root, which lies somewhere above."""
    places = [above / path for above in [folder, *list(folder.resolve().parents)[:4]]]
    return next((place for place in places if place.is_file()), places[0])
