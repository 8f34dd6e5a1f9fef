"""Modular's MAX: recognised, and why it is not timed."""

from __future__ import annotations

import importlib.metadata
from typing import Any, NoReturn

from ..registry import Unsupported


def refuse(case: Any) -> NoReturn:
    """There is no launch: its graphs run on a stream of their own, which nobody outside can be ordered with."""
    import max  # noqa: F401  (its absence is what is said first)

    version = importlib.metadata.version("modular")
    raise Unsupported(f"MAX {version} is here, but runs {case.op} on a stream of its own, not on the one that is timed")
