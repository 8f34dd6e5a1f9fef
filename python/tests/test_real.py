"""The harness on the real compiled part, where it is built."""

from __future__ import annotations

import math
import pathlib
import sys
import threading
import traceback
import unittest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import kmark  # noqa: E402
from fake_kmark import built  # noqa: E402

TRIES = 5
#: Where a function differs so much from itself in every try, nothing is told of another.
MOST_NOISE = 0.2


@unittest.skipUnless(built(), "the compiled part is not built")
class Real(unittest.TestCase):
    def setUp(self) -> None:
        self.h = kmark.Harness("cpu", budget="200ms", rounds=5)

    def test_a_function_of_ten_times_the_work_is_slower(self) -> None:
        """A busy machine may hide it, but not in every try, and may not show the opposite in any."""
        noises: list[float] = []
        for _ in range(TRIES):
            results = self.h.versus({"one": lambda: sum(range(10_000)), "ten": lambda: sum(range(100_000))})
            (c,) = results.comparisons
            self.assertIn(c.verdict, ("slower", "ambiguous"), str(results))
            if c.verdict == "slower" and c.ratio < 0.3:
                self.assertTrue(c.low is not None and c.high is not None and c.low <= c.ratio <= c.high, str(results))
                return
            noises.append(math.inf if results.noise is None else results.noise)
        if min(noises) > MOST_NOISE:
            self.skipTest(f"the machine is too busy: a function differs from itself by {noises}")
        self.fail(f"not seen in {TRIES} tries, though noise is {noises}: {results}")

    def test_the_interval_is_that_of_the_visits(self) -> None:
        """Visits that differ make it wide, however steady each is."""
        samples = [100.0 + visit + 0.001 * i for visit in (0, 5, 1, 4, 2, 3) for i in range(50)]
        visits = tuple(kmark.Visit(i // 2, 50) for i in range(6))
        r = kmark.Result("f", tuple(samples), visits, "hot", {"kind": "cpu"}, False)
        self.assertGreater(r.ci[1] - r.ci[0], 1.0)

    def test_a_core_that_changed_its_clock_is_judged_beyond_a_factor_of_three(self) -> None:
        visits = tuple(kmark.Visit(i // 2, 20) for i in range(20))

        def at(factor: float, mhz: float, group: str) -> kmark.Result:
            samples = tuple(factor * (1000.0 + i % 7) for i in range(400))
            return kmark.Result(
                "f", samples, visits, "hot", {"kind": "cpu"}, False, clock_mhz=(mhz,) * 400, group=group
            )

        for factor, mhz, verdict in (
            (1.8, 2400.0, "slower"),
            (1.8, 3000.0, "ambiguous"),
            (0.6, 2000.0, "ambiguous"),
            (4.0, 3000.0, "slower"),
        ):
            for group in ("", "in turns"):
                c = at(factor, mhz, group).compare(at(1.0, 2400.0, group))
                self.assertEqual(c.verdict, verdict, f"{factor} at {mhz} MHz, {group}: {c}")
                self.assertEqual(bool(c.note), verdict == "ambiguous" and not group)

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
        self.assertTrue(any(ratio() > 0.7 for _ in range(2 * TRIES)))

    def test_an_unknown_device_is_one_clear_line(self) -> None:
        with self.assertRaises(RuntimeError) as caught:
            kmark.Harness("tpu")
        self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
