"""The contract of an op as its author writes it: `x: m n rows, w: n f32 normal(1,0.1), p: n inout -> y: m n`."""

from __future__ import annotations

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
_SIZE = re.compile(r"[\w+*/%(),-]+")
_WORD = re.compile(r"(?:[^\s()]|\((?:[^()]|\([^()]*\))*\))+")


def contract(text: str) -> list[Tensor]:
    """The tensors of `inputs -> outputs`; without an arrow, what is `inout` is the output."""
    inside, arrow, outside = text.partition("->")
    found = [_named(part, "in") for part in _parts(inside)]
    if arrow:
        found += [_named(part, "out") for part in _parts(outside)]
    if not any(t.role != "in" for t in found):
        raise BadOp(f"'{text}' has no output; write it like 'x: m n -> y: m n'")
    return found


def _parts(text: str) -> list[str]:
    """Between commas that stand in no parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", text) if part.strip()]


def _named(part: str, role: str) -> Tensor:
    name, colon, words = part.partition(":")
    if not colon or not name.strip().isidentifier():
        raise BadOp(f"'{part}' is no tensor; write it like 'x: m n'")
    return tensor(name.strip(), words, role)


def tensor(name: str, text: str, role: str) -> Tensor:
    """A tensor by its words; the error is one line."""
    dims: list[str] = []
    dtype: Optional[str] = None
    fill: Optional[Fill] = None
    for word in _WORD.findall(text):
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
        elif dtype is None and fill is None and _SIZE.fullmatch(word):
            dims.append(word)
        else:
            known = ", ".join(FILLS)
            raise BadOp(f"{name}: cannot read '{word}'; sizes come first, then a dtype, then {known} or inout")
    made = Tensor(name, role, dims or ["1"], dtype, fill)
    if fill is None and role != "out":
        if not made.is_float:
            raise BadOp(f"{name}: say which whole numbers: index(n), indptr(n), constant(c) or made")
        made.fill = _fill("rows" if len(dims) > 1 else "normal", [])
    return made


_NAME = re.compile(r"[A-Za-z_]\w*")


def names(dims: list[str]) -> list[str]:
    """What expressions name, functions aside."""
    found = []
    for dim in dims:
        found += [m.group() for m in _NAME.finditer(dim) if not dim[m.end() :].startswith("(")]
    return found
