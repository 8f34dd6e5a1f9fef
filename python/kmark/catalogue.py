"""Prints all adapters of the package as JSON, for the host."""

import json
import sys

from . import registry


def main() -> None:
    rows = [
        {"op": a.op, "name": a.name, "about": a.about, "hash": a.hash(), "devices": a.devices}
        for a in registry.load().values()
    ]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
