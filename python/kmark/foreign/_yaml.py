"""As much YAML as a task.yml has: plain values, lists and maps in blocks or in brackets, texts that go on for lines."""

from __future__ import annotations

import re
from typing import Any

from ..own._words import BadOp

Line = tuple[int, int, str]  # number, indent, text
_PLAIN = {"true": True, "True": True, "false": False, "False": False, "null": None, "~": None, "": None}


def read(text: str) -> dict[str, Any]:
    lines: list[Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        body = raw.rstrip()
        lines.append((number, len(body) - len(body.lstrip(" ")), body.strip()))
    reader = _Reader(lines)
    found = reader.block(0)
    return found if isinstance(found, dict) else {}


class _Reader:
    def __init__(self, lines: list[Line]) -> None:
        self.lines, self.at = lines, 0

    def _next(self) -> Any:
        """The next line that says something; it stays."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line[2] and not line[2].startswith("#") and line[2] != "---":
                return line
            self.at += 1
        return None

    def block(self, indent: int) -> Any:
        line = self._next()
        if line is None or line[1] < indent:
            return None
        return self._list(line[1]) if line[2].startswith("- ") or line[2] == "-" else self._map(line[1])

    def _list(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while (line := self._next()) is not None and line[1] == indent and (line[2] + " ").startswith("- "):
            number, _, text = line
            rest = text[1:].lstrip()
            if _KEY.match(rest) and not rest.startswith(("{", "[")):
                inside = indent + len(text) - len(rest)
                self.lines[self.at] = (number, inside, rest)
                found.append(self._map(inside))
            else:
                self.at += 1
                found.append(self._value(rest, number, indent))
        return found

    def _map(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while (line := self._next()) is not None and line[1] == indent and not line[2].startswith("- "):
            number, _, text = line
            match = _KEY.match(text)
            if match is None:
                raise BadOp(f"task.yml, line {number}: cannot read '{text}'")
            self.at += 1
            found[match[1].strip("\"'")] = self._value(text[match.end() :].strip(), number, indent)
        if line is not None and line[1] > indent:
            raise BadOp(f"task.yml, line {line[0]}: cannot read '{line[2]}'")
        return found

    def _value(self, text: str, number: int, indent: int) -> Any:
        if text[:1] in ("|", ">"):
            words = []
            while self.at < len(self.lines) and (not self.lines[self.at][2] or self.lines[self.at][1] > indent):
                words.append(self.lines[self.at][2])
                self.at += 1
            return "\n".join(words).strip()
        if not text or text.startswith("#"):
            line = self._next()
            deeper = line is not None and (line[1] > indent or line[1] == indent and line[2].startswith("- "))
            return self.block(line[1]) if line is not None and deeper else None
        while text[0] in "{[" and _depth(text) > 0 and self.at < len(self.lines):
            text += " " + self.lines[self.at][2]
            self.at += 1
        value, rest = _flow(text, number)
        if rest and not rest.startswith("#"):
            raise BadOp(f"task.yml, line {number}: cannot read '{rest}'")
        return value


_KEY = re.compile(r"""("[^"]*"|'[^']*'|[\w.-]+)\s*:(?=\s|$)""")
_WORD = re.compile(r"""("[^"]*"|'[^']*'|[^,\]}#]*)""")


def _depth(text: str) -> int:
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", text)
    return sum(bare.count(c) for c in "{[") - sum(bare.count(c) for c in "}]")


def _flow(text: str, number: int) -> tuple[Any, str]:
    """A value in one line, and what stands behind it."""
    text = text.strip()
    if text[:1] in ("{", "["):
        end, found, rest = "}" if text[0] == "{" else "]", [], text[1:].strip()
        while not rest.startswith(end):
            key = None
            if end == "}":
                match = re.match(r"""("[^"]*"|'[^']*'|[\w.-]+)\s*:""", rest)
                if match is None:
                    raise BadOp(f"task.yml, line {number}: cannot read '{rest}'")
                key, rest = match[1].strip("\"'"), rest[match.end() :]
            value, rest = _flow(rest, number)
            found.append((key, value))
            rest = rest.lstrip(", ")
            if not rest:
                raise BadOp(f"task.yml, line {number}: a '{text[0]}' without its '{end}'")
        return (dict(found) if end == "}" else [value for _, value in found]), rest[1:].strip()
    match = _WORD.match(text)
    word = match[0].strip() if match else ""
    return _scalar(word), text[match.end() :].strip() if match else ""


def _scalar(word: str) -> Any:
    if word[:1] in "\"'" and len(word) > 1:
        return word[1:-1]
    if word in _PLAIN:
        return _PLAIN[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word
