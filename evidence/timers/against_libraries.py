#!/usr/bin/env python3
"""Holds kmark's times against the ways in which libraries time themselves: RMSNorm in bf16 of torch and of Quack.

    path/to/quack/environment/bin/python against_libraries.py > table.md      (with the wheel `kmark` in it)

Like is held against like, on the same tensors in the same process: `cold` against `triton.testing.do_bench` (which
Quack's and many other benchmarks call), `graph` against Quack's replay of one graph over several sets of tensors, `hot`
against torch's Timer. do_bench's loop stands there twice: as it is, and with two changes, a flush that leaves nothing
to be written back and the cost of the two events taken off."""

import statistics

import kmark
import torch
import triton.testing
from quack.bench import bench_utils
from quack.rmsnorm import _rmsnorm_fwd
from torch.utils.benchmark import Timer

SHAPES = [(128, 4096), (4096, 4096), (16384, 4096), (32768, 4096), (65536, 8192)]
EPS = 1e-6
COLUMNS = ["cold", "do_bench", "its loop, clean", "graph", "Quack's rotating graph", "hot", "Timer"]


def function(impl, x, w, y):
    if impl == "quack":
        _rmsnorm_fwd(x, w, y, None, None, None, None, None, EPS)
    else:
        torch.ops.aten._fused_rms_norm(x, [x.shape[1]], w, EPS)


def clean_loop(launch, event_pair_us):
    """do_bench's loop, its cache flushed by reading."""
    buffer = torch.zeros(64 << 20, dtype=torch.int32, device="cuda")
    for _ in range(20):
        launch()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(200)]
    for start, end in pairs:
        buffer.sum()
        start.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs) * 1e3 - event_pair_us


def times(impl, m, n):
    """The columns, in µs."""
    x = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    args = impl, x, w, torch.empty_like(x)
    sets, _ = bench_utils._clone_l2_rotate_inputs(args, {}, bench_utils._pick_l2_rotate_count(args, {}))
    rounds = max(1, 200 // len(sets))

    def launch():
        function(*args)

    def rotate():
        for _ in range(rounds):
            for one in sets:
                function(*one)

    def by_kmark(f, mode):
        harness = kmark.Harness("cuda", mode=mode, budget="300ms", rounds=3)
        return harness.measure(f, mode).median_ns / 1e3, harness.calibration["event_pair_ns"] / 1e3

    cold, event_pair_us = by_kmark(launch, "cold")
    do_bench = triton.testing.do_bench(launch, warmup=50, rep=300, return_mode="median") * 1e3
    clean = clean_loop(launch, event_pair_us)
    graph = by_kmark(rotate, "graph")[0] / (rounds * len(sets))
    rotating = bench_utils._bench_cuda_graph_l2_rotate(function, sets, [{} for _ in sets], {}) * 1e3
    hot = by_kmark(launch, "hot")[0]
    timer = Timer("launch()", globals={"launch": launch}).blocked_autorange(min_run_time=0.3).median * 1e6
    return [(cold,), (do_bench, cold), (clean, cold), (graph,), (rotating, graph), (hot,), (timer, hot)]


def cell(time, by_kmark=None):
    return f"{time:.2f}" + (f" ({100 * (by_kmark / time - 1):+.1f} %)" if by_kmark else "")


def main():
    print("| " + " | ".join(["impl", "rows x columns", *COLUMNS]) + " |")
    print("|---" * (2 + len(COLUMNS)) + "|")
    with torch.cuda.stream(torch.cuda.Stream()):  # the default one cannot be captured
        for impl in ("torch", "quack"):
            for m, n in SHAPES:
                cells = [cell(*pair) for pair in times(impl, m, n)]
                print(f"| {impl} | {m} x {n} | " + " | ".join(cells) + " |", flush=True)


main()
