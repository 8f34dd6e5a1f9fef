"""Bounds derived from a reference: what the outputs of an op should be, and how far off an honest kernel may be, from a
function in fp64 and nothing else.

    from kmark import bounds
    truth = bounds.truth(softmax, {"x": x}, [bounds.Output("y", "bf16")], library="numpy")
    truth.expect[0], truth.slack("tight")[0]

The reference runs without noise for the expectation, then several times with every operation rounded at random at the
precision of a kernel's accumulator; six standard deviations of what comes out are the bound (METHODOLOGY.md, "Bounds
derived from a reference")."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from . import _outputs
from ._callers import caller
from ._errors import BadReference
from ._formats import FLOATS
from ._outputs import Output
from ._rounded import rounded
from ._truth import Truth

__all__ = ["BadReference", "Output", "Truth", "rounded", "truth"]


def truth(
    reference: Callable[..., Any],
    arguments: dict[str, Any],
    outputs: Sequence[Output],
    *,
    library: str,
    device: str = "cpu",
    runs: int = 16,
    seed: int = 0,
    matmul: Optional[str] = None,
) -> Truth:
    """Runs `reference(**arguments)`. `library`: numpy or torch, which gets its arrays as float64 tensors on `device`.

    `matmul`: the dtype of the operands that a kernel multiplies. 16 bits and fewer allow for what tensor cores lose,
    and operands that the reference computes may be rounded to a 16-bit type, as a matrix unit needs them."""
    _outputs.check(outputs)
    if matmul is not None and matmul not in FLOATS:
        raise ValueError(f"matmul '{matmul}' is none of {' '.join(FLOATS)}")
    if runs < 2:
        raise ValueError("a spread needs two runs or more")
    return Truth(caller(reference, arguments, outputs, library, device), outputs, runs, seed, matmul)
