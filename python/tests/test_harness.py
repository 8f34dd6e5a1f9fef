"""Measuring and comparing, on a stand-in for the compiled part whose times are known."""

from __future__ import annotations

import math
import pathlib
import sys
import types
import unittest
from typing import Any
from unittest import mock

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import fake_kmark  # noqa: E402
import kmark  # noqa: E402
from fake_kmark import Faked, taking  # noqa: E402
from kmark import _units  # noqa: E402


class Units(unittest.TestCase):
    def test_durations(self) -> None:
        for written, ns in (
            ("200ms", 2e8),
            ("1s", 1e9),
            (0.2, 2e8),
            (2, 2e9),
            ("1.5 us", 1500),
            ("1e3ns", 1000),
        ):
            self.assertEqual(_units.nanoseconds(written, "budget"), ns)
        for wrong in ("5", "", "-1s", "1 hour", "fast", 0, -1.0, math.nan, math.inf, "2000min"):
            with self.assertRaisesRegex(ValueError, "budget: .*"):
                _units.nanoseconds(wrong, "budget")
        no_durations: list[Any] = [None, True, [1]]
        for wrong in no_durations:
            with self.assertRaises(TypeError):
                _units.nanoseconds(wrong, "budget")
        self.assertEqual(_units.nanoseconds(0, "warmup", zero=True), 0)

    def test_words(self) -> None:
        self.assertEqual(_units.time(1234), "1.23 µs")
        self.assertEqual(_units.time(0.5), "0.500 ns")
        self.assertEqual(_units.sees(0.0123), "sees 1.23 %")
        self.assertEqual(_units.sees(None), "too few rounds to tell")


class Measuring(Faked):
    def test_statistics_and_rates(self) -> None:
        r = kmark.Harness().measure(taking(1000), "f", flops=2e6, bytes=4000, items=8, check=lambda v: v == 1000)
        self.assertTrue(1000 <= r.min <= r.ci[0] <= r.time_ns <= r.ci[1] <= r.max <= 1006)
        self.assertEqual(len(r.samples_ns), 20 * 2 * 20 + 1)
        self.assertEqual([len(v) for v in r.by_visit()], [20] * 40 + [1])
        self.assertEqual(len(r.in_pairs()), 40)
        self.assertEqual(r.p50, r.time_ns)
        self.assertTrue(r.p50 <= r.p90 <= r.p95 <= r.p99)
        self.assertAlmostEqual(r.gbps or 0, 4000 / r.time_ns)
        self.assertAlmostEqual(r.tflops or 0, 2e6 / r.time_ns / 1e3)
        self.assertAlmostEqual(r.items_per_s or 0, 8e9 / r.time_ns)
        self.assertEqual(len(r.clock_mhz), len(r.samples_ns))
        self.assertTrue(r.verified and r.first_call_ns and r.noise == 0)
        self.assertEqual((r.environment["kmark"], r.mode, r.device["name"]), ("0.0.fake", "hot", "Fake CPU"))
        self.assertIn("python", r.environment)
        self.assertRegex(r.started, r"^20\d\d-\d\d-\d\dT.*\+00:00$")
        with self.raises(ValueError, "write 0.95, not 95"):
            r.percentile(95)
        self.assertRegex(str(r), r"^f: 1.00 µs ± .*GB/s.*1.99 TFLOP/s.*Fake CPU · verified")

    def test_nothing_is_silently_called_right(self) -> None:
        r = kmark.Harness().measure(taking(1000), "f")
        self.assertFalse(r.verified)
        self.assertIn("unverified", str(r))
        self.assertIn("unverified", r._repr_html_())
        self.assertIsNone(r.gbps)

    def test_checks(self) -> None:
        h = kmark.Harness()
        state = {"right": True}
        fn = taking(10)
        fn.ns = 10
        with self.raises(kmark.WrongResult, "sum: the check before timing returned False"):
            h.measure(fn, "sum", check=lambda: False)
        self.assertEqual(fake_kmark.Session.log, [], "a wrong function is not timed")

        def turns_bad() -> bool:
            was, state["right"] = state["right"], False
            return was

        with self.raises(kmark.WrongResult, "after timing"):
            h.measure(fn, "sum", check=turns_bad)

        def raising(value: float) -> None:
            assert value < 0, "values differ"

        with self.raises(AssertionError, "values differ") as caught:
            h.measure(fn, "sum", check=raising)
        self.assertIn("'sum'", "".join(getattr(caught.exception, "__notes__", [str(caught.exception)])))
        self.assertTrue(h.measure(fn, "sum", check=lambda v, limit=11: v < limit).verified)
        self.assertTrue(h.measure(fn, "sum", check=lambda: None, setup=lambda: None).verified)

    def test_exceptions_of_the_function_keep_their_kind_and_get_its_name(self) -> None:
        def broken() -> None:
            raise ZeroDivisionError("by zero")

        with self.raises(ZeroDivisionError, "by zero") as caught:
            kmark.Harness().measure(broken)
        self.assertIn("'broken'", "".join(getattr(caught.exception, "__notes__", [str(caught.exception)])))

    def test_setup_runs_before_checks_and_visits(self) -> None:
        seen: list[str] = []
        fn = taking(10)
        kmark.Harness(rounds=3).measure(fn, "f", setup=lambda: seen.append("setup"), check=lambda: seen.append("check"))
        self.assertEqual(seen, ["setup", "check", *["setup"] * 7, "check"])

    def test_settings_reach_the_engine(self) -> None:
        h = kmark.Harness("cpu", budget="2s", rounds=4, precision=0.01, warmup="5ms", min_samples=7, max_samples=7)
        h.measure(taking(10), "f")
        asked = fake_kmark.Session.log[0][1]
        wanted = {
            "mode": "hot",
            "budget_ns": 250_000_000,
            "precision": 0.01,
            "min_samples": 7,
            "max_samples": 7,
        }
        self.assertEqual(asked, {**wanted, "warmup_ns": 5_000_000})
        self.assertEqual(len(fake_kmark.Session.log), 8)

    def test_a_spent_budget_ends_after_three_rounds(self) -> None:
        r = kmark.Harness(budget="1ns", rounds=9).measure(taking(10), "f")
        self.assertEqual({v.round for v in r.visits}, {0, 1, 2})

    def test_what_cannot_be_measured_says_what_to_do(self) -> None:
        h = kmark.Harness()
        for wrong, text in ((3, "without arguments"), (lambda x: x, "bind them"), (taking, "bind them")):
            with self.raises(TypeError, text):
                h.measure(wrong, "f")  # type: ignore[arg-type]

        async def later() -> None: ...

        with self.raises(TypeError, "coroutine"):
            h.measure(later)
        with self.raises(ValueError, "give one"):
            h.measure(lambda: None)
        with self.raises(ValueError, "bytes must be a positive number"):
            h.measure(taking(1), "f", bytes=-1)
        with self.raises(TypeError, "check must be a function"):
            h.measure(taking(1), "f", check=True)  # type: ignore[arg-type]
        with self.raises(ValueError, "no functions"):
            h.versus({})
        for arguments, text in (
            ({"mode": "graph"}, "none of cold, hot"), ({"budget": "soon"}, "write it like"),
            ({"precision": 5}, "between 0 and 1"), ({"rounds": 0}, "rounds"),
            ({"min_samples": 9, "max_samples": 3}, "samples"),
        ):  # fmt: skip
            with self.raises(ValueError, text):
                kmark.Harness(**arguments)
        with self.raises(RuntimeError, "no GPU 9"):
            kmark.Harness("cuda:9")


class Comparing(Faked):
    def test_functions_take_turns_in_random_order(self) -> None:
        a, b = taking(1000), taking(2000)
        results = kmark.Harness(rounds=12).versus({"a": a, "b": b})
        order = ["a" if fn is a else "b" for fn, _ in fake_kmark.Session.log]
        rounds = ["".join(order[i : i + 4]) for i in range(0, len(order), 4)]
        self.assertTrue(all(sorted(r) == ["a", "a", "b", "b"] for r in rounds))
        self.assertGreater(len(set(rounds)), 1)
        self.assertEqual(len({r.group for r in results}), 1)

    def test_verdicts(self) -> None:
        results = kmark.Harness().versus({"slow": taking(3000), "fast": taking(1000), "twin": taking(3001)}, bytes=4000)
        fast, twin = results.comparisons
        self.assertEqual((fast.new, fast.base, fast.verdict, twin.verdict), ("fast", "slow", "faster", "same"))
        self.assertAlmostEqual(fast.ratio, 3)
        self.assertAlmostEqual(fast.improvement_pct, 100 * 2 / 3)
        self.assertRegex(str(fast), r"fast is 3.000× as fast as slow \(2\.97. to 3\.03.\): faster, sees 2.02 %")
        other = results.against("fast").comparison("slow")
        assert other is not None
        self.assertEqual(other.verdict, "slower")
        self.assertRegex(
            str(results),
            r"(?s)name +time.*fast .*3.00× +faster \(sees 2.02 %\).*unverified: 3 of 3.*A/A noise",
        )
        with self.raises(KeyError, "none is named 'x'"):
            results.against("x")
        with self.raises(ValueError, "there are a"):
            kmark.Harness().versus({"a": taking(1)}, base="b")

    def test_compare(self) -> None:
        def old() -> None: ...

        h = kmark.Harness()
        self.assertEqual(h.compare(old, taking(500)).base, "old")
        c = h.compare(lambda: None, lambda: None, check=lambda: True)
        self.assertEqual((c.base, c.new, c.verdict), ("base", "new", "same"))
        a, b = h.measure(taking(10), "a"), h.measure(taking(5), "b")
        self.assertAlmostEqual(h.compare(a, b).ratio, 2)
        with self.raises(TypeError, "cannot take turns"):
            h.compare(a, taking(1))

    def test_shared_and_own_facts(self) -> None:
        work = kmark.Work(taking(10), bytes=7, check=lambda v: v == 10)
        a, b = kmark.Harness().versus({"a": work, "b": (taking(20), 5)}, flops=3, bytes=4)
        self.assertEqual([(r.flops, r.bytes, r.verified) for r in (a, b)], [(3, 7, True), (5, 4, False)])

    def test_each_is_checked_after_its_own_call(self) -> None:
        """Functions that share an output must not be judged by each other's."""
        out = [0]

        def right() -> None:
            out[0] = 1

        def wrong() -> None:
            out[0] = 1 if wrong.first else 2  # type: ignore[attr-defined]
            wrong.first = False  # type: ignore[attr-defined]

        wrong.first = True  # type: ignore[attr-defined]
        with self.raises(kmark.WrongResult, "wrong: the check after timing"):
            kmark.Harness().versus({"wrong": wrong, "right": right}, check=lambda: out[0] == 1)

    def test_results_that_took_no_turns_are_held_apart_by_more(self) -> None:
        h = kmark.Harness()
        h.measure(taking(1000), "f").save(self.folder / "base")
        c = h.measure(taking(500), "f").compare(self.folder / "base")
        self.assertAlmostEqual(c.speedup, 2)
        self.assertEqual(c.verdict, "faster")
        wider = h.measure(taking(970), "f").compare(self.folder / "base")
        self.assertEqual(wider.verdict, "same", "what a machine differs from run to run is allowed for")
        with self.raises(ValueError, "no results like 'g' of 'g'"):
            h.measure(taking(500), "g").compare(self.folder / "base")
        hot, cold = h.measure(taking(1), "f"), kmark.Harness(mode="cold").measure(taking(1), "f")
        self.assertIn("cold and hot", hot.compare(cold).note)

    def test_one_round_proves_nothing(self) -> None:
        (c,) = kmark.Harness(rounds=1).versus({"a": taking(10), "b": taking(1)}).comparisons
        self.assertEqual((c.verdict, c.sees), ("ambiguous", None))
        self.assertIn("too few rounds", str(c))

    def test_sweep(self) -> None:
        def make(m: int, n: str) -> Any:
            if m == 3:
                raise kmark.Unsupported("three is odd")
            return taking(m), None, 8 * m

        results = kmark.Harness().sweep(make, {"m": [1, 2, 3], "n": ["x", "y"]}, "exp")
        self.assertEqual([r.label for r in results], ["exp m=1 n=x", "exp m=1 n=y", "exp m=2 n=x", "exp m=2 n=y"])
        self.assertEqual(len(results.skipped), 2)
        self.assertIn("skipped: exp m=3 n=x: three is odd", str(results))
        self.assertEqual((results.skipped[0].status, results.skipped[0].point), ("unsupported", {"m": 3, "n": "x"}))
        self.assertEqual(results.comparisons, [])
        self.assertEqual(len(results.where(m=2)), 2)
        self.assertEqual(results["exp m=2 n=y"].bytes, 16)
        with self.raises(KeyError, "several are named 'exp'"):
            results["exp"]
        with self.raises(ValueError, "'m' needs a list"):
            kmark.Harness().sweep(make, {"m": []})

    def test_sweep_of_several(self) -> None:
        makers = {"old": lambda m: taking(2 * m), "new": lambda m: taking(m)}
        results = kmark.Harness().sweep(makers, {"m": [1, 100]}, base="old")
        self.assertEqual([c.verdict for c in results.comparisons], ["faster", "faster"])
        row = results.to_records()[3]
        self.assertEqual((row["name"], row["m"], row["base"], row["verdict"]), ("new", 100, "old m=100", "faster"))


class OnCuda(Faked):
    kind = "cuda"

    def torch(self, stream: int, device: int = 0) -> Any:
        made = types.ModuleType("torch")
        current = types.SimpleNamespace(cuda_stream=stream)
        made.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
            is_available=lambda: True, current_device=lambda: device, current_stream=lambda index: current
        )
        made.version = types.SimpleNamespace(cuda="13.0")  # type: ignore[attr-defined]
        made.__version__ = "2.99"  # type: ignore[attr-defined]
        return mock.patch.dict(sys.modules, {"torch": made})

    def test_torch_s_stream_is_used_and_held_to(self) -> None:
        with self.torch(77, device=1):
            h = kmark.Harness()
            self.assertEqual(fake_kmark.Session.opened, [("cuda:1", 77)])
            r = h.measure(taking(10_000, hot=True), "f")
            self.assertEqual((r.mode, r.environment["torch"], r.environment["torch_cuda"]), ("cold", "2.99", "13.0"))
            self.assertIn("throttled by power", str(r))
        with self.torch(78), self.raises(RuntimeError, "current stream is not the one"):
            h.measure(taking(1), "f")
        kmark.Harness("cuda", stream=5).measure(taking(1), "f")
        self.assertEqual(fake_kmark.Session.opened[-1], ("cuda", 5))

    def test_without_torch_it_is_the_default_stream(self) -> None:
        with mock.patch.dict(sys.modules):
            sys.modules.pop("torch", None)
            kmark.Harness("cuda").measure(taking(1), "f")
            self.assertEqual(fake_kmark.Session.opened, [("cuda", 0)])
            with self.raises(ValueError, "cannot capture its default stream"):
                kmark.Harness("cuda", mode="graph")


if __name__ == "__main__":
    unittest.main()
