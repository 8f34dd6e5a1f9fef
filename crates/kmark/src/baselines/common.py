"""What the scripts of `kmark baselines` share; it stands in front of each of them. A job comes as JSON on
standard input, the answer leaves as JSON on standard output, progress goes to standard error line by line.
Standard library only."""

import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys


class Failure(Exception):
    """One line for the user; `usage` if the user can mend it."""

    def __init__(self, line, usage=False):
        super().__init__(line)
        self.usage = usage


def say(line):
    print(line, file=sys.stderr, flush=True)


def answer(main):
    """Runs a script's `main` on its job; whatever goes wrong is one line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half made is removed
    job = json.load(sys.stdin)
    try:
        result = main(job)
    except Failure as failure:
        result = {"error": str(failure), "usage": failure.usage}
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as other:
        line = " ".join(str(other).split()) or "no message"
        result = {"error": f"{type(other).__name__}: {line}", "usage": False}
    json.dump(result, sys.stdout)


def run(command, what, env=None):
    """A program that must succeed; the last line that it said is the reason if it does not."""
    done = attempt(command, env)
    if done.returncode:
        raise Failure(f"{what}: {reason(done.stderr or done.stdout, done.returncode)}")
    return done.stdout


def attempt(command, env=None, timeout=None):
    """A program that nobody talks to; what it says is kept."""
    quiet = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    return subprocess.run(command, env=env, timeout=timeout, **quiet)


def reason(said, code):
    """The line of a program's last words that says the most."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("[notice]")]
    errors = [line for line in lines if re.match(r"(ERROR|error|\w*Error|\w*Exception)\b", line)]
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return (errors or lines or [f"exit code {code}"])[-1]


def pip():
    """How to call pip: that of this interpreter, or one that uv brings."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if shutil.which("uv"):
        return ["uv", "tool", "run", "pip"]
    here = sys.executable
    raise Failure(f"{here} has no pip and there is no uv; `{here} -m ensurepip` brings pip", usage=True)


def sha256(path):
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def site_packages(env):
    """Where an environment keeps its packages."""
    return next(pathlib.Path(env).glob("lib/python3*/site-packages"))


def sweep(folder, name):
    """Removes what runs of ours that were killed have left."""
    for left in pathlib.Path(folder).glob(f".{name}.*"):
        pid = left.name.rsplit(".", 1)[1]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(left, ignore_errors=True)


def torch_facts():
    """Version and CUDA of the interpreter's torch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (pathlib.Path(spec.origin).parent / "version.py").read_text()
    value = lambda key: (re.search(rf"^{key}\b.*= '([^']*)'", text, re.MULTILINE) or [None, None])[1]
    return {"version": value("__version__"), "cuda": value("cuda")}


def facts():
    """What this interpreter is."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": f"{sys.platform} {platform.machine()}",
        "torch": torch_facts(),
    }
