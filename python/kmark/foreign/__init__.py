"""Problems of other collections as ops: a flashinfer-bench Definition, a KernelBench problem, a GPU MODE task. What can
be mapped is; what cannot is refused with the reason. Their code runs where ops of users run: in workers and in
the process that judges (docs/foreign-problems.md)."""

from __future__ import annotations

import functools
import pathlib
from typing import TYPE_CHECKING, Optional, Sequence

from ..own._words import BadOp

if TYPE_CHECKING:
    from ._problem import Problem


@functools.cache
def load(path: str) -> Optional[Sequence[Problem]]:
    """The ops of a problem; none if it is not one of these formats."""
    at = pathlib.Path(path)
    if at.is_dir() or at.name == "task.yml":
        from . import gpumode

        folder = at if at.is_dir() else at.parent
        if not (folder / "task.yml").is_file():
            raise BadOp("the folder has no task.yml; a problem in a folder is a GPU MODE task")
        return [gpumode.load(folder)]
    if at.suffix == ".json":
        from . import definition

        return [definition.load(at)]
    if at.suffix == ".py":
        from . import kernelbench

        return [kernelbench.load(at)] if kernelbench.is_problem(at) else None
    return None
