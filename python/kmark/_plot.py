"""Results as a picture: what is drawn, and two ways to draw it, matplotlib's and our own."""

from __future__ import annotations

import importlib.util
import math
import os
import pathlib
from dataclasses import dataclass
from html import escape
from typing import Any, Callable, NamedTuple, Optional, Sequence

from . import _units
from .results import Path, Result, Results

#: What can be shown: how an axis calls it, of a time in ns, and in which unit.
_SHOWN: dict[str, tuple[str, Callable[[Result, float], Optional[float]]]] = {
    "time": ("time", lambda r, ns: ns),
    "gbps": ("GB/s", lambda r, ns: r.bytes / ns if r.bytes else None),
    "tflops": ("TFLOP/s", lambda r, ns: r.flops / ns / 1e3 if r.flops else None),
    "items": ("items/s", lambda r, ns: r.items / ns * 1e9 if r.items else None),
}
#: Apart from each other for those who see colours less well, on white and on black.
_COLOURS = ("#3b82f6", "#f97316", "#16a34a", "#dc2626", "#8b5cf6", "#0891b2", "#ca8a04", "#db2777")


class Dot(NamedTuple):
    x: float
    y: float
    low: float
    high: float


@dataclass
class Picture:
    """Lines over an axis of numbers; without one, a bar for each name."""

    title: str
    x: Optional[str]
    y: str
    lines: dict[str, list[Dot]]
    log_x: bool
    log_y: bool

    def shown(self, value: float) -> str:
        return _units.time(value) if self.y == "time" else _units.digits(value)


def plot(results: Results, path: Optional[Path], x: Optional[str], y: str, backend: Optional[str]) -> Any:
    if backend not in (None, "matplotlib", "svg"):
        raise ValueError(f"plot: backend '{backend}' is neither matplotlib nor svg")
    there = importlib.util.find_spec("matplotlib") is not None
    if backend == "matplotlib" and not there:
        raise ImportError("plot: matplotlib is not installed; backend='svg' needs nothing")
    picture = picture_of(results, x, y)
    if backend == "matplotlib" or (backend is None and there):
        return _by_matplotlib(picture, path)
    drawn = Svg(_draw(picture))
    if path is not None:
        if pathlib.Path(path).suffix.lower() != ".svg":
            raise ValueError(f"plot: {os.fspath(path)}: without matplotlib only .svg can be written")
        pathlib.Path(path).write_text(drawn.text, encoding="utf-8")
    return drawn


class Svg:
    """A picture that notebooks show; `text` is what a file holds."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_svg_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<kmark.plot, SVG, {len(self.text)} bytes>"


def picture_of(results: Results, x: Optional[str], y: str) -> Picture:
    if not len(results):
        raise ValueError("plot: there are no results")
    if y not in _SHOWN:
        raise ValueError(f"plot: y='{y}' is none of {', '.join(_SHOWN)}")
    axes = list(dict.fromkeys(axis for r in results for axis in r.point))
    if x is not None and x not in axes:
        raise ValueError(f"plot: x='{x}' is no axis of these results; there are {', '.join(axes) or 'none'}")
    x = x or next((axis for axis in axes if _differs(results, axis) and _numbers(results, axis)), None)
    if x is not None and not _numbers(results, x):
        raise ValueError(f"plot: x='{x}' has values that are no numbers")
    unit, rate = _SHOWN[y]
    rest = [axis for axis in axes if axis != x and _differs(results, axis)]
    cases = len({r.case for r in results}) > 1
    lines: dict[str, list[Dot]] = {}
    for at, r in enumerate(results):
        values = [rate(r, ns) for ns in (r.time_ns, *r.ci)]
        if None in values or (x is not None and x not in r.point):
            continue
        middle, *ends = (float(v) for v in values if v is not None)
        place = float(at) if x is None else float(r.point[x])  # type: ignore[arg-type]
        words = [*([r.case] if cases and r.case != r.name else []), r.name, *(f"{k}={r.point.get(k)}" for k in rest)]
        lines.setdefault(" ".join(words), []).append(Dot(place, middle, min(ends), max(ends)))
    if not lines:
        raise ValueError(f"plot: none of these results has {unit}; give flops=, bytes= or items= when measuring")
    for dots in lines.values():
        dots.sort()
    every = [dot for dots in lines.values() for dot in dots]
    first = results[0]
    title = f"{first.device.get('name', '?')}, {first.mode}"
    return Picture(title, x, unit, lines, _wide([d.x for d in every]), x is not None and _wide([d.y for d in every]))


def _differs(results: Results, axis: str) -> bool:
    return len({r.point.get(axis) for r in results}) > 1


def _numbers(results: Results, axis: str) -> bool:
    values = [r.point[axis] for r in results if axis in r.point]
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _wide(values: Sequence[float]) -> bool:
    """Whether they need a logarithmic axis."""
    return min(values) > 0 and max(values) > 8 * min(values)


def _by_matplotlib(p: Picture, path: Optional[Path]) -> Any:
    # A figure of its own: no window opens, and the caller's figures stay as they are.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for at, (name, dots) in enumerate(p.lines.items()):
        ends = [[d.y - d.low for d in dots], [d.high - d.y for d in dots]]
        if p.x is None:
            axes.bar([name], [dots[0].y], yerr=[[ends[0][0]], [ends[1][0]]], color=_COLOURS[at % len(_COLOURS)])
        else:
            colour = _COLOURS[at % len(_COLOURS)]
            axes.errorbar([d.x for d in dots], [d.y for d in dots], yerr=ends, label=name, marker="o", color=colour)
    if p.x is not None:
        axes.set_xlabel(p.x)
        axes.legend()
    if p.log_x:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({d.x for dots in p.lines.values() for d in dots}))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    if p.log_y:
        axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: p.shown(v)))
    axes.set_ylabel(p.y)
    axes.set_title(p.title)
    axes.grid(alpha=0.3)
    if path is not None:
        figure.savefig(os.fspath(path))
    return axes


class Scale:
    """Values to places."""

    def __init__(
        self, values: Sequence[float], places: tuple[float, float], log: bool, from_zero: bool = False
    ) -> None:
        self.log, self.places = log, places
        low, high = (0.0 if from_zero else min(values)), max(values)
        self.low, self.high = self._at(low), self._at(high)
        room = 0.05 * (self.high - self.low) or 0.5
        self.low, self.high = self.low - (0 if from_zero else room), self.high + room

    def _at(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: float) -> float:
        first, last = self.places
        return first + (self._at(value) - self.low) / (self.high - self.low) * (last - first)

    def ticks(self) -> list[float]:
        if self.log:
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            steps = (1, 2, 5) if self.high - self.low < 2.5 else (1,)
            values = [step * 10.0**decade for decade in decades for step in steps]
        else:
            raw = (self.high - self.low) / 5
            size = 10.0 ** math.floor(math.log10(raw))
            step = next(m * size for m in (1, 2, 5, 10) if m * size >= raw)
            values = [n * step for n in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [v for v in values if self.low <= self._at(v) <= self.high]


_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 700, 56, 366


def _draw(p: Picture) -> str:
    every = [dot for dots in p.lines.values() for dot in dots]
    # A bar's place is its number.
    places = [d.x for d in every] if p.x is not None else [-0.5, len(every) - 0.5]
    across = Scale(places, (_LEFT, _RIGHT), p.log_x and p.x is not None)
    ends = [end for d in every for end in (d.low, d.high)]
    up = Scale(ends, (_BOTTOM, _TOP), p.log_y, from_zero=not p.log_y)
    parts = [_text(_LEFT, 22, p.title, 'font-weight="600"'), _text(_LEFT, 44, p.y, 'opacity=".7"')]
    for value in up.ticks():
        parts += [_line((_LEFT, up(value)), (_RIGHT, up(value)), "currentColor", 'opacity=".18"')]
        parts += [_text(_LEFT - 8, up(value) + 4, p.shown(value), 'text-anchor="end" opacity=".75"')]
    if p.x is not None:
        values = sorted({d.x for d in every})
        for value in values if len(values) <= 12 else across.ticks():
            parts.append(_text(across(value), _BOTTOM + 18, f"{value:g}", 'text-anchor="middle" opacity=".75"'))
        parts.append(_text((_LEFT + _RIGHT) / 2, _BOTTOM + 40, p.x, 'text-anchor="middle" opacity=".75"'))
    for at, (name, dots) in enumerate(p.lines.items()):
        parts += _bar(p, name, dots, at, across, up) if p.x is None else _curve(p, name, dots, at, across, up)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor" role="img">\n'
        f"<title>{escape(p.title)}</title>\n{body}\n</svg>\n"
    )


def _curve(p: Picture, name: str, dots: Sequence[Dot], at: int, across: Scale, up: Scale) -> list[str]:
    colour = _COLOURS[at % len(_COLOURS)]
    points = " ".join(f"{across(d.x):.1f},{up(d.y):.1f}" for d in dots)
    dashes = "" if at < len(_COLOURS) else ' stroke-dasharray="6 3"'
    parts = [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>']
    for d in dots:
        parts.append(_line((across(d.x), up(d.low)), (across(d.x), up(d.high)), colour))
        hover = f"<title>{escape(name)}, {p.x} {d.x:g}: {p.shown(d.y)}</title>"
        parts.append(f'<circle cx="{across(d.x):.1f}" cy="{up(d.y):.1f}" r="4" fill="{colour}">{hover}</circle>')
    y = _TOP + 14 + 18 * at
    parts.append(f'<rect x="{_LEFT + 14}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
    return [*parts, _text(_LEFT + 30, y, name)]


def _bar(p: Picture, name: str, dots: Sequence[Dot], at: int, across: Scale, up: Scale) -> list[str]:
    (d, *_), colour = dots, _COLOURS[at % len(_COLOURS)]
    left, right = across(at - 0.35), across(at + 0.35)
    middle = (left + right) / 2
    return [
        f'<rect x="{left:.1f}" y="{up(d.y):.1f}" width="{right - left:.1f}" height="{_BOTTOM - up(d.y):.1f}" '
        f'fill="{colour}"><title>{escape(name)}: {p.shown(d.y)}</title></rect>',
        _line((middle, up(d.low)), (middle, up(d.high)), "currentColor"),
        _text(middle, up(d.high) - 6, p.shown(d.y), 'text-anchor="middle"'),
        _text(middle, _BOTTOM + 18, name, 'text-anchor="middle"'),
    ]


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def _line(start: tuple[float, float], end: tuple[float, float], colour: str, more: str = "") -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {more}/>'
