"""The plugin in a real pytest, in projects of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from typing import Optional

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from test_files import built  # noqa: E402

TESTS = """
import time
import pytest

SLOW = {slow}

@pytest.mark.parametrize("n", [200, 400])
def test_sum(kmark, n):
    assert kmark(sum, range(n)) == n * (n - 1) // 2
    assert all(r.case.endswith(f"test_sum[{{n}}]") for r in kmark.last)

def test_spin(kmark):
    def spin():
        end = time.perf_counter_ns() + (800_000 if SLOW else 100_000)
        while time.perf_counter_ns() < end:
            pass
    kmark(spin)

def test_versus(kmark):
    found = kmark.versus({{"one": lambda: sum(range(500)), "two": lambda: sum(range(5000))}}, check=lambda v: v > 0)
    assert found is None or len(found) == 2 and found[0].verified

def test_plain():
    pass
"""


@unittest.skipUnless(built(), "the compiled part is not built")
@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is missing")
class Plugin(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write(slow=False)

    def write(self, slow: bool) -> None:
        (self.folder / "test_it.py").write_text(TESTS.format(slow=slow))

    def pytest(self, *args: str, code: int = 0) -> str:
        plugin = () if "no:kmark" in args else ("-p", "kmark.pytest_plugin")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *args]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}
        )
        said = done.stdout + done.stderr
        too_slow = "--kmark-fail" in args and "[too slow]" in said
        self.assertEqual(done.returncode, 1 if too_slow else code, said)
        return said

    def quick(self, budget: str, *args: str) -> str:
        said = self.pytest("--kmark-budget", budget, "--kmark-rounds", "4", "--kmark-device", "cpu", *args)
        self.assertNotRegex(said, r"test_versus +two .*faster|spin: .*faster")
        return said

    def test_a_session_is_kept_compared_and_fails(self) -> None:
        hidden = []
        for budget in ("5ms", "20ms", "50ms", "100ms", "200ms"):
            said = self.session(budget)
            if said is None:
                return
            hidden.append(said)
        if all(re.search("sees > 100 %|too few rounds to tell", said) for said in hidden):
            self.skipTest(f"the machine is too busy: {hidden[-1]}")
        self.fail(hidden[-1])

    def session(self, budget: str) -> Optional[str]:
        """What was said where a busy machine hid that something is eight or ten times as slow; all else must hold."""
        base = f"base-{budget}"
        self.write(slow=False)
        said = self.quick(budget, "--kmark-out", base)
        self.assertIn("5 passed", said)
        for line in (r"test_it.py::test_sum\[200\] +sum ", r"test_it.py::test_spin +spin ", r"test_versus +two "):
            self.assertRegex(said, line)
        self.assertIn(f"kmark report {base} shows it", said)
        records = [json.loads(line) for line in (self.folder / base / "records.jsonl").read_text().splitlines()]
        self.assertEqual([r["impl"] for r in records], ["sum", "sum", "spin", "one", "two"])
        self.assertIn(f"--kmark-out: {base} holds a run already", self.pytest("--kmark-out", base, code=4))
        if not re.search(r"test_versus +two .*slower", said):
            return said

        self.write(slow=True)
        compare = ("--kmark-compare", base, "-k", "spin")
        said = self.quick(budget, *compare)
        self.assertNotIn("test_sum", said)
        if not re.search(r"test_spin spin: 0\.[0-3]\d\d× as fast .*: slower, sees", said):
            return said
        said = self.quick(budget, *compare, "--kmark-fail", "slower=50%")
        if "[too slow]" not in said:
            return said
        self.assertNotIn("[too slow]", self.quick(budget, *compare, "--kmark-fail", "slower=100000%"))
        return None

    def test_bad_options_are_one_line(self) -> None:
        for args, says in (
            (("--kmark-fail", "slower=3%"), "--kmark-fail: give the run to compare with"),
            (("--kmark-fail", "faster", "--kmark-compare", "."), "'faster' is not like slower=3%"),
            (("--kmark-compare", "nowhere"), "--kmark-compare: nowhere does not exist"),
            (("--kmark-compare", "."), "is this the folder of a run"),
        ):
            said = self.pytest(*args, code=4)
            self.assertRegex(said, re.escape(says))
            self.assertNotIn("Traceback", said)

    def test_without_it(self) -> None:
        self.assertIn("1 passed", self.pytest("-p", "no:kmark", "-k", "plain"))
        said = self.pytest("--kmark-off")
        self.assertIn("5 passed", said)
        self.assertIn("--kmark-off: nothing is timed", said)
        self.assertNotIn("× base", said)

    @unittest.skipUnless(importlib.util.find_spec("xdist"), "xdist is missing")
    def test_processes_side_by_side_time_nothing(self) -> None:
        said = self.pytest("-n", "2", "-p", "xdist", "-k", "versus or plain")
        self.assertIn("2 passed", said)
        self.assertIn("nothing is timed under xdist", said)
        self.assertNotIn("× base", said)


if __name__ == "__main__":
    unittest.main()
