#!/usr/bin/env python3
"""Holds kmark's times against CUPTI's, of the same launches in the same process.

    cc -shared -fPIC -o libcupti_trace.so cupti.c -I$CUDA_HOME/include -I$CUDA_HOME/extras/CUPTI/include \
        -L$CUDA_HOME/extras/CUPTI/lib64 -L$CUDA_HOME/lib64 -lcupti
    ./against_cupti.py path/to/kmark path/to/libcupti_trace.so > table.md

Each case is run twice, with CUPTI in the worker and without. CUPTI's figure is the median over the kernel's last
launches, as many as there were samples (warm-up and verification come before them)."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

CASES = [  # op, impl, configs, more arguments
    ("stream", "cuda/02_wide", "4096", ["--dtype", "f32"]),
    ("stream", "cuda/02_wide", "1048576", ["--dtype", "f32"]),
    ("stream", "cuda/02_wide", "33554432", ["--dtype", "f32"]),
    ("stream", "cuda/02_wide", "536870912", ["--dtype", "f32"]),
    ("rmsnorm", "cuda/01_rows", "16x1024", ["--dtype", "bf16"]),
    ("rmsnorm", "cuda/01_rows", "128x4096", ["--dtype", "bf16"]),
    ("rmsnorm", "cuda/01_rows", "4096x4096", ["--dtype", "bf16"]),
    ("rmsnorm", "cuda/01_rows", "8192x8192", ["--dtype", "bf16"]),
    ("rmsnorm", "cuda/01_rows", "65536x8192", ["--dtype", "bf16"]),
    ("softmax", "cuda/01_rows", "16384x6144", ["--dtype", "bf16"]),
    ("gemm", "cuda/01_mma", "4096x4096x4096", ["--dtype", "bf16", "--set", "layout=nt"]),
    ("gemm", "cuda/01_mma", "8192x8192x8192", ["--dtype", "bf16", "--set", "layout=nt"]),
]


def run(kmark, case, out, extra_env):
    op, impl, configs, more = case
    command = [
        kmark,
        "run",
        op,
        "--device",
        "cuda",
        "--impl",
        impl,
        "--configs",
        configs,
        *more,
        "--budget",
        "400ms",
        "--rounds",
        "1",
        "--quiet",
        "--out",
        str(out),
    ]
    subprocess.run(command, env={**os.environ, **extra_env}, check=True, stdout=subprocess.DEVNULL)
    records = [json.loads(line) for line in (out / "records.jsonl").open()]
    return [r for r in records if r["status"] == "ok"][-1]


def main():
    kmark, library = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])
    print("| case | impl | kmark, µs | kmark beside CUPTI, µs | CUPTI, µs | off, µs | off |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        with tempfile.TemporaryDirectory() as tmp:
            tmp = pathlib.Path(tmp)
            (tmp / "trace").mkdir()
            alone = run(kmark, case, tmp / "alone", {})
            beside = run(
                kmark, case, tmp / "beside", {"CUDA_INJECTION64_PATH": library, "KMARK_CUPTI": str(tmp / "trace")}
            )
            names = {k["name"] for k in beside["kernels"]}
            seen = []
            for file in (tmp / "trace").iterdir():
                lines = [line.split(maxsplit=2) for line in file.open()]
                ours = [(int(a), int(b)) for a, b, name in lines if name.strip() in names]
                seen += sorted(ours)[-len(beside["samples_ns"]) :]
            by_cupti = statistics.median(b - a for a, b in seen) / 1e3
            by_us, by_us_alone = (statistics.median(r["samples_ns"]) / 1e3 for r in (beside, alone))
            print(
                f"| {beside['case']} | {beside['impl']} | {by_us_alone:.2f} | {by_us:.2f} | {by_cupti:.2f} "
                f"| {by_us - by_cupti:+.2f} | {100 * (by_us / by_cupti - 1):+.2f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
