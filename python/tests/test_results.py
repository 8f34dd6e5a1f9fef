"""Results: files, tables, pages."""

from __future__ import annotations

import json
import math
import pathlib
import sys
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import fake_kmark  # noqa: E402
import kmark  # noqa: E402
from fake_kmark import Faked, taking  # noqa: E402


class Keeping(Faked):
    def test_round_trip(self) -> None:
        r = kmark.Harness().measure(taking(1000), "f", flops=10, check=lambda: True)
        path = self.folder / "deep" / "f.json"
        r.save(path)
        self.assertEqual(kmark.Result.load(path), r)
        stored = json.loads(path.read_text())
        self.assertEqual(stored["schema"], 1)
        self.assertFalse({"time_ns", "gbps", "ci"} & set(stored), "nothing derived is stored")
        with self.raises(FileExistsError, "overwrite=True"):
            r.save(path)
        r.save(path, overwrite=True)
        self.assertEqual([p.name for p in path.parent.iterdir()], ["f.json"])

    def test_collections(self) -> None:
        results = kmark.Harness().versus({"b": taking(10), "a": taking(1)}, base="a")
        results.skipped.append(("c", "why"))
        results.save(self.folder / "all.json")
        again = kmark.Results.load(self.folder / "all.json")
        self.assertEqual((list(again), again.base, again.skipped), (list(results), "a", [("c", "why")]))
        self.assertEqual(again.comparisons, results.comparisons)
        self.assertEqual(str(again), str(results))
        json.dumps(results.to_records())
        with self.raises(ValueError, "all.json: .*Results.load reads it"):
            kmark.Result.load(self.folder / "all.json")

    def test_out_keeps_every_result(self) -> None:
        out = self.folder / "out"
        h = kmark.Harness(out=out)
        h.versus({"z/1": taking(10), "a": taking(1)})
        self.assertEqual(sorted(p.name for p in out.iterdir()), ["a.json", "z_1.json"])
        loaded = kmark.Results.load(out)
        self.assertEqual([r.name for r in loaded], ["z/1", "a"])
        self.assertEqual([c.verdict for c in loaded.comparisons], ["faster"])
        before = len(fake_kmark.Session.log)
        with self.raises(FileExistsError, "a.json"):
            h.measure(taking(1), "a")
        self.assertEqual(len(fake_kmark.Session.log), before, "refused before time is spent")
        with self.raises(ValueError, "names that differ"):
            h.versus({"x/y": taking(1), "x y": taking(1)})
        kmark.Harness(out=out, overwrite=True).measure(taking(5), "a")

    def test_broken_files(self) -> None:
        path = self.folder / "r.json"
        kmark.Harness().measure(taking(1000), "f").save(path)
        good = json.loads(path.read_text())
        text = path.read_text()
        broken = {
            "cut off": text[: len(text) // 2], "no JSON": "hello", "holds no object": "[1]",
            "no kmark-result": "{}",
            "schema 2": json.dumps({**good, "schema": 2}),
            "NaN is no number": text.replace("1000.0", "NaN", 1),
            "'name' is missing": json.dumps({k: v for k, v in good.items() if k != "name"}),
            "samples_ns.3. is": json.dumps({**good, "samples_ns": [1, 2, 3, "4"]}),
            "no samples": json.dumps({**good, "samples_ns": [], "visits": []}),
            "no durations": json.dumps({**good, "samples_ns": [-1.0] * len(good["samples_ns"])}),
            "do not add up": json.dumps({**good, "visits": good["visits"][1:]}),
            "visits.0. is no object": json.dumps({**good, "visits": [1]}),
            "'verified' is \"yes\"": json.dumps({**good, "verified": "yes"}),
        }  # fmt: skip
        for reason, content in broken.items():
            path.write_text(content)
            with self.subTest(reason), self.raises(ValueError, f"r.json: .*{reason}") as caught:
                kmark.Result.load(path)
            self.assertNotIn("\n", str(caught.exception))
        path.write_bytes(b"\xff\xfe{}")
        with self.raises(ValueError, "r.json: "):
            kmark.Result.load(path)
        with self.assertRaises(FileNotFoundError):
            kmark.Result.load(self.folder / "none.json")
        with self.raises(ValueError, "no results in this folder"):
            (self.folder / "empty").mkdir()
            kmark.Results.load(self.folder / "empty")


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
        self.assertTrue(math.isnan(kmark.Result("f", (1.0,), (kmark.Visit(0, 1, "budget"),), "hot", {}, False).std))
        r._repr_html_()
        self.assertEqual(str(kmark.Results([])), "no results")

    def test_launches_that_are_mostly_launch_say_so(self) -> None:
        self.assertIn("an empty launch alone takes 30.0 ns", str(kmark.Harness().measure(taking(50), "f")))

    def test_public_names(self) -> None:
        self.assertEqual(kmark.__version__, "0.0.fake")
        for name in kmark.__all__:
            self.assertTrue(hasattr(kmark, name), name)
        with self.assertRaises(AttributeError):
            getattr(kmark, "nothing")  # noqa: B009


if __name__ == "__main__":
    unittest.main()
