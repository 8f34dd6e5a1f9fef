"""The compiled part, imported when it is first needed: the registry of adapters can be read without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

if TYPE_CHECKING:
    from ._kmark import Session, Side, Verdict


def _load() -> Any:
    try:
        from . import _kmark
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    except ImportError as error:
        # `from . import` reports a file that is not there in its own way; anything else is a broken build.
        if "cannot import name '_kmark'" in str(error):
            raise _missing(error) from error
        raise
    return _kmark


def _missing(error: ImportError) -> ImportError:
    return ImportError(f"the compiled part of kmark is missing; install it with `pip install kmark` ({error})")


def version() -> str:
    return str(_load().__version__)


def session(device: str, stream: Optional[int]) -> Session:
    opened: Session = _load().Session(device, stream)
    return opened


def time(visits: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """The time that is shown for these visits, and the ends of its 95 % interval."""
    value, low, high = _load().time([list(samples) for samples in visits])
    return float(value), float(low), float(high)


def percentile(samples: Sequence[float], q: float) -> float:
    return float(_load().percentile(list(samples), q))


def verdict(base: Side, new: Side, across: Optional[str] = None) -> Verdict:
    """`across`: the kind of device, where the two took no turns."""
    found: Verdict = _load().verdict(base, new, across)
    return found


def append_run(folder: str, run: str, records: list[str]) -> None:
    _load().append_run(folder, run, records)


def load_runs(path: str) -> list[dict[str, Any]]:
    return list(_load().load_runs(path))


def compare_runs(base: list[str], new: list[str], threshold: float) -> dict[str, Any]:
    return dict(_load().compare_runs(base, new, threshold))


def judge(got: Any, dtype: str, expect: Any, slack: Any, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = _load().judge(got, dtype, expect, slack, **more)
    return found


def turns(rounds: int, budget_ns: int, key: int, round_: int, spent_ns: list[int]) -> list[int]:
    return list(_load().turns(rounds, budget_ns, key, round_, spent_ns))


def own_case(
    description: str, dtype: str, axes: list[tuple[str, int]], attrs: list[tuple[str, str]], seed: int
) -> tuple[str, list[int]]:
    """A case of an op of the user's, as JSON, and the seeds of its sets of values."""
    case, seeds = _load().own_case(description, dtype, axes, attrs, seed)
    return str(case), list(seeds)


def own_inputs(case: str, maker: Any) -> dict[str, Any]:
    """Tensors of a case by name: elements of inputs as fp64, shape and dtype. `maker.make(case, tensor)` makes those
    that users' code makes; the first one holds for the process."""
    _load().own_maker(maker)
    found: dict[str, Any] = _load().own_inputs(case)
    return found


def own_shapes(case: str) -> dict[str, tuple[list[int], str]]:
    """Shape and dtype of every tensor of a case."""
    found: dict[str, tuple[list[int], str]] = _load().own_shapes(case)
    return found


def own_judge(case: str, outputs: dict[str, bytes], truth: Any) -> str:
    """The gate's word on outputs, as JSON."""
    return str(_load().own_judge(case, outputs, truth))
