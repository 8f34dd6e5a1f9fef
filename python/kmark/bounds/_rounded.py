"""Rounding that is part of a contract: for references."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import _numpy
from ._formats import FLOATS, to_nearest


def rounded(x: Any, dtype: str) -> Any:
    """`x` rounded to the nearest value of `dtype`, still in fp64: where a contract says that an intermediate is stored
    in that type. A kernel near the middle between two values may take either."""
    if dtype not in FLOATS:
        raise ValueError(f"dtype '{dtype}' is none of {' '.join(FLOATS)}")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        from ._torch import without_rounding

        with without_rounding():
            return torch.from_numpy(np.array(to_nearest(x.detach().cpu().numpy(), dtype))).to(x.device)
    run = _numpy.rounds()
    nearest = to_nearest(x.view(np.ndarray) if isinstance(x, np.ndarray) else x, dtype)
    return run.wrap(nearest) if run is not None else nearest
