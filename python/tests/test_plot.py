"""Pictures of results, with matplotlib and without; `python -m kmark`."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest
import xml.etree.ElementTree
from typing import Any
from unittest import mock

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import kmark  # noqa: E402
from fake_kmark import Faked, taking  # noqa: E402
from kmark import _plot  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


class Plotting(Faked):
    def sweep(self) -> kmark.Results:
        makers = {
            "<slow>": lambda m, how: (taking(20 * m), m, 8 * m),
            "fast": lambda m, how: (taking(10 * m), m, 8 * m),
        }
        return kmark.Harness(rounds=2).sweep(makers, {"m": [64, 256, 4096], "how": ["a", "b"]})

    def test_a_line_for_every_function(self) -> None:
        results = self.sweep()
        p = _plot.picture_of(results, None, "time")
        self.assertEqual((p.x, p.log_x, p.log_y), ("m", True, True))
        self.assertEqual(list(p.lines), ["<slow> how=a", "fast how=a", "<slow> how=b", "fast how=b"])
        self.assertEqual([d.x for d in p.lines["fast how=a"]], [64, 256, 4096])
        self.assertAlmostEqual(p.lines["fast how=a"][0].y, results.where(m=64, how="a")["fast"].time_ns)
        drawn = results.plot(self.folder / "times.svg", backend="svg")
        tree = xml.etree.ElementTree.fromstring((self.folder / "times.svg").read_text())
        self.assertEqual(drawn._repr_svg_(), (self.folder / "times.svg").read_text())
        self.assertEqual((len(tree.findall(f"{SVG}polyline")), len(tree.findall(f"{SVG}circle"))), (4, 12))
        words = [text.text for text in tree.iter(f"{SVG}text")]
        for word in ("<slow> how=a", "m", "64", "4096", "Fake CPU, hot", "1.00 µs"):
            self.assertIn(word, words)
        for element in tree.iter(f"{SVG}circle"):
            self.assertTrue(84 <= float(element.attrib["cx"]) <= 700 and 56 <= float(element.attrib["cy"]) <= 366)

    def test_bars_where_there_is_no_axis(self) -> None:
        results = kmark.Harness(rounds=2).versus({"a": taking(1000), "b": taking(3000)}, flops=6000)
        tree = xml.etree.ElementTree.fromstring(results.plot(backend="svg", y="tflops").text)
        heights = [float(r.attrib["height"]) for r in tree.findall(f"{SVG}rect")]
        self.assertAlmostEqual(heights[0] / heights[1], 3, places=1)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is missing")
    def test_matplotlib_where_it_is(self) -> None:
        axes = self.sweep().plot(self.folder / "times.png")
        self.assertEqual(len(axes.containers), 4)
        self.assertTrue((self.folder / "times.png").read_bytes().startswith(b"\x89PNG"))
        self.assertEqual((axes.get_xlabel(), axes.get_xscale()), ("m", "log"))
        bars = kmark.Harness(rounds=2).versus({"a": taking(1000), "b": taking(3000)}).plot()
        self.assertEqual(len(bars.patches), 2)

    def test_without_matplotlib_it_is_svg(self) -> None:
        with mock.patch.object(_plot.importlib.util, "find_spec", return_value=None):
            self.assertIsInstance(self.sweep().plot(), _plot.Svg)
            with self.raises(ValueError, "times.png: without matplotlib only .svg"):
                self.sweep().plot(self.folder / "times.png")
            with self.raises(ImportError, "backend='svg' needs nothing"):
                self.sweep().plot(backend="matplotlib")

    def test_what_cannot_be_drawn(self) -> None:
        results = self.sweep()
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"x": "n"}, "x='n' is no axis .* there are m, how"), ({"x": "how"}, "no numbers"),
            ({"y": "watts"}, "none of time, gbps"), ({"y": "items"}, "none of these results has items/s"),
            ({"backend": "ascii"}, "neither matplotlib nor svg"),
        ]  # fmt: skip
        for options, says in wrong:
            with self.raises(ValueError, says):
                results.plot(**options)
        with self.raises(ValueError, "no results"):
            kmark.Results([]).plot()


class Command(unittest.TestCase):
    def run_it(self, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kmark", "list", "ops"]
        path = {"PYTHONPATH": str(HERE.parent), "PATH": "/nowhere"}
        return subprocess.run(command, capture_output=True, text=True, env={**path, **env})

    @unittest.skipUnless(os.environ.get("KMARK_COMMAND"), "KMARK_COMMAND names no kmark")
    def test_the_module_is_the_command(self) -> None:
        done = self.run_it(KMARK_COMMAND=os.environ["KMARK_COMMAND"])
        self.assertEqual((done.returncode, "rmsnorm" in done.stdout), (0, True), done.stderr)

    def test_without_a_command_it_says_so(self) -> None:
        done = self.run_it(HOME="/nowhere")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("pip install the kmark wheel", done.stderr)


if __name__ == "__main__":
    unittest.main()
