#!/usr/bin/env python3
"""Fills in the hashes of baselines/*.toml from the package index: every wheel of a pinned version that runs
on Linux, x86_64, CPython 3.11 to 3.13.

    baselines/pin.py [FILE ...]        rewrites the `sha256` lists in place, nothing else; default: all files

To move to a newer version, change `version` and run it again."""

import pathlib
import re
import sys
import urllib.request

INDEX = "https://pypi.org/simple"
PYTHONS = (11, 12, 13)
BLOCK = re.compile(
    r'^\[\[package\]\]\nname = "(?P<name>[^"]+)"\nversion = "(?P<version>[^"]+)"\n'
    r"(?P<hashes>sha256 = \[\n(?:.*\n)*?\]\n)?",
    re.MULTILINE,
)


def fits(python: str, abi: str, platform: str) -> bool:
    """Whether a wheel's tags are of one of our Pythons on our platform."""
    if platform != "any" and not ("manylinux" in platform and "x86_64" in platform):
        return False
    minors = [int(tag[3:]) for tag in python.split(".") if re.fullmatch(r"cp3\d+", tag)]
    if not minors:
        return "py3" in python.split(".") or any(f"py3{minor}" in python for minor in PYTHONS)
    if "abi3" in abi.split("."):
        return min(minors) <= max(PYTHONS)
    return any(f"cp3{minor}" in abi.split(".") for minor in PYTHONS)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wheels(name: str, version: str) -> list[tuple[str, str]]:
    """(tags, sha256) of each wheel that fits."""
    with urllib.request.urlopen(f"{INDEX}/{plain(name)}/") as page:
        links = re.findall(r'href="[^"#]*/([^"/#]+)\.whl#sha256=([0-9a-f]{64})"', page.read().decode())
    found = []
    for stem, sha256 in links:
        # A local version has a `+`, which an address spells %2B.
        of, its, *_, python, abi, platform = stem.replace("%2B", "+").split("-")
        if plain(of) == plain(name) and its == version and fits(python, abi, platform):
            found.append((f"{python}-{abi}-{platform}", sha256))
    if not found:
        sys.exit(f"error: {INDEX} has no wheel of {name} {version} for Linux on x86_64")
    return sorted(found)


def pinned(block: re.Match[str]) -> str:
    name, version = block["name"], block["version"]
    lines = [f'    "{sha256}", # {tags}\n' for tags, sha256 in wheels(name, version)]
    return f'[[package]]\nname = "{name}"\nversion = "{version}"\nsha256 = [\n{"".join(lines)}]\n'


def main() -> None:
    files = [pathlib.Path(f) for f in sys.argv[1:]] or sorted(pathlib.Path(__file__).parent.glob("*.toml"))
    for file in files:
        text = file.read_text()
        file.write_text(BLOCK.sub(pinned, text))
        print(f"{file}: {len(BLOCK.findall(text))} packages")


if __name__ == "__main__":
    main()
