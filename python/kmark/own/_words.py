"""What is written behind a parameter: `"m n rows"`, `"n f32 normal(1,0.1)"`, `"n inout"`; and behind the arrow:
`"y: m n, s: m f32"`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Optional, Union

DTYPES = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "i64")
Fill = Union[str, dict[str, Any]]


class BadOp(Exception):
    """What is wrong with the definition of an op, in one line."""


@dataclass
class Tensor:
    name: str
    role: str
    dims: list[str]
    dtype: Optional[str]
    fill: Optional[Fill]

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name, "role": self.role, "dims": self.dims, "dtype": self.dtype,
            "fill": self.fill if self.fill is not None else {"constant": 0.0},
        }  # fmt: skip

    @property
    def is_float(self) -> bool:
        return self.dtype is None or self.dtype[0] in "fb"


def _numbers(arguments: list[str], defaults: list[float]) -> list[float]:
    if len(arguments) > len(defaults):
        raise ValueError("too many values")
    return [float(a) for a in arguments] + defaults[len(arguments) :]


def _fill(word: str, arguments: list[str]) -> Optional[Fill]:
    """A distribution by its word; none if it is no such word."""
    if word in ("zeros", "ones") and not arguments:
        return {"constant": float(word == "ones")}
    if word == "constant":
        (value,) = arguments
        return {"constant": float(value)}
    if word == "normal":
        mean, std = _numbers(arguments, [0.0, 1.0])
        return {"normal": {"mean": mean, "std": std}}
    if word == "rows":
        (shift,) = _numbers(arguments, [SHIFT])
        return {"rows": {"shift": shift}}
    if word == "uniform":
        low, high = _numbers(arguments, [0.0, 1.0])
        return {"uniform": {"low": low, "high": high}}
    if word == "index":
        (below,) = arguments
        return {"index": {"below": below}}
    if word == "indptr":
        (to,) = arguments
        return {"indptr": {"to": to}}
    if word in ("logits", "made") and not arguments:
        return word
    return None


FILLS = ("zeros", "ones", "constant", "normal", "rows", "uniform", "index", "indptr", "logits", "made")
# How far the shifted one of rows lies from zero.
SHIFT = 16.0
# Words, each with what stands in its parentheses.
_WORD = re.compile(r"[^\s()]+(?:\([^()]*\))*[^\s()]*")


def is_text(annotation: Any) -> bool:
    """Whether an annotation is ours. Where annotations are postponed, a text is a text in quotes."""
    return isinstance(annotation, str)


def plain(annotation: str) -> str:
    """Without the quotes that postponed annotations have around them."""
    text = annotation.strip()
    if text[:1] in "\"'":
        try:
            return str(ast.literal_eval(text))
        except (SyntaxError, ValueError):
            pass
    return text


def tensor(name: str, text: str, role: str) -> Tensor:
    """A tensor by its words; the error is one line."""
    dims: list[str] = []
    dtype: Optional[str] = None
    fill: Optional[Fill] = None
    for word in _WORD.findall(plain(text)):
        head, _, rest = word.partition("(")
        if word in DTYPES:
            dtype = word
        elif word == "inout" and role == "in":
            role = "inout"
        elif head in FILLS:
            arguments = [a.strip() for a in rest.rstrip(")").split(",") if a.strip()] if rest else []
            try:
                fill = _fill(head, arguments)
            except ValueError:
                fill = None
            if fill is None:
                raise BadOp(f"{name}: '{word}' is not how {head} is written")
            if role == "out":
                raise BadOp(f"{name}: an output has no values to draw ('{word}')")
        elif dtype is None and fill is None and re.fullmatch(r"[\w+*/%()-]+", word):
            dims.append(word)
        else:
            raise BadOp(f"{name}: cannot read '{word}'; sizes come first, then a dtype, then {', '.join(FILLS)} or inout")
    made = Tensor(name, role, dims or ["1"], dtype, fill)
    if fill is None and role != "out":
        if not made.is_float:
            raise BadOp(f"{name}: say which whole numbers: index(n), indptr(n), constant(c) or made")
        made.fill = _fill("rows" if len(dims) > 1 else "normal", [])
    return made


def outputs(text: str, inputs: list[Tensor]) -> list[Tensor]:
    """Those behind the arrow. A name alone is an input that is changed in place."""
    found = []
    for part in plain(text).split(","):
        name, colon, rest = part.strip().partition(":")
        name = name.strip()
        known = next((t for t in inputs if t.name == name), None)
        if known is not None:
            if known.role != "inout":
                raise BadOp(f"{name}: an input that is changed is written with inout")
            continue
        if not colon or not name:
            raise BadOp(f"write an output as 'y: m n', not '{part.strip()}'")
        found.append(tensor(name, rest, "out"))
    return found


_NAME = re.compile(r"[A-Za-z_]\w*")


def names(dims: list[str]) -> list[str]:
    """What expressions name, functions aside."""
    found = []
    for dim in dims:
        found += [m.group() for m in _NAME.finditer(dim) if not dim[m.end() :].startswith("(")]
    return found
