"""A flashinfer-bench Solution in Python: its sources in a folder of their own, and its entry point."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import inspect
import json
import pathlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from typing import Any, Callable, Optional

from ..registry import Unsupported

# Languages whose entry point is a Python function.
PYTHON = ("python", "triton", "tilelang", "cute_dsl", "cutile")


@dataclass
class Solution:
    name: str
    about: str
    run: Callable[..., Any]
    stated: Optional[bool]

    def takes_outputs(self, all_of_them: int) -> bool:
        """Whether it writes outputs that it is given. Older solutions do not say; their parameters do."""
        if self.stated is not None:
            return self.stated
        return len(inspect.signature(self.run).parameters) == all_of_them


@functools.cache
def load(path: str, definition: str) -> Solution:
    raw = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    spec, sources = raw.get("spec"), raw.get("sources")
    if not isinstance(spec, dict) or not sources:
        raise TypeError("this is no Solution: it has no spec or no sources")
    if raw.get("definition") != definition:
        raise Unsupported(f"it solves {raw.get('definition')}, not {definition}")
    language = str(spec.get("language", "python")).lower()
    if language not in PYTHON:
        raise Unsupported(f"a solution in {language} needs its own builder; those in {', '.join(PYTHON)} run here")
    file, _, function = str(spec.get("entry_point", "main.py::run")).partition("::")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kmark-solution-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for source in sources:
        place = (folder / source["path"]).resolve()
        if not place.is_relative_to(folder.resolve()):
            raise TypeError(f"its source {source['path']} lies outside its folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source["content"], encoding="utf-8")
    sys.path.insert(0, str(folder))
    made = importlib.util.spec_from_file_location(f"kmark_solution_{folder.name}".replace("-", "_"), folder / file)
    if made is None or made.loader is None or not (folder / file).is_file():
        raise TypeError(f"its entry point {spec.get('entry_point')} is none of its sources")
    module = importlib.util.module_from_spec(made)
    sys.modules[made.name] = module
    made.loader.exec_module(module)
    run = getattr(module, function or "run", None)
    if not callable(run):
        raise TypeError(f"{file} has no function {function or 'run'}")
    about = str(raw.get("description") or raw.get("name") or "a solution").split("\n", 1)[0]
    return Solution(str(raw.get("name")), about, run, spec.get("destination_passing_style"))
