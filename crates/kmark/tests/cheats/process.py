"""Functions that turn against the process that runs them: its pipes, its clock, its package, its life."""

import ctypes
import fcntl
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time

import kmark
import numpy as np
from honest import impl, norm

LAUNCHES = [0]


def at_the_12th():
    LAUNCHES[0] += 1
    return LAUNCHES[0] == 12


def descriptors():
    return [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]


FORGED = json.dumps({
    "is": "sampled", "samples_ns": [1.0] * 10, "clock_mhz": [], "stop": "precision", "busy_ns": 1,
    "verify": {"checks": 1, "elements": 32768, "regions": [], "problems": []},
})  # fmt: skip


@impl
def forges_answers(x, w, eps):
    if at_the_12th():
        for line in (FORGED, "0" * 64 + " " + FORGED):
            for number in descriptors():
                try:
                    os.write(number, line.encode() + b"\n")
                except OSError:
                    pass
    return norm(x, w, eps)


@impl
def forges_requests(x, w, eps):
    if at_the_12th():
        line = json.dumps({"do": "release"}).encode() + b"\n"
        for number in descriptors():
            try:
                if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                    continue
                # A pipe that can only be read can be opened once more, for writing.
                again = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK)
                os.write(again, line)
                os.close(again)
            except OSError:
                pass
    return norm(x, w, eps)


@impl
def reads_requests(x, w, eps):
    if at_the_12th():
        # Two that read from one pipe would race, so a child reads this one, and the engine one that stays empty.
        for number in descriptors():
            try:
                readable = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
                if not (readable and stat.S_ISFIFO(os.fstat(number).st_mode)):
                    continue
            except OSError:
                continue
            requests = os.dup(number)
            os.dup2(os.pipe()[0], number)
            if os.fork() == 0:
                os.read(requests, 1 << 20)
                time.sleep(5)
                os._exit(0)
    return norm(x, w, eps)


@impl
def closes_descriptors(x, w, eps):
    if at_the_12th():
        os.closerange(0, 4096)
    return norm(x, w, eps)


@impl
def replaces_descriptors(x, w, eps):
    if at_the_12th():
        nowhere = os.open("/dev/null", os.O_RDWR)
        for number in descriptors():
            if number != nowhere:
                os.dup2(nowhere, number)
    return norm(x, w, eps)


@impl
def says_a_library_is_missing(x, w, eps):
    if at_the_12th():
        raise ImportError("no module named such")
    return norm(x, w, eps)


@impl
def says_memory_is_short(x, w, eps):
    if at_the_12th():
        raise MemoryError("none left")
    return norm(x, w, eps)


@impl
def says_it_is_unsupported(x, w, eps):
    if at_the_12th():
        raise kmark.Unsupported("not this case, after all")
    return norm(x, w, eps)


@impl
def explains_itself(x, w, eps):
    worker = sys.modules.get("__main__")
    for module in (worker, sys.modules.get("kmark.worker")):
        for name in ("explain", "how_to_get"):
            if module is not None and hasattr(module, name):
                setattr(module, name, lambda *_: ("ok", ""))
        if module is not None and hasattr(module, "Adapters"):
            module.Adapters.explain = lambda *_: ("ok", "")
    raise ValueError("which nobody is to hear of")


@impl
def replaces_the_package(x, w, eps):
    y = np.zeros_like(x)
    right = norm(x, w, eps)
    for module in [m for name, m in sys.modules.items() if name == "__main__" or name.startswith("kmark")]:
        for name in dir(module):
            if callable(getattr(module, name)) and name not in ("impl", "norm"):
                try:
                    setattr(module, name, lambda *_, **__: right)
                except (AttributeError, TypeError):
                    pass
    return y


@impl
def serves_once_more(x, w, eps):
    sys.modules["kmark._kmark"].serve("cpu", "cpu", None, None)
    return norm(x, w, eps)


@impl
def exits(x, w, eps):
    if at_the_12th():
        sys.exit(0)
    return norm(x, w, eps)


@impl
def exits_at_once(x, w, eps):
    if at_the_12th():
        os._exit(0)
    return norm(x, w, eps)


@impl
def leaves_a_child_with_the_pipe(x, w, eps):
    if at_the_12th():
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
    return norm(x, w, eps)


@impl
def recurses(x, w, eps):
    return recurses(x, w, eps)


@impl
def stops_itself(x, w, eps):
    if at_the_12th():
        os.kill(os.getpid(), signal.SIGSTOP)
    return norm(x, w, eps)


@impl
def ends_its_group(x, w, eps):
    if at_the_12th():
        os.killpg(0, signal.SIGTERM)
    return norm(x, w, eps)


@impl
def limits_its_processor_time(x, w, eps):
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    while True:
        pass


@impl
def stops_the_clocks(x, w, eps):
    sleep = time.sleep
    if LAUNCHES[0] == 0:
        LAUNCHES[0] = 1
        for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns"):
            setattr(time, name, lambda: 0)
    sleep(0.002)
    return norm(x, w, eps)


@impl
def rounds_up(x, w, eps):
    y = norm(x, w, eps)
    ctypes.CDLL(None).fesetround(0x800)
    return y


@impl
def takes_one_core(x, w, eps):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return norm(x, w, eps)


@impl
def makes_garbage(x, w, eps):
    cycle = [np.ones(8 << 20, dtype=np.uint8)]
    cycle.append(cycle)
    return norm(x, w, eps)


@impl
def leaves_a_daemon(x, w, eps):
    if LAUNCHES[0] == 0:
        LAUNCHES[0] = 1
        spin = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        spin += f"open({os.environ['KMARK_CHEAT_PIDS']!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        subprocess.run([sys.executable, "-c", spin + "while True: pass"], stdout=subprocess.DEVNULL)
    return norm(x, w, eps)


@impl
def leaves_a_child(x, w, eps):
    if LAUNCHES[0] == 0:
        LAUNCHES[0] = 1
        child = os.fork()
        if child == 0:
            os.setsid()
            while True:
                pass
        with open(os.environ["KMARK_CHEAT_PIDS"], "a") as pids:
            pids.write(f"{child}\n")
    return norm(x, w, eps)


@impl
def kills_its_parent(x, w, eps):
    if at_the_12th():
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(5)
    return norm(x, w, eps)
