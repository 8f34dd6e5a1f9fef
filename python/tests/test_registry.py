"""Hashes of adapters: they change with every file that decides what runs."""

from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from kmark import registry  # noqa: E402


class Hashes(unittest.TestCase):
    def test_helpers_are_part_of_it(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "op.py").write_text("from ._rows import rows\nfrom . import _more\nimport json\n")
            (folder / "_rows.py").write_text("def f():\n    from ._deep import d\n")
            for helper in ("_more", "_deep", "_other"):
                (folder / f"{helper}.py").write_text("a = 1\n")
            names = [name for name, _ in registry._sources(str(folder / "op.py"))]
            self.assertEqual(names, ["_deep.py", "_more.py", "_rows.py", "op.py"])

    def test_an_adapter_of_ours_has_its_helpers(self) -> None:
        impls = pathlib.Path(registry.__file__).parent / "impls"
        names = [name for name, _ in registry._sources(str(impls / "attention.py"))]
        self.assertIn("_attention.py", names)
        self.assertIn("attention.py", names)


if __name__ == "__main__":
    unittest.main()
