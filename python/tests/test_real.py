"""The harness on the real compiled part, where it is built."""

from __future__ import annotations

import pathlib
import sys
import threading
import traceback
import unittest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import kmark  # noqa: E402
from fake_kmark import built  # noqa: E402


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

    def test_the_interval_is_that_of_the_visits(self) -> None:
        """Visits that differ make it wide, however steady each is."""
        samples = [100.0 + visit + 0.001 * i for visit in (0, 5, 1, 4, 2, 3) for i in range(50)]
        visits = tuple(kmark.Visit(i // 2, 50) for i in range(6))
        r = kmark.Result("f", tuple(samples), visits, "hot", {"kind": "cpu"}, False)
        self.assertGreater(r.ci[1] - r.ci[0], 1.0)

    def test_a_fixed_number_of_samples_is_taken_in_every_visit(self) -> None:
        h = kmark.Harness("cpu", budget="1ms", rounds=4, min_samples=20, max_samples=20)
        r = h.measure(lambda: sum(range(20_000)), "sum")
        self.assertEqual({v.samples for v in r.visits}, {20})

    def test_an_empty_call_is_measured_and_told(self) -> None:
        call = self.h.calibration["empty_call_ns"]
        assert call is not None
        self.assertTrue(5 < call < 100_000, call)
        r = self.h.measure(lambda: None, "nothing")
        self.assertIn("calling an empty function takes", str(r))

    def test_another_thread_measures_and_drops(self) -> None:
        found: list[kmark.Result] = []

        def elsewhere() -> None:
            found.append(self.h.measure(lambda: sum(range(1000)), "here"))
            made.append(kmark.Harness("cpu", budget="10ms", rounds=1))

        made: list[kmark.Harness] = []
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        self.assertEqual(found[0].name, "here")
        made[0].measure(lambda: sum(range(1000)), "there")
        made.clear()

    def test_a_session_of_another_thread_is_an_error_that_can_be_caught(self) -> None:
        import kmark._kmark as compiled

        session, said = compiled.Session("cpu"), []

        def elsewhere() -> None:
            try:
                session.visit(int, mode="hot", budget_ns=1, precision=0.1, min_samples=1, max_samples=1)
            except Exception as error:
                said.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        self.assertIsInstance(said[0], RuntimeError)
        self.assertIn("belongs to the thread", str(said[0]))

    def test_exceptions_pass(self) -> None:
        calls = iter(range(3))
        try:
            self.h.measure(lambda: next(calls), "next")
        except StopIteration:
            told = traceback.format_exc()
        self.assertRegex(told, r"lambda: next\(calls\)(.|\n)*while measuring 'next'", "it says where it came from")

    def test_cold_is_not_faster_than_hot(self) -> None:
        data = bytearray(1 << 20)
        harness = kmark.Harness("cpu", mode="cold", budget="100ms", rounds=1)

        def ratio() -> float:
            hot, cold = (h.measure(lambda: data.count(1), "count").time_ns for h in (self.h, harness))
            return cold / hot

        # What disturbs a machine disturbs one of the two now and then, not every time.
        self.assertTrue(any(ratio() > 0.7 for _ in range(5)))

    def test_an_unknown_device_is_one_clear_line(self) -> None:
        with self.assertRaises(RuntimeError) as caught:
            kmark.Harness("tpu")
        self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
