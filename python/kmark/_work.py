"""A function of the caller's on its way through a measurement: what it claims, its checks, its samples."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
import numbers
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Union

from . import _arrays, _spoil
from .closeness import Closeness
from .results import Failure, Result, Scalar, Visit

Function = Callable[[], Any]
Check = Callable[..., Any]


class WrongResult(Exception):
    """A check said that a function does not compute what it should."""


class Work(NamedTuple):
    """A function with what is known about it.

    `flops`, `bytes`, `items` are per call and give rates. `check` looks at what the function did: it gets
    what the function returned if it takes an argument, and says no by returning False or raising
    (`kmark.close` makes one). `setup` makes the inputs ready again before each check and each visit (not before
    each call), outside the timed interval.

    `outputs` are the arrays that the function writes, one or several. Before each call that is checked they get
    wrong values, so that a function that does nothing is found. Without `outputs`, arrays that functions
    returned get them, and are put back afterwards (`outputs=[]`: none). A check without an argument looks at
    something that only `outputs` or `setup` can spoil: without either the result counts as unverified."""

    fn: Function
    flops: Optional[float] = None
    bytes: Optional[float] = None
    items: Optional[float] = None
    check: Optional[Check] = None
    setup: Optional[Function] = None
    outputs: Any = None


Workable = Union[Function, Work, "tuple[Any, ...]"]


def work_of(value: Workable, name: str, common: Optional[Work] = None) -> Work:
    """A function, `(fn, flops, bytes, …)` or a `Work`, made sure of; what it does not say, `common` does."""
    if isinstance(value, tuple):
        if not 1 <= len(value) <= len(Work._fields):
            raise TypeError(f"{name}: a tuple must be ({', '.join(Work._fields)}), as far as you need it")
        fields = dict(zip(Work._fields, value))
    else:
        fields = {"fn": value}
    for what in Work._fields:
        if fields.get(what) is None and common is not None and what != "fn":
            fields[what] = getattr(common, what)
    for what in ("flops", "bytes", "items"):
        fields[what] = _amount(fields.get(what), what, name)
    if fields.get("outputs") is not None:
        fields["outputs"] = _listed(fields["outputs"], name)
    work = Work(**fields)
    _callable(work, name)
    return work


def _callable(work: Work, name: str) -> None:
    if not callable(work.fn):
        raise TypeError(f"{name}: give a function without arguments, like `lambda: f(x)`, not {_short(work.fn)}")
    if inspect.iscoroutinefunction(work.fn):
        raise TypeError(f"{name}: calling a coroutine function only makes a coroutine; give a plain function")
    if _arguments(work.fn, unknown=0):
        raise TypeError(f"{name}: the function is called without arguments; bind them, like `lambda: f(x)`")
    for what in ("check", "setup"):
        if getattr(work, what) is not None and not callable(getattr(work, what)):
            raise TypeError(f"{name}: {what} must be a function, not {_short(getattr(work, what))}")


def _listed(outputs: Any, name: str) -> list[Any]:
    several = isinstance(outputs, (list, tuple)) and not _arrays.is_array(outputs)
    arrays = list(outputs) if several else [outputs]
    for array in arrays:
        _spoil.must_be_array(array, f"{name}: outputs")
    return arrays


def name_of(fn: Any, default: str = "") -> str:
    name = str(getattr(fn, "__name__", ""))
    if name in ("", "<lambda>"):
        if not default:
            raise ValueError("this function has no name of its own; give one: measure(fn, 'name')")
        return default
    return name


def _amount(value: Any, what: str, name: str) -> Optional[float]:
    if value is None:
        return None
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name}: {what} must be a positive number per call, not {_short(value)}")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _arguments(fn: Callable[..., Any], unknown: int) -> int:
    """How many arguments a function cannot do without; some built-in ones do not say."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (ValueError, TypeError):
        return unknown
    return sum(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _short(value: Any) -> str:
    if isinstance(value, Closeness):
        return str(value)
    text = repr(value).split("\n", 1)[0]
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def named(label: str) -> Iterator[None]:
    """An exception of the caller's own passes as it is, with the name of the function it came from."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, WrongResult):
            note = f"kmark: while measuring '{label}'"
            if hasattr(error, "add_note"):
                error.add_note(note)
            else:  # Python 3.10 shows no notes
                error.args = (f"{error} ({note})", *error.args[1:]) if error.args else (note,)
        raise


UNSPOILED = "unverified: what its check looks at may have been there before; outputs= (or setup=) spoils it first"


def failure(error: BaseException, name: str, case: str, place: Mapping[str, Scalar]) -> Failure:
    """What is kept of a function that raised: a line, and where it came from."""
    status = "wrong" if isinstance(error, WrongResult) else "crashed"
    line = str(error) if status == "wrong" else f"{type(error).__name__}: {error}".rstrip(": ")
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(name, case, place, status, line.split("\n", 1)[0], told)


@dataclass
class Turn:
    """One function and what was seen of it so far. `returned` is shared by all that take turns."""

    name: str
    label: str
    work: Work
    returned: _spoil.Returned
    samples_ns: list[float] = field(default_factory=list)
    clock_mhz: list[float] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    stop: Optional[str] = None
    spent_ns: int = 0
    first_call_ns: Optional[float] = None

    def ready(self) -> None:
        if self.work.setup is not None:
            with named(self.label):
                self.work.setup()

    def spoil(self) -> None:
        for array in self.work.outputs or ():
            _spoil.spoil(array)

    def first(self) -> None:
        """The first call, which may compile, and the check of what it did."""
        self.returned.note(self._checked_call("before timing"))

    def check_again(self) -> None:
        """A check without arguments looks at what the last timed call left; one with, at another call."""
        if self._wants_value():
            self._checked_call("after timing")
        else:
            self._check(None, "after timing", 0)

    def _checked_call(self, when: str) -> Any:
        with contextlib.ExitStack() as stack:
            spoils = self.work.outputs is None and self._wants_value()
            spoiled = stack.enter_context(self.returned.spoiled()) if spoils else 0
            self.spoil()
            self.ready()
            with named(self.label):
                start = time.perf_counter_ns()
                value = self.work.fn()
                if self.first_call_ns is None:
                    self.first_call_ns = float(time.perf_counter_ns() - start)
            self._check(value, when, spoiled)
            return value

    def _wants_value(self) -> bool:
        return self.work.check is not None and _arguments(self.work.check, unknown=1) > 0

    def _check(self, value: Any, when: str, spoiled: int) -> None:
        check = self.work.check
        if check is None:
            return
        with named(self.label):
            said = check(value) if self._wants_value() else check()
            if said is not None and not bool(said):
                why = "; arrays that were returned before had been spoiled: setup= restores inputs" if spoiled else ""
                raise WrongResult(
                    f"{self.label}: the check {when} returned {_short(said)}; a wrong result has no time{why}"
                )

    @property
    def verified(self) -> bool:
        w = self.work
        return w.check is not None and (self._wants_value() or bool(w.outputs) or w.setup is not None)

    def result(self, settings: dict[str, Any], common: dict[str, Any]) -> Result:
        w = self.work
        remarks = (UNSPOILED,) if w.check is not None and not self.verified else ()
        return Result(
            self.name, tuple(self.samples_ns), tuple(self.visits), verified=self.verified,
            flops=w.flops, bytes=w.bytes, items=w.items, clock_mhz=tuple(self.clock_mhz), stop=self.stop,
            first_call_ns=self.first_call_ns, remarks=remarks, hash=_hash(w.fn), settings=settings, **common,
        )  # fmt: skip


def _hash(fn: Callable[..., Any]) -> str:
    """Changes with the text of the function; nothing where there is none."""
    try:
        text = inspect.getsource(inspect.unwrap(fn))
    except (OSError, TypeError):
        return ""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
