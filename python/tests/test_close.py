"""`kmark.close`: the gate's rule for arrays that somebody holds, on the real compiled part."""

from __future__ import annotations

import importlib.util
import math
import pathlib
import struct
import sys
import types
import unittest
from typing import Any
from unittest import mock

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import kmark  # noqa: E402

try:
    import numpy as np
    from kmark import _kmark
except ImportError:
    np = None  # type: ignore[assignment]


@unittest.skipIf(np is None, "NumPy or the compiled part is missing")
class Close(unittest.TestCase):
    def setUp(self) -> None:
        self.exact = np.random.default_rng(1).normal(size=(64, 48))
        self.right = self.exact.astype(np.float32)

    def test_what_is_rounded_once_is_close_and_the_next_number_is_not(self) -> None:
        found = kmark.close(self.right, self.exact)
        self.assertTrue(found)
        self.assertEqual((found.grade, found.elements, found.beyond), ("tight", 64 * 48, 0))
        self.assertLessEqual(found.ratio, 1)
        self.assertRegex(str(found), r"^close, tight: y\[\d+, \d+\], the worst of 3072, is \S+, expected \S+ ± \S+; ")
        wrong = self.right.copy()
        wrong[3, 17] = np.nextafter(wrong[3, 17], np.float32(9))
        found = kmark.close(wrong, self.exact)
        self.assertFalse(found)
        self.assertEqual((found.index, found.beyond, found.grade), ((3, 17), 1, None))
        self.assertEqual((found.got, found.expected), (float(wrong[3, 17]), self.exact[3, 17]))
        self.assertGreater(found.ratio, 1)
        self.assertRegex(str(found), r"^wrong: 1 of 3072 elements of y are wrong; y\[3, 17\] is \S+, expected \S+ ± ")
        self.assertNotIn("\n", str(found))

    def test_slack_is_absolute_and_per_element(self) -> None:
        off = self.right.copy()
        off[:, 0] += np.float32(1e-3)
        self.assertFalse(kmark.close(off, self.exact, slack=1e-4))
        self.assertTrue(kmark.close(off, self.exact, slack=1.1e-3))
        columns = np.zeros(48)
        columns[0] = 1.1e-3
        self.assertTrue(kmark.close(off, self.exact, slack=columns), "slack is broadcast")
        columns[0] = math.inf
        off[:, 0] = np.nan
        self.assertTrue(kmark.close(off, self.exact, slack=columns), "nothing is asked of these")
        with self.assertRaisesRegex(ValueError, r"slack\[0, 5\] is no distance"):
            kmark.close(off, self.exact, slack=np.where(np.arange(48) == 5, -1.0, 0.0))
        with self.assertRaisesRegex(ValueError, r"slack has shape \[7\]"):
            kmark.close(off, self.exact, slack=np.zeros(7))

    def test_nan_is_wrong_and_infinity_must_be_met(self) -> None:
        self.assertFalse(kmark.close(np.array([np.nan]), np.array([1.0]), slack=1.0))
        self.assertTrue(kmark.close(np.array([-np.inf]), np.array([-np.inf])))
        self.assertFalse(kmark.close(np.array([0.0]), np.array([-np.inf])))
        self.assertTrue(kmark.close(np.array([np.nan, 1]), np.array([np.nan, 1])), "NaN where it is expected")
        self.assertFalse(kmark.close(np.array([1.0]), np.array([np.nan])))

    def test_strides_orders_and_scalars(self) -> None:
        self.assertTrue(kmark.close(self.right.T, self.exact.T))
        self.assertTrue(kmark.close(self.right[::-1, ::2], self.exact[::-1, ::2]))
        self.assertTrue(kmark.close(self.right.astype(">f4"), self.exact))
        self.assertTrue(kmark.close(np.float32(0.1), 0.1))
        self.assertEqual(str(kmark.close(0.1, 0.1))[:15], "close, tight: y")
        self.assertTrue(kmark.close(np.empty((0, 4), "f4"), np.empty((0, 4))))

    def test_other_dtypes(self) -> None:
        bits = struct.unpack("<I", struct.pack("<f", 1.0078125))[0] >> 16
        self.assertTrue(kmark.close(np.array([bits], np.uint16), np.array([1.0075]), dtype="bf16"))
        self.assertFalse(kmark.close(np.array([bits + 1], np.uint16), np.array([1.0075]), dtype="bf16"))
        wide = np.array([1.0078125], np.float32)  # a bf16 value in an f32 array
        self.assertFalse(kmark.close(wide, np.array([1.0075])))
        self.assertTrue(kmark.close(wide, np.array([1.0075]), dtype="bf16"))
        large = np.array([2**24 + 1, 7], np.int32)
        self.assertTrue(kmark.close(large, large.astype("f8")))
        self.assertFalse(kmark.close(large + 1, large.astype("f8")), "whole numbers are exact")
        self.assertTrue(kmark.close(np.array([True, False]), np.array([1.0, 0.0])))
        with self.assertRaisesRegex(TypeError, "got holds complex128; known are float64"):
            kmark.close(np.array([1j]), np.array([1.0]))
        with self.assertRaisesRegex(ValueError, "dtype 'float' is none of f64"):
            kmark.close(self.right, self.exact, dtype="float")

    def test_shapes_and_names_that_differ(self) -> None:
        found = kmark.close(self.right, self.exact[:3])
        self.assertFalse(found)
        self.assertIn("y has shape [64, 48], expected [3, 48]", str(found))
        with self.assertRaisesRegex(ValueError, "outputs are z, but y were got"):
            kmark.close({"y": self.right}, {"z": self.exact})
        with self.assertRaisesRegex(TypeError, "judged, not str"):
            kmark.close("y", self.exact)
        with self.assertRaisesRegex(TypeError, "given as slack="):
            kmark.close(self.right, self.exact, {"x": self.right})

    def test_several_outputs(self) -> None:
        wrong = self.right * np.float32(1.001)
        found = kmark.close({"y": self.right, "z": wrong}, {"y": self.exact, "z": self.exact})
        self.assertFalse(found)
        self.assertEqual((found.name, bool(found.outputs["y"]), bool(found.outputs["z"])), ("z", True, False))
        self.assertTrue(kmark.close((self.right, self.right), (self.exact, self.exact)))

    def test_the_bound_of_a_reference_is_derived(self) -> None:
        asked: dict[str, Any] = {}

        def truth(reference: Any, arguments: Any, outputs: Any, *, library: str) -> Any:
            asked.update(arguments=arguments, outputs=outputs, library=library)
            expect = [reference(**arguments)]
            slack = {"tight": [np.full((64, 48), 1e-7)], "loose": [np.full((64, 48), 1e-2)]}
            return types.SimpleNamespace(expect=expect, slack=slack.__getitem__, how="16 runs")

        fake = types.SimpleNamespace(truth=truth, Output=lambda *fields: fields)
        with (
            mock.patch.dict(sys.modules, {"kmark.bounds": fake}),
            mock.patch.object(  # fmt: skip
                kmark, "bounds", fake, create=True
            ),
        ):

            def double(x: Any) -> Any:
                return 2 * x

            self.assertTrue(kmark.close(2 * self.right, double, {"x": self.right}))
            self.assertEqual((asked["outputs"], asked["library"]), ([("y", "f32")], "numpy"))
            self.assertEqual(asked["arguments"]["x"].dtype, np.float64)
            rough = 2 * self.right + np.float32(1e-3)
            found = kmark.close(rough, double, [self.right])
            self.assertEqual((bool(found), found.grade, found.how), (True, "loose", "16 runs"))
            self.assertFalse(kmark.close(rough, double, [self.right], grade="tight"))
            with self.assertRaisesRegex(TypeError, "needs inputs="):
                kmark.close(rough, double)
            with self.assertRaisesRegex(TypeError, "do not fit the reference"):
                kmark.close(rough, double, [self.right, self.right])

    def test_the_compiled_part_takes_bytes_and_many_elements(self) -> None:
        n = 1 << 20
        got = np.ones(n, np.float32)
        got[[5, n - 1]] = 2
        said = _kmark.judge(got.tobytes(), "f32", np.ones(n).tobytes(), 0.0, shape=[1024, 1024], name="z")
        self.assertEqual((said["ok"], said["beyond"], said["index"], said["elements"]), (False, 2, 5, n))
        self.assertIn("z[0, 5] is 2.0", said["problems"][0])
        with self.assertRaisesRegex(ValueError, "4 elements, 3 expected"):
            _kmark.judge(np.ones(4), "f64", np.ones(3), 0.0)
        with self.assertRaisesRegex(TypeError, "expect: holds f32, not f64"):
            _kmark.judge(np.ones(4), "f64", np.ones(4, "f4"), 0.0)
        with self.assertRaisesRegex(TypeError, "only numpy.ndarray"):
            _kmark.judge([1.0], "f64", np.ones(1), 0.0)

    def test_a_check_that_says_no_shows_the_element(self) -> None:
        h = kmark.Harness("cpu", budget="10ms", rounds=1)
        with self.assertRaisesRegex(kmark.WrongResult, r"wrong: .*y\[\d+, \d+\] is .*expected"):
            h.measure(lambda: self.right + 1, "off", check=lambda y: kmark.close(y, self.exact))


@unittest.skipUnless(importlib.util.find_spec("torch") and np is not None, "torch or the compiled part is missing")
class OfTorch(unittest.TestCase):
    def test_tensors_of_every_dtype(self) -> None:
        import torch

        exact = torch.randn(32, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        for dtype in (
            torch.float64,
            torch.float32,
            torch.float16,
            torch.bfloat16,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
        ):
            right = exact.to(dtype)
            self.assertTrue(kmark.close(right, exact), str(dtype))
            self.assertTrue(kmark.close(right.T, exact.T), str(dtype))
            wrong = (exact * 1.5).to(dtype)
            self.assertFalse(kmark.close(wrong, exact), str(dtype))
        self.assertTrue(kmark.close(exact.float().requires_grad_(), exact, slack=torch.zeros(24)))
        self.assertTrue(kmark.close(torch.arange(5), torch.arange(5).double()))

    def test_tensors_are_spoiled_and_put_back(self) -> None:
        import torch

        a, c = torch.arange(4.0), torch.zeros(4)
        h = kmark.Harness("cpu", budget="10ms", rounds=1)
        for functions in (
            {"add": lambda: torch.add(a, 1, out=c), "lazy": lambda: c},
            {"add": lambda: torch.add(a, 1, out=c).view(2, 2), "lazy": lambda: c.view(2, 2)},
        ):
            with self.assertRaisesRegex(kmark.WrongResult, "lazy"):
                h.versus(functions, check=lambda y: bool((y.flatten() == a + 1).all()))
        with self.assertRaisesRegex(kmark.WrongResult, "nothing"):
            h.versus({"nothing": lambda: None}, outputs=c, check=lambda: bool((c == a + 1).all()))
        self.assertTrue((a == torch.arange(4.0)).all())


if __name__ == "__main__":
    unittest.main()
