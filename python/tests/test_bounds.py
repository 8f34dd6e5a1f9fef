"""Bounds derived from NumPy references: honest kernels pass, wrong ones do not, bad references are told in one line."""

from __future__ import annotations

import pathlib
import sys
import unittest
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import bounded  # noqa: E402
import numpy as np  # noqa: E402
from bounded import SUMS, mutants, ratio, rmsnorm, rmsnorm_f32, softmax, softmax_f32, values  # noqa: E402
from kmark import bounds  # noqa: E402
from kmark.bounds import BadReference, Output  # noqa: E402

ROWS, COLUMNS = 24, 700


def truth(reference: Any, dtype: str = "f32", *, runs: int = 16, matmul: Any = None, **arguments: Any) -> bounds.Truth:
    return bounds.truth(reference, arguments, [Output("y", dtype)], library="numpy", runs=runs, matmul=matmul)


class Honest(unittest.TestCase):
    def test_a_softmax_in_any_order_and_base_passes(self) -> None:
        for dtype in ("f32", "bf16", "f16"):
            x = values(dtype, ROWS, COLUMNS, scale=3)
            x[3] += 100  # base 2 rounds what is large before it subtracts
            found = truth(softmax, dtype, x=x)
            for name, add in SUMS.items():
                for base2 in (False, True):
                    worst = ratio(found, softmax_f32(x, add, base2), dtype)
                    self.assertLessEqual(worst, 1, f"{dtype} {name} {base2}")

    def test_a_norm_in_any_order_passes(self) -> None:
        for dtype in ("f32", "bf16"):
            x, w = values(dtype, ROWS, COLUMNS), values(dtype, COLUMNS, seed=1)
            found = truth(rmsnorm, dtype, x=x, w=w)
            for name, add in SUMS.items():
                self.assertLessEqual(ratio(found, rmsnorm_f32(x, w, add), dtype), 1, f"{dtype} {name}")

    def test_sums_of_all_kinds_pass(self) -> None:
        x = values("f32", ROWS, COLUMNS)
        for sample in (x, np.abs(x), x + 3):
            sample = sample.astype(np.float32).astype(float)
            for reference in (
                lambda x: x.sum(axis=-1),
                lambda x: np.mean(x, axis=-1) * COLUMNS,
                lambda x: np.einsum("ij->i", x),
                lambda x: x @ np.ones(COLUMNS),
                lambda x: np.cumsum(x, axis=-1)[:, -1],
                lambda x: sum(x[:, i] for i in range(COLUMNS)),
                lambda x: np.add.reduceat(x, [0], axis=1)[:, 0],
                lambda x: np.bincount(np.zeros(1, dtype=int), minlength=ROWS) * 0 + np.dot(x, np.ones(COLUMNS)),
            ):
                found = truth(reference, x=sample)
                for name, add in SUMS.items():
                    self.assertLessEqual(ratio(found, add(sample), "f32"), 1, name)

    def test_rounded_intermediates_are_loose(self) -> None:
        x, w = values("bf16", ROWS, COLUMNS), values("bf16", COLUMNS, seed=1)
        found = truth(rmsnorm, "bf16", x=x, w=w)
        normed = bounds.rounded(rmsnorm_f32(x, np.ones(COLUMNS)).astype(float), "bf16")
        self.assertGreater(ratio(found, normed * w, "bf16"), 1)
        self.assertLessEqual(ratio(found, normed * w, "bf16", "loose"), 1)

    def test_a_matrix_unit_rounds_what_it_is_handed(self) -> None:
        x, v = values("bf16", ROWS, 64, scale=3), values("bf16", 64, 16, seed=1)

        def attend(x: Any, v: Any) -> Any:
            return softmax(x) @ v

        p = bounds.rounded(softmax_f32(x).astype(float), "bf16")
        for matmul, passes in (("bf16", True), (None, False)):
            found = truth(attend, "bf16", matmul=matmul, x=x, v=v)
            self.assertEqual(ratio(found, p @ v, "bf16") <= 1, passes)

    def test_f64_kernels_are_judged_in_long_double(self) -> None:
        x = values("f64", ROWS, COLUMNS, scale=3)
        found = truth(softmax, "f64", x=x)
        for right in (softmax(x), softmax(x[:, ::-1])[:, ::-1]):
            self.assertLessEqual(ratio(found, right, "f64"), 1)
        self.assertGreater(ratio(found, softmax_f32(x), "f64"), 1000)


class Wrong(unittest.TestCase):
    def test_mutants_of_a_softmax_are_rejected(self) -> None:
        for dtype in ("f32", "bf16", "f16"):
            x, other = values(dtype, ROWS, COLUMNS, scale=3), values(dtype, ROWS, COLUMNS, seed=9, scale=3)
            found = truth(softmax, dtype, x=x)
            wrong = mutants(softmax_f32(x), softmax_f32(other))
            e = np.exp(x - x.max(axis=-1, keepdims=True))
            wrong["no last term"] = e / e[:, :-8].sum(axis=-1, keepdims=True)
            for name, got in wrong.items():
                self.assertGreater(ratio(found, got, dtype), 1, f"{dtype} {name}")

    def test_mutants_of_a_norm_are_rejected(self) -> None:
        for dtype in ("f32", "bf16"):
            x, w = values(dtype, ROWS, COLUMNS), values(dtype, COLUMNS, seed=1)
            x[4] *= 1e-3
            other = values(dtype, ROWS, COLUMNS, seed=9)
            found = truth(rmsnorm, dtype, x=x, w=w)
            wrong = mutants(rmsnorm_f32(x, w), rmsnorm_f32(other, w))
            wrong["no eps"] = rmsnorm_f32(x, w, eps=0)
            wrong["no weight"] = rmsnorm_f32(x, np.ones(COLUMNS))
            for name, got in wrong.items():
                self.assertGreater(ratio(found, got, dtype), 1, f"{dtype} {name}")

    def test_tf32_is_not_f32(self) -> None:
        a, b = values("f32", 33, 129), values("f32", 129, 17, seed=1)
        found = truth(lambda a, b: a @ b, a=a, b=b)
        self.assertLessEqual(ratio(found, a.astype(np.float32) @ b.astype(np.float32), "f32"), 1)
        self.assertGreater(ratio(found, bounds.rounded(a, "f16") @ bounds.rounded(b, "f16"), "f32"), 20)


class Told(unittest.TestCase):
    """Everything that a `Truth` says about itself."""

    def test_how_the_bound_was_found(self) -> None:
        x = values("f32", 8, 64)
        found = truth(softmax, x=x)
        self.assertEqual(found.how, "random rounding of NumPy operations, 16 runs")
        self.assertEqual((found.blind, found.free, found.ill_conditioned), ([], [None], False))
        self.assertTrue(1 < found.width[0] < 200, found.width)
        found = truth(lambda x: x / float(x.max()), runs=8, x=x)
        self.assertEqual(found.how, "inputs perturbed at random, 8 runs")
        self.assertIn("float()", found.blind[0])
        self.assertLessEqual(ratio(found, x.astype(np.float32) / np.float32(x.max()), "f32"), 1)

    def test_a_function_without_a_rule(self) -> None:
        found = truth(lambda x: np.interp(x, [-1, 0, 1], [0, 1, 0]), x=values("f32", 8, 64))
        self.assertEqual(len(found.blind), 1)
        self.assertIn("numpy.interp has no rule of its own", found.blind[0])

    def test_cancellation_is_ill_conditioned(self) -> None:
        x = values("f32", 8, 64) + 3e4
        found = truth(lambda x: (x * x).mean(axis=-1) - x.mean(axis=-1) ** 2, x=x)
        self.assertTrue(found.ill_conditioned)
        self.assertFalse(truth(lambda x: x.var(axis=-1), x=x).ill_conditioned)

    def test_indices_are_free_where_runs_disagree(self) -> None:
        x = values("f32", 8, 64)
        x[2] = 0.3
        x[2, 5] = 0.3 * (1 + 2.0**-26)  # not to be told from its neighbours in f32
        found = bounds.truth(lambda x: (x * 3).argmax(axis=-1), {"x": x}, [Output("i", "i32")], library="numpy")
        self.assertEqual(found.expect[0].tolist(), x.argmax(axis=-1).tolist())
        free = found.free[0]
        assert free is not None
        self.assertEqual(free.tolist(), [i == 2 for i in range(8)])
        self.assertEqual(found.slack("tight")[0].tolist(), [np.inf if i == 2 else 0 for i in range(8)])

    def test_infinities_and_nan_have_their_place(self) -> None:
        x = np.array([[0.0, 1.0, -1.0, 4.0]])
        found = truth(lambda x: np.log(x), x=x)
        self.assertEqual(found.expect[0][0, 0], -np.inf)
        self.assertTrue(np.isnan(found.expect[0][0, 2]))
        self.assertEqual(found.slack("tight")[0][0, [0, 1]].tolist(), [0, 0])
        self.assertIn("1 of 4 elements are NaN in the reference itself", found.blind[0])

    def test_a_contract_may_round_on_the_way(self) -> None:
        x = values("f32", 8, 64)
        found = truth(lambda x: bounds.rounded(x, "bf16") + 0.0, x=x)
        np.testing.assert_array_equal(found.expect[0], bounds.rounded(x, "bf16"))
        self.assertLess(found.width[0], 10)

    def test_zeros_are_exact(self) -> None:
        x = values("f32", 8, 64)
        x[3] = 0
        found = truth(lambda x: x.sum(axis=-1), x=x)
        self.assertEqual((found.expect[0][3], found.slack("tight")[0][3]), (0, 0))

    def test_the_same_seed_gives_the_same_bound(self) -> None:
        x = values("bf16", 8, 64)
        a, b = truth(softmax, "bf16", x=x), truth(softmax, "bf16", x=x)
        for grade in ("tight", "loose"):
            np.testing.assert_array_equal(a.slack(grade)[0], b.slack(grade)[0])

    def test_large_arrays_are_rounded_like_small_ones(self) -> None:
        def reference(x: Any, w: Any) -> Any:
            return np.exp(-np.abs(x)) * w + x

        for shape in ((80, 1000), (2, 40000), (80000,)):
            x, w = values("bf16", *shape), values("bf16", shape[-1], seed=1)
            x.flat[::5], x.flat[7] = 0.0, 1e-40  # what is exact, and what may be flushed, is in a block with others
            found, again = truth(reference, "bf16", x=x, w=w), truth(reference, "bf16", x=x, w=w)
            part = truth(reference, "bf16", x=x[..., :300], w=w[..., :300])
            for grade in ("tight", "loose"):
                self.assertTrue(np.array_equal(found.slack(grade)[0], again.slack(grade)[0]))
                large, small = (np.median(t.slack(grade)[0]) for t in (found, part))
                self.assertLess(abs(large / small - 1), 0.15, (shape, grade))


class Outputs(unittest.TestCase):
    def test_several_by_place_by_name_and_in_place(self) -> None:
        x = values("f32", 8, 64)

        def step(x: Any, m: Any, rate: float) -> Any:
            m *= 0.9
            m += 0.1 * x
            x -= rate * m

        outputs = [Output("x", "f32", in_place=True), Output("m", "f32", in_place=True)]
        found = bounds.truth(step, {"x": x, "m": 0 * x, "rate": 0.1}, outputs, library="numpy")
        np.testing.assert_allclose(found.expect[1], 0.1 * x)
        np.testing.assert_allclose(found.expect[0], 0.99 * x)
        outputs = [Output("y", "f32"), Output("top", "f32")]
        for reference in (
            lambda x: (x * 2, x.max(axis=-1)),
            lambda x: [x * 2, x.max(axis=-1)],
            lambda x: {"top": x.max(axis=-1), "y": x * 2},
        ):
            found = bounds.truth(reference, {"x": x}, outputs, library="numpy")
            np.testing.assert_array_equal(found.expect[0], 2 * x)
            np.testing.assert_array_equal(found.expect[1], x.max(axis=-1))
            self.assertTrue(all(e.flags.c_contiguous and e.dtype == np.float64 for e in found.expect))

    def test_arrays_that_a_reference_fills_are_seen(self) -> None:
        x = values("f32", 8, 64)

        def scan(x: Any) -> Any:
            h, out = np.zeros(64), np.empty((8, 64))
            for t in range(8):
                h *= 0.9
                h += x[t]
                out[t] = h
            return out

        found = truth(scan, x=x)
        self.assertEqual(found.how, "random rounding of NumPy operations, 16 runs")
        self.assertGreater(found.width[0], 1)
        segments = np.array([0, 0, 1, 2, 2, 2, 1, 0])

        def add_up(x: Any) -> Any:
            out = np.zeros((3, 64))
            np.add.at(out, segments, x)
            return out

        found = truth(add_up, x=x)
        honest = np.zeros((3, 64), dtype=np.float32)
        np.add.at(honest, segments[::-1], x[::-1].astype(np.float32))
        self.assertLessEqual(ratio(found, honest, "f32"), 1)
        self.assertGreater(ratio(found, honest * (1 + 2e-6), "f32"), 1)


class Bad(unittest.TestCase):
    def refused(self, reference: Any, message: str, shape: Any = None, **arguments: Any) -> None:
        output = Output("y", "f32", shape=shape)
        arguments = arguments or {"x": values("f32", 4, 8)}
        with self.assertRaisesRegex(BadReference, message) as caught:
            bounds.truth(reference, arguments, [output], library="numpy")
        self.assertNotIn("\n", str(caught.exception))

    def test_references_that_cannot_serve(self) -> None:
        self.refused(lambda x: x / undefined, "raised NameError: name 'undefined' .* of test_bounds.py")  # noqa: F821
        self.refused(lambda x: (x, x), "returns 2 outputs instead of 1 \\(y\\)")
        self.refused(lambda x: None, "returns no y")
        self.refused(lambda x: {"z": x}, "returns z; the outputs are y")
        self.refused(lambda x: "text", "returns str for y instead of an array")
        self.refused(lambda x: x[:3], "y of shape \\[3, 8\\] instead of \\[4, 8\\]", shape=(4, 8))
        self.refused(lambda x: x.astype(np.float32).sum(-1), "computes in float32")
        self.refused(lambda x: np.sum(x, axis=-1, dtype=np.float32), "computes in float32")
        self.refused(lambda x: np.zeros(4, dtype=np.float16) + x[:, 0], "computes in float16")
        self.refused(lambda x: x + 1j, "computes in complex|returns complex")
        self.refused(lambda x: x + np.random.rand(), "uses random numbers")
        self.refused(lambda x: x + np.random.default_rng().random(), "not deterministic")
        self.refused(lambda x: np.multiply(x, 2, out=x), "changes its input x")

    def test_arguments_that_make_no_sense(self) -> None:
        x = values("f32", 4, 8)
        for outputs, kwargs, message in (
            ([], {}, "needs an output"),
            ([Output("y", "float")], {}, "dtype 'float' is none of f64"),
            ([Output("y", "f32")], {"library": "jax"}, "library 'jax' is neither"),
            ([Output("y", "f32")], {"runs": 1}, "two runs"),
            ([Output("y", "f32")], {"matmul": "half"}, "matmul 'half' is none of"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                bounds.truth(softmax, {"x": x}, outputs, **({"library": "numpy"} | kwargs))
        with self.assertRaisesRegex(ValueError, "grade 'exact'"):
            truth(softmax, x=x).slack("exact")

    def test_numpy_is_put_back(self) -> None:
        before = np.zeros, np.asarray
        self.refused(lambda x: x / undefined, "NameError")  # noqa: F821
        self.assertEqual((np.zeros, np.asarray), before)
        self.assertIs(type(bounded.softmax(np.ones((2, 2)))), np.ndarray)


if __name__ == "__main__":
    unittest.main()
