"""What can be wrong with a reference: one clear line."""

from __future__ import annotations

import traceback
from pathlib import Path


class BadReference(Exception):
    """A reference that cannot serve as one; the message is one line for its author."""


def raised(error: BaseException) -> BadReference:
    """The reference raised `error`: what, and where in the author's own code."""
    if isinstance(error, BadReference):
        return error
    text = str(error).strip().split("\n", 1)[0]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    here = str(Path(__file__).parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((here, "<"))]
    own = [f for f in frames if "site-packages" not in f.filename]
    place = f" (line {own[-1].lineno} of {Path(own[-1].filename).name})" if own else ""
    return BadReference(f"the reference raised {what}{place}")
