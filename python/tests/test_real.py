"""The harness on the real compiled part, where it is built."""

from __future__ import annotations

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import kmark  # noqa: E402


def built() -> bool:
    try:
        import kmark._kmark  # noqa: F401
    except ImportError:
        return False
    return True


@unittest.skipUnless(built(), "the compiled part is not built")
class Real(unittest.TestCase):
    def setUp(self) -> None:
        self.h = kmark.Harness("cpu", budget="200ms", rounds=5)

    def test_a_function_of_three_times_the_work_is_slower(self) -> None:
        results = self.h.versus({"one": lambda: sum(range(20_000)), "three": lambda: sum(range(60_000))})
        (c,) = results.comparisons
        self.assertLess(c.ratio, 0.6, str(results))
        self.assertIn(c.verdict, ("slower", "ambiguous"), str(results))  # a busy machine may not be able to tell
        self.assertTrue(c.low is not None and c.high is not None and c.low <= c.ratio <= c.high)

    def test_a_result_survives_its_file(self) -> None:
        r = self.h.measure(lambda: sorted(range(1000, 0, -1)), "sort", check=lambda v: v[0] == 1)
        self.assertTrue(r.verified and r.min <= r.ci[0] <= r.time_ns <= r.ci[1] <= r.max)
        with tempfile.TemporaryDirectory() as folder:
            r.save(pathlib.Path(folder) / "r.json")
            self.assertEqual(kmark.Result.load(pathlib.Path(folder) / "r.json"), r)

    def test_exceptions_pass(self) -> None:
        calls = iter(range(3))
        with self.assertRaises(StopIteration):
            self.h.measure(lambda: next(calls), "next")

    def test_cold_is_not_faster_than_hot(self) -> None:
        data = bytearray(1 << 20)
        harness = kmark.Harness("cpu", mode="cold", budget="100ms", rounds=1)
        # What disturbs a machine makes times longer: the shortest of a few is the function's own.
        hot = min(self.h.measure(lambda: data.count(1), "count").time_ns for _ in range(4))
        cold = min(harness.measure(lambda: data.count(1), "count").time_ns for _ in range(4))
        self.assertGreater(cold, 0.7 * hot)

    def test_an_unknown_device_is_one_clear_line(self) -> None:
        with self.assertRaises(RuntimeError) as caught:
            kmark.Harness("tpu")
        self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
