"""Problems of other collections as ops: what can be mapped is, what cannot is refused with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from ..own import Op


def load(path: str) -> Optional[list[Op]]:
    """The ops of a problem; none if it is not one of these formats."""
    return None
