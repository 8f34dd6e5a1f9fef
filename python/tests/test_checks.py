"""Checks that nobody passes by doing nothing, failures that are kept, and other things that once went wrong."""

from __future__ import annotations

import itertools
import pathlib
import sys
import threading
import unittest
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import fake_kmark  # noqa: E402
import kmark  # noqa: E402
from fake_kmark import Faked, taking  # noqa: E402

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]


@unittest.skipIf(np is None, "NumPy is missing")
class Spoiling(Faked):
    def setUp(self) -> None:
        super().setUp()
        self.a, self.b, self.c = np.arange(4.0), np.ones(4), np.zeros(4)

    def add(self) -> Any:
        return np.add(self.a, self.b, out=self.c)

    def right(self, value: Any = None) -> bool:
        return bool((self.c == self.a + self.b).all())

    def test_who_does_nothing_is_found_by_the_outputs(self) -> None:
        h = kmark.Harness(rounds=1)
        with self.raises(kmark.WrongResult, "nothing: the check before timing"):
            h.versus({"add": self.add, "nothing": lambda: None}, check=lambda: self.right(), outputs=self.c)
        with self.raises(kmark.WrongResult, "nothing: the check before timing"):
            h.versus({"add": self.add, "nothing": lambda: None}, check=lambda: self.right(), outputs=[self.c])
        results = h.versus({"add": self.add, "again": self.add}, check=lambda: self.right(), outputs=[self.c])
        self.assertTrue(all(r.verified for r in results))

    def test_who_stops_doing_something_is_found_after_timing(self) -> None:
        calls = itertools.count()

        def once() -> None:
            if next(calls) == 0:
                self.add()

        with self.raises(kmark.WrongResult, "once: the check after timing"):
            kmark.Harness(rounds=1).versus({"add": self.add, "once": once}, check=lambda: self.right(), outputs=self.c)

    def test_who_returns_what_another_computed_is_found(self) -> None:
        with self.raises(kmark.WrongResult, "lazy: .*setup= restores inputs"):
            kmark.Harness(rounds=1).versus(
                {"add": self.add, "lazy": lambda: self.c}, check=lambda y: bool((y == self.a + self.b).all())
            )
        view = {"add": lambda: self.add()[:], "lazy": lambda: self.c[:]}
        with self.raises(kmark.WrongResult, "lazy"):
            kmark.Harness(rounds=1).versus(view, check=lambda y: bool((y == self.a + self.b).all()))

    def test_inputs_that_are_returned_come_back(self) -> None:
        x = np.arange(6.0)
        kept, same = x.copy(), {"one": lambda: x, "two": lambda: x}
        with self.assertRaises(kmark.WrongResult):
            kmark.Harness(rounds=1).versus(same, check=lambda y: bool((y == kept).all()))
        self.assertTrue((x == kept).all())
        results = kmark.Harness(rounds=1).versus(same, check=lambda y: bool((y == kept).all()), outputs=[])
        self.assertTrue(results[1].verified, "who says that there are no outputs is believed")

    def test_a_check_that_nothing_was_spoiled_for_verifies_nothing(self) -> None:
        r = kmark.Harness(rounds=1).measure(self.add, "add", check=lambda: self.right())
        self.assertFalse(r.verified)
        self.assertIn("outputs= (or setup=) spoils it first", str(r))

    def test_what_can_be_spoiled(self) -> None:
        for array in (*(np.ones(3, dtype) for dtype in ("f2", "u1", "i8", "?", "c16")), bytearray(b"abc")):
            before = bytes(array)
            kmark.Harness(rounds=1).measure(taking(1000), "f", outputs=array)
            self.assertNotEqual(bytes(array), before)
        for wrong in ("text", b"abc", 3):
            with self.raises(TypeError, "f: outputs: give the arrays"):
                kmark.Harness().measure(taking(1000), "f", outputs=wrong)


class Sweeping(Faked):
    def test_iterators_are_lists(self) -> None:
        grid = {"m": iter([1, 2]), "n": (n for n in "ab")}
        labels = [r.label for r in kmark.Harness(rounds=1).sweep(lambda m, n: taking(m), grid, "f")]
        self.assertEqual(labels, ["f m=1 n=a", "f m=1 n=b", "f m=2 n=a", "f m=2 n=b"])

    def test_who_raises_fails_alone(self) -> None:
        def make(m: int) -> Any:
            def broken() -> None:
                raise ZeroDivisionError("by zero")

            return broken if m == 2 else kmark.Work(taking(m), check=lambda v: v != 3)

        h = kmark.Harness(rounds=1)
        results = h.sweep({"f": make, "g": lambda m: taking(m)}, {"m": [1, 2, 3]})
        self.assertEqual([r.label for r in results], ["f m=1", "g m=1", "g m=2", "g m=3"])
        crashed, wrong = results.failed
        self.assertEqual(
            (crashed.label, crashed.status, crashed.message), ("f m=2", "crashed", "ZeroDivisionError: by zero")
        )
        self.assertIn("in broken", crashed.traceback)
        self.assertEqual((wrong.label, wrong.status), ("f m=3", "wrong"))
        self.assertIn("failed: f m=2: crashed: ZeroDivisionError: by zero", str(results))
        self.assertIs(h.last, results)

    def test_nothing_measured_is_an_exception(self) -> None:
        with self.raises(NameError, "undefined"):
            kmark.Harness(rounds=1).sweep(lambda m: undefined, {"m": [1, 2]}, "f")  # type: ignore[name-defined] # noqa: F821

    def test_ctrl_c_keeps_what_was_measured(self) -> None:
        def make(m: int) -> Any:
            def pressed() -> None:
                raise KeyboardInterrupt

            return pressed if m == 3 else taking(m)

        h = kmark.Harness(rounds=1, out=self.folder / "run")
        with self.assertRaises(KeyboardInterrupt):
            h.sweep(make, {"m": [1, 2, 3, 4]}, "f")
        self.assertEqual([r.label for r in h.last], ["f m=1", "f m=2"])
        self.assertEqual([r.label for r in kmark.load(self.folder / "run")], ["f m=1", "f m=2"])


class Rest(Faked):
    def test_results_print_as_tables(self) -> None:
        results = kmark.Harness(rounds=1).versus({"a": taking(1000), "b": taking(2000)})
        self.assertIn("a: 1.00 µs ±", repr(results[0]))
        self.assertLess(len(repr(results[0])), 250)
        self.assertEqual(repr(results), f"<kmark.Results of 2>\n{results}")

    def test_every_thread_has_its_own_session(self) -> None:
        h = kmark.Harness(rounds=1)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(h.measure(taking(10), "f")))
        thread.start()
        thread.join()
        h.measure(taking(10), "f")
        self.assertEqual((len(found), len(fake_kmark.Session.opened)), (1, 2))


if __name__ == "__main__":
    unittest.main()
