"""Adapters: what is registered and how it is bound; hashes, which change with every file that decides what runs."""

from __future__ import annotations

import functools
import pathlib
import sys
import tempfile
import types
import unittest
from typing import Any
from unittest import mock

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


class Registering(unittest.TestCase):
    def setUp(self) -> None:
        patch = mock.patch.object(registry, "REGISTERED", [])
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_name_keeps_the_options(self) -> None:
        @registry.impl("fast", op="rmsnorm", devices="cpu", arrays="numpy", contract="other")
        def function(x: Any, y: Any) -> None:
            "Does it."

        ((module, made),) = registry.REGISTERED
        self.assertEqual((module, made.name, made.op, made.about), (__name__, "fast", "rmsnorm", "Does it."))
        self.assertEqual((made.devices, made.arrays, made.strided, made.contract), (("cpu",), "numpy", False, "other"))

    def test_unknown_words_are_refused(self) -> None:
        for options, says in (
            ({"devices": "gpu"}, "devices are cpu and cuda, not 'gpu'"),
            ({"devices": ["cpu", "tpu"]}, "not 'tpu'"),
            ({"devices": []}, "not none"),
            ({"arrays": "cupy"}, "arrays='cupy' is none of torch, numpy, dlpack"),
        ):
            with self.assertRaisesRegex(ValueError, says):
                registry.impl(op="rmsnorm", **options)

    def test_what_a_file_imports_decides_its_arrays(self) -> None:
        there = mock.patch.object(registry.importlib.util, "find_spec", return_value=object())
        gone = mock.patch.object(registry.importlib.util, "find_spec", return_value=None)
        for text, with_torch, without in (
            ("import numpy as np\n", "numpy", "numpy"),
            ("def f():\n    from numpy.linalg import norm\n", "numpy", "numpy"),
            ("import numpy, torch\n", "torch", "torch"),
            ("from torch.nn import functional\n", "torch", "torch"),
            ("import math\n", "torch", "numpy"),
        ):
            with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
                file.write(text)
                file.flush()
                with there:
                    self.assertEqual(registry.arrays_of(file.name), with_torch, text)
                with gone:
                    self.assertEqual(registry.arrays_of(file.name), without, text)

    def test_parameters_of_every_kind_are_bound(self) -> None:
        text = '{"id": "", "op": "rmsnorm", "dtype": "f32", "axes": {"m": 2}, "attrs": {"eps": "0.5"}, "seed": 1}'
        case, t = registry.Case(text, "cpu"), types.SimpleNamespace(x=1, y=2)
        seen: list[Any] = []

        def function(
            x: Any, block: int = 64, m: int = 0, *rest: Any, y: Any, eps: float = 9, fast: bool = True, **more: Any
        ) -> None:
            seen.append((x, block, m, rest, y, eps, fast, more))

        registry.adapter_of(function, "rmsnorm", "f", "numpy").bind(case, t)()
        partial = registry.adapter_of(functools.partial(function, block=8), "rmsnorm", "f", "numpy")
        partial.bind(case, t)()
        self.assertEqual(seen, [(1, 64, 2, (), 2, 0.5, True, {}), (1, 8, 2, (), 2, 0.5, True, {})])

        def needs(x: Any, z: Any) -> None: ...

        with self.assertRaisesRegex(TypeError, "no tensor, axis or attribute z"):
            registry.adapter_of(needs, "rmsnorm", "f", "numpy").bind(case, t)

    def test_what_must_be_alone_to_choose_waits_for_its_turn(self) -> None:
        text = '{"id": "", "op": "gemm", "dtype": "f32", "axes": {"m": 2}, "attrs": {}, "seed": 1}'
        case = registry.Case(text, "cuda")
        with mock.patch.dict("os.environ", KMARK_AHEAD="1"):
            with case.tuning():
                pass
            self.assertIsNotNone(case.tune_ns)
            with self.assertRaisesRegex(registry.Unsupported, "when its turn comes"), case.tuning(alone=True):
                self.fail("it chooses beside others")
        before = case.tune_ns
        with case.tuning(alone=True):
            pass
        self.assertGreater(case.tune_ns or 0, before or 0)

    def test_rows_that_are_no_vectors_are_refused(self) -> None:
        from kmark.impls._rows import row_in_vectors

        vectors = [("bf16", 4096, True), ("bf16", 4100, False), ("f32", 4100, True), ("f32", 4098, False)]
        words = [("f16", 258, True), ("f16", 257, False), ("f32", 257, True)]
        for size, tries in ((16, vectors), (4, words)):
            for dtype, n, fits in tries:
                case = types.SimpleNamespace(dtype=dtype, n=n)
                if fits:
                    row_in_vectors(case, size)
                else:
                    with self.assertRaisesRegex(registry.Unsupported, "n a multiple of"):
                        row_in_vectors(case, size)


class Explaining(unittest.TestCase):
    def test_what_went_wrong_is_plain_text(self) -> None:
        from kmark.worker import explain

        coloured = type("DSLRuntimeError", (RuntimeError,), {})("\n\x1b[91m\x1b[1merror:\x1b[0m no such layout\n")
        self.assertEqual(explain(coloured, "quack"), ("build-failed", "DSLRuntimeError: error: no such layout"))


if __name__ == "__main__":
    unittest.main()
