"""Results: files, tables, pages."""

from __future__ import annotations

import math
import pathlib
import sys
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import kmark  # noqa: E402
from fake_kmark import Faked, taking  # noqa: E402


class Showing(Faked):
    def test_small_rates_are_readable(self) -> None:
        results = kmark.Harness().versus({"a": taking(1000)}, flops=3000)
        self.assertRegex(str(results), r"(?s)GFLOP/s.* 2\.99 ")
        self.assertIn("2.99 GFLOP/s", str(results[0]))

    def test_html_is_well_formed_and_escaped(self) -> None:
        results = kmark.Harness().versus({"<a>": taking(10), "b&c": taking(5)}, bytes=4)
        for html in (results._repr_html_(), results[0]._repr_html_(), kmark.Results([])._repr_html_()):
            xml.etree.ElementTree.fromstring(html.replace("<br>", "<br/>"))
            self.assertNotIn("<a>", html)
        self.assertIn("currentColor", results[0]._repr_html_())

    def test_one_sample_and_no_results(self) -> None:
        r = kmark.Harness(rounds=1, max_samples=1, min_samples=1).measure(taking(10), "f")
        self.assertTrue(math.isnan(kmark.Result("f", (1.0,), (kmark.Visit(0, 1),), "hot", {}, False).std))
        r._repr_html_()
        self.assertEqual(str(kmark.Results([])), "no results")

    def test_launches_that_are_mostly_launch_say_so(self) -> None:
        short = str(kmark.Harness().measure(taking(999), "f"))
        self.assertIn("calling an empty function takes 100 ns, 9.98 % of this time", short)
        self.assertNotIn("empty function", str(kmark.Harness().measure(taking(9999), "f")))

    def test_public_names(self) -> None:
        self.assertEqual(kmark.__version__, "0.0.fake")
        for name in kmark.__all__:
            self.assertTrue(hasattr(kmark, name), name)
        with self.assertRaises(AttributeError):
            getattr(kmark, "nothing")  # noqa: B009


if __name__ == "__main__":
    unittest.main()
