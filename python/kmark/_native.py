"""The compiled module: in the package's folder, or where a checkout has built it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

NAME = "kmark._kmark"


def load() -> None:
    """Makes `kmark._kmark` importable."""
    path = os.environ.get("KMARK_EXTENSION")
    if not path or NAME in sys.modules:
        return
    loader = importlib.machinery.ExtensionFileLoader(NAME, path)
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[NAME] = module
