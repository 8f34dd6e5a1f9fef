"""Results as text, as HTML for notebooks, and as flat records."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Optional, Sequence

from . import _engine, _units

# Those of `results.py`, which stands above.
Comparison = Result = Results = Any

#: A time below so many empty launches says more about launching than about the function.
LAUNCH_BOUND = 3
#: Where a call of an empty Python function takes more than this share of a time, readers are told.
CALL_SHARE = 0.03


def notes(r: Result) -> list[str]:
    remarks = list(r.remarks)
    known = r.verified or any(remark.startswith("unverified") for remark in remarks)
    found = remarks if known else ["unverified: no check was given", *remarks]
    call, empty = r.calibration.get("empty_call_ns"), r.calibration.get("empty_launch_ns")
    if call:
        if call > CALL_SHARE * r.time_ns:
            share = _units.percent(min(1.0, call / r.time_ns))
            found.append(f"calling an empty function takes {_units.time(call)}, {share} of this time")
    elif empty and r.mode != "graph" and r.time_ns < LAUNCH_BOUND * empty:
        found.append(f"an empty launch alone takes {_units.time(empty)}")
    held = [v for v in r.visits if (v.conditions or {}).get("throttled")]
    if 2 * sum(v.samples for v in held) > len(r.samples_ns):
        reasons = dict.fromkeys(why for v in held for why in (v.conditions or {})["throttled"])
        found.append(f"throttled by {', '.join(reasons)}")
    return found


def result_text(r: Result) -> str:
    rates = [text for text in _rates(r) if text]
    parts = [f"{r.label}: {_units.time(r.time_ns)} ± {_units.percent(r.precision)}", *rates]
    where = f"{len(r.samples_ns)} samples, {r.mode}, {r.device.get('name', '?')}"
    return " · ".join([*parts, where, *(["verified"] if r.verified else []), *notes(r)])


def _flop_unit(results: Iterable[Result]) -> tuple[float, str]:
    """What suits the largest of them: thousandths of a TFLOP/s cannot be read."""
    large = any(r.tflops is not None and r.tflops >= 0.5 for r in results)
    return (1, "TFLOP/s") if large else (1000, "GFLOP/s")


def _rates(r: Result, flops: Optional[tuple[float, str]] = None) -> list[str]:
    scale, unit = flops or _flop_unit([r])
    return [
        f"{_units.digits(r.gbps)} GB/s" if r.gbps is not None else "",
        f"{_units.digits(r.tflops * scale)} {unit}" if r.tflops is not None else "",
        f"{r.items_per_s:.3g} items/s" if r.items_per_s is not None else "",
    ]


def _rows(results: Results) -> tuple[list[str], list[list[str]], list[Optional[Comparison]]]:
    """Heads and cells; columns that nobody fills are left out."""
    axes = list(dict.fromkeys(k for r in results for k in r.point))
    flops = _flop_unit(results)
    rates = ["GB/s", flops[1], "items/s"]
    cases = [r.case for r in results]
    heads = ["case", "name", *axes, "time", "±", "p95", *rates, "checked", "× base", "verdict"]
    compared = [results.comparison(r) for r in results]
    rows = []
    for r, c in zip(results, compared):
        point = [str(r.point.get(k, "")) for k in axes]
        times = [_units.time(r.time_ns), _units.percent(r.precision), _units.time(r.p95)]
        speeds = [text.split(" ")[0] for text in _rates(r, flops)]
        case = r.case if len(set(cases)) > 1 else ""
        checked = "yes" if r.verified else "no"
        rows.append([case, r.name, *point, *times, *speeds, checked, *_verdict(c)])
    kept = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    return [heads[i] for i in kept], [[row[i] for i in kept] for row in rows], compared


def _verdict(c: Optional[Comparison]) -> list[str]:
    if c is None:
        return ["", ""]
    return [f"{_units.digits(c.ratio)}×", f"{c.verdict} ({c.note or _units.sees(c.sees)})"]


def results_text(results: Results) -> str:
    if not len(results) and not results.skipped and not results.failed:
        return "no results"
    heads, rows, _ = _rows(results)
    left = {"case", "name", "verdict", "checked"}
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.ljust(w) if h in left else c.rjust(w) for c, w, h in zip(cells, widths, heads))
        return "  ".join(padded).rstrip()

    lines = [line(heads), *map(line, rows)] if rows else []
    return "\n".join([*lines, *(["", *_footer(results)] if _footer(results) else [])])


def _footer(results: Results) -> list[str]:
    """What the cells do not say."""
    lines = [f"skipped: {one.label}: {one.message}" for one in results.skipped]
    lines += [f"failed: {one}" for one in results.failed]
    for r in results:
        lines += [f"{r.label}: {note}" for note in notes(r) if not note.startswith("unverified")]
    unverified = sum(not r.verified for r in results)
    if unverified:
        lines.append(f"unverified: {unverified} of {len(results)}; without a check nobody knows what they compute")
    where = list(dict.fromkeys(f"{r.device.get('name', '?')}, {r.mode}" for r in results))
    if results.noise is not None:
        where.append(f"A/A noise {_units.percent(results.noise)}")
    return [*lines, " · ".join(where)] if where else lines


def record(r: Result, c: Optional[Comparison]) -> dict[str, Any]:
    low, high = r.ci
    clock = _engine.percentile(r.clock_mhz, 0.5) if r.clock_mhz else None
    row: dict[str, Any] = {
        "case": r.case, "name": r.name, "time_ns": r.time_ns, "low_ns": low, "high_ns": high, "median_ns": r.p50,
        "mean_ns": r.mean, "std_ns": r.std,
        "min_ns": r.min, "max_ns": r.max, "p90_ns": r.p90, "p95_ns": r.p95, "p99_ns": r.p99,
        "samples": len(r.samples_ns), "gbps": r.gbps, "tflops": r.tflops, "items_per_s": r.items_per_s,
        "clock_mhz": clock, "first_call_ns": r.first_call_ns, "verified": r.verified, "mode": r.mode,
        "device": r.device.get("name"), "started": r.started, "base": c.base if c else None,
        "ratio": c.ratio if c else None, "ratio_low": c.low if c else None,
        "ratio_high": c.high if c else None,
        "sees": c.sees if c else None, "verdict": c.verdict if c else None,
    }  # fmt: skip
    return {**row, **{f"point_{k}" if k in row else k: v for k, v in r.point.items()}}


# Notebooks: text in the colour of the page, marks in colours that stand on white and on black.
_BAR, _MARK = "#3b82f6", "#f97316"
_CELL = "padding:2px 10px;text-align:"


def result_html(r: Result) -> str:
    low, high = r.ci
    facts = [
        ("time", f"<b>{_units.time(r.time_ns)}</b> ({_units.time(low)} to {_units.time(high)})"),
        ("mean ± std", f"{_units.time(r.mean)} ± {_units.time(r.std)}"),
        ("min, p95, p99, max", ", ".join(_units.time(ns) for ns in (r.min, r.p95, r.p99, r.max))),
        ("rate", ", ".join(text for text in _rates(r) if text)),
        ("samples", f"{len(r.samples_ns)} in {len(r.visits)} visits, {escape(r.mode)}"),
        ("device", escape(r.device.get("name", "?"))),
        ("checked", "yes" if r.verified else ""),
        ("note", escape("; ".join(notes(r)))),
    ]
    rows = "".join(
        f'<tr><td style="{_CELL}left;opacity:.7">{k}</td><td style="{_CELL}left">{v}</td></tr>' for k, v in facts if v
    )
    return (
        f'<div style="font-variant-numeric:tabular-nums"><b>{escape(r.label)}</b>{histogram(r)}'
        f'<table style="background:none">{rows}</table></div>'
    )


def results_html(results: Results) -> str:
    heads, rows, compared = _rows(results)
    left = {"case", "name", "verdict", "checked"}
    colours = {"faster": "#16a34a", "slower": "#dc2626"}

    def cell(tag: str, head: str, text: str, style: str = "") -> str:
        side = "left" if head in left else "right"
        return f'<{tag} style="{_CELL}{side};white-space:nowrap{style}">{escape(text)}</{tag}>'

    # One axis for all strips of a table, so that they can be compared by eye.
    span = _span([ns for r in results for ns in (r.percentile(0.01), r.percentile(0.99))]) if rows else (0.0, 1.0)
    body = ""
    for r, c, row in zip(results, compared, rows):
        colour = f";color:{colours[c.verdict]}" if c and c.verdict in colours else ""
        cells = "".join(cell("td", h, text, colour if h == "verdict" else "") for h, text in zip(heads, row))
        body += f'<tr>{cells}<td style="{_CELL}left">{strip(r, span)}</td></tr>'
    head = "".join(cell("th", h, h) for h in heads) + f'<th style="{_CELL}left">samples</th>'
    foot = "<br>".join(escape(line) for line in _footer(results))
    return (
        f'<div style="font-variant-numeric:tabular-nums"><table style="background:none">'
        f"<thead><tr>{head}</tr></thead>"
        f'<tbody>{body}</tbody></table><small style="opacity:.7">{foot}</small></div>'
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.04 * (high - low) or 0.01 * high or 1.0
    return low - room, high + room


def _svg(width: int, height: int) -> str:
    return f'<svg role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'


def histogram(r: Result, width: int = 420, height: int = 70, bins: int = 60) -> str:
    """All samples but the slowest hundredth, which is counted: one hiccup would squeeze all others."""
    top = r.p99
    shown = [ns for ns in r.samples_ns if ns <= top] or list(r.samples_ns)
    low, high = _span(shown)
    counts = [0] * bins
    for ns in shown:
        counts[min(bins - 1, int((ns - low) / (high - low) * bins))] += 1
    base, bar = height - 16, width / bins
    bars = "".join(
        f'<rect x="{i * bar:.1f}" y="{base - n / max(counts) * (base - 4):.1f}" width="{bar - 0.8:.1f}" '
        f'height="{n / max(counts) * (base - 4):.1f}" fill="{_BAR}"/>'
        for i, n in enumerate(counts) if n
    )  # fmt: skip
    at = (r.time_ns - low) / (high - low) * width
    hidden = len(r.samples_ns) - len(shown)
    right = _units.time(high) + (f" ({hidden} slower)" if hidden else "")
    text = f'y="{height - 3}" font-size="11" fill="currentColor" opacity=".75"'
    return (
        f'{_svg(width, height)} style="display:block">'
        f"<title>{escape(r.label)}: {len(r.samples_ns)} samples, time {_units.time(r.time_ns)}</title>"
        f"{bars}"
        f'<line x1="0" x2="{width}" y1="{base}" y2="{base}" stroke="currentColor" opacity=".4"/>'
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{base}" stroke="{_MARK}" stroke-width="1.5"/>'
        f'<text x="0" {text}>{_units.time(max(low, 0))}</text>'
        f'<text x="{width}" text-anchor="end" {text}>{right}</text></svg>'
    )


def strip(r: Result, span: tuple[float, float], width: int = 160, height: int = 16) -> str:
    """One tick per sample, 200 at most, on a common axis."""
    low, high = span
    step = max(1, len(r.samples_ns) // 200)

    def x(ns: float) -> float:
        return min(max((ns - low) / (high - low), 0.0), 1.0) * (width - 2) + 1

    ticks = "".join(f"M{x(ns):.1f} 3V{height - 3}" for ns in r.samples_ns[::step])
    return (
        f"{_svg(width, height)}><title>{escape(r.label)}</title>"
        f'<path d="{ticks}" stroke="{_BAR}" stroke-width="1" opacity=".45" fill="none"/>'
        f'<path d="M{x(r.time_ns):.1f} 0V{height}" stroke="{_MARK}" stroke-width="2"/></svg>'
    )
