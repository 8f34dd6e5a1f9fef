"""Results as folders of runs, which the command reads, and its runs as results; on the real compiled part."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import kmark  # noqa: E402
from fake_kmark import built  # noqa: E402

ROOT = HERE.parent.parent
#: A run of the command, with two impls and failures.
RUN = ROOT / "crates/kmark/tests/data/run"
COMMAND = os.environ.get("KMARK_COMMAND", "")


@unittest.skipUnless(built(), "the compiled part is not built")
class Files(unittest.TestCase):
    def setUp(self) -> None:
        self.h = kmark.Harness("cpu", budget="20ms", rounds=3)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def sweep(self, **more: Any) -> kmark.Results:
        h = kmark.Harness("cpu", budget="10ms", rounds=3, **more)

        def make(m: int, how: str) -> Any:
            if m == 3:
                raise kmark.Unsupported("odd")
            work = kmark.Work(lambda: sum(range(m)), flops=m, items=2, check=lambda v: v == m * (m - 1) // 2)
            return work._replace(check=lambda v: v < 0) if m == 77 else work

        slow = lambda m, how: lambda: sum(range(3 * m))  # noqa: E731
        return h.sweep({"sum": make, "slow": slow}, {"m": [3, 77, 2000], "how": ["fast"]}, "adding", base="slow")

    def test_results_survive_their_folder(self) -> None:
        results = self.sweep()
        results.save(self.folder / "run")
        again = kmark.load(self.folder / "run")
        self.assertEqual(again.base, "slow")
        self.assertEqual([r.label for r in again], [r.label for r in results])
        for old, new in zip(results, again):
            for name in ("visits", "case", "point", "verified", "flops", "items", "group", "device", "mode"):
                self.assertEqual(getattr(old, name), getattr(new, name), name)
            self.assertAlmostEqual(old.time_ns / new.time_ns, 1, places=12)
        self.assertEqual([str(c) for c in again.comparisons], [str(c) for c in results.comparisons])
        self.assertEqual([f.label for f in again.failed], ["sum m=77 how=fast"])
        self.assertEqual([f.status for f in again.failed + again.skipped], ["wrong", "unsupported"])
        again.save(self.folder / "copy")
        self.assertEqual(str(kmark.load(self.folder / "copy")), str(again))
        with self.assertRaisesRegex(FileExistsError, "overwrite=True"):
            results.save(self.folder / "run")
        results[:1].save(self.folder / "run", overwrite=True)
        self.assertEqual(len(kmark.load(self.folder / "run/records.jsonl")), 1)

    def test_a_run_of_the_command_is_results(self) -> None:
        results = kmark.load(RUN)
        lines = [json.loads(line) for line in (RUN / "records.jsonl").read_text().splitlines()]
        timed = [r for r in lines if r["status"] in ("ok", "unverified")]
        self.assertEqual([r.name for r in results], [r["impl"] for r in timed])
        self.assertEqual(len(results) + len(results.failed) + len(results.skipped), len(lines))
        self.assertEqual(results[0].point["dtype"], timed[0]["dtype"])
        self.assertEqual(results[0].case, timed[0]["op"])
        self.assertTrue(results.comparisons)
        results.save(self.folder / "again")
        self.assertEqual(str(kmark.load(self.folder / "again")), str(results))
        self.assertEqual(json.loads((self.folder / "again/run.json").read_text())["command"][0], "kmark")

    def test_everything_is_kept_at_once(self) -> None:
        out = self.folder / "out"
        self.sweep(out=out)
        self.assertEqual(len(kmark.load(out)), 4)
        h = kmark.Harness("cpu", budget="10ms", rounds=3, out=out)
        h.measure(lambda: sum(range(100)), "more")
        self.assertEqual(kmark.load(out)[-1].name, "more")
        with self.assertRaisesRegex(FileExistsError, "has 'more' of 'more' already"):
            h.measure(lambda: sum(range(100)), "more")
        with self.assertRaisesRegex(ValueError, "another device, version or settings"):
            kmark.Harness("cpu", budget="20ms", rounds=3, out=out).measure(lambda: sum(range(9)), "other")
        kmark.Harness("cpu", budget="20ms", rounds=3, out=out, overwrite=True).measure(lambda: sum(range(9)), "other")
        self.assertEqual([r.name for r in kmark.load(out)], ["other"])

    def test_what_is_no_run_says_so(self) -> None:
        for content, says in (
            ("hello", "records.jsonl:1: "),
            ("{}", "no schema version"),
            ('{"schema": 7}', "schema 7"),
        ):
            folder = self.folder / str(len(content))
            self.h.measure(lambda: sum(range(9)), "f").save(folder)
            (folder / "records.jsonl").write_text(content + "\n")
            with self.subTest(says), self.assertRaisesRegex(ValueError, says) as caught:
                kmark.load(folder)
            self.assertNotIn("\n", str(caught.exception))
        with self.assertRaisesRegex(FileNotFoundError, "none does not exist"):
            kmark.load(self.folder / "none")
        with self.assertRaisesRegex(ValueError, "is this the folder of a run"):
            kmark.load(self.folder)
        with self.assertRaisesRegex(ValueError, "no results to save"):
            kmark.Results([]).save(self.folder / "x")
        with self.assertRaisesRegex(FileExistsError, "holds something else"):
            self.h.measure(lambda: sum(range(9)), "f").save(self.folder)
        other = kmark.Harness("cpu", budget="10ms", rounds=3).measure(lambda: sum(range(9)), "g")
        both = kmark.Results([self.h.measure(lambda: sum(range(9)), "f"), other])
        with self.assertRaisesRegex(ValueError, "several devices, modes or settings"):
            both.save(self.folder / "both")

    @unittest.skipUnless(COMMAND, "KMARK_COMMAND names no kmark")
    def test_the_command_reads_what_was_saved(self) -> None:
        def kmark_(*args: Any) -> str:
            done = subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True)
            self.assertIn(done.returncode, (0, 3), done.stderr)  # 3: the second run was slower, on a busy machine
            return done.stdout

        one, two = self.folder / "one", self.folder / "two"
        self.sweep().save(one)
        self.sweep().save(two)
        self.assertRegex(kmark_("report", one), r"(?s)adding/m2000-how-fast.*slow.*sum")
        self.assertIn('"base_ns"', kmark_("compare", one, two, "--format", "json"))
        kmark_("merge", one, two, "--out", self.folder / "merged")
        self.assertEqual(len(kmark.load(self.folder / "merged")), 8)
        for form in ("markdown", "csv", "html", "json"):
            self.assertIn("adding", kmark_("report", one, "--format", form))
        kmark_("report", one, "--format", "svg", "--out", self.folder / "charts")
        self.assertTrue(list((self.folder / "charts").glob("*.svg")))
        import jsonschema

        for part, texts in (
            ("record", (one / "records.jsonl").read_text().splitlines()),
            ("run", [(one / "run.json").read_text()]),
        ):
            wanted = json.loads(kmark_("schema", part))
            for text in texts:
                jsonschema.validate(json.loads(text), wanted)


if __name__ == "__main__":
    unittest.main()
