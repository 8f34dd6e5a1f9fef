"""Memory traffic: copy, read (sums of 65536), write and triad."""

from __future__ import annotations

from typing import Any

from ..registry import Case, Launch, impl
from ._compile import compiled
from ._rows import acc, numpy_acc

CHUNK = 1 << 16


@impl("torch", about="copy_, sum or addcmul", devices=("cpu", "cuda"))
def torch(case: Case, t: Any) -> Launch:
    import torch

    wide, whole = acc(case), case.n // CHUNK

    def copy() -> None:
        t.y.copy_(t.x)

    def write() -> None:
        t.y.copy_(t.s.expand(case.n))

    def triad() -> None:
        torch.addcmul(t.a, t.s, t.b, out=t.y)

    def read() -> None:
        if whole:
            torch.sum(t.x[: whole * CHUNK].view(whole, CHUNK), 1, dtype=wide, out=t.sums[:whole])
        if case.n % CHUNK:
            torch.sum(t.x[None, whole * CHUNK :], 1, dtype=wide, out=t.sums[whole:])

    return {"copy": copy, "write": write, "triad": triad, "read": read}[case["kind"]]


@impl("torch-compile", about="torch.compile of the same", devices=("cpu", "cuda"))
def torch_compile(case: Case, t: Any) -> Launch:
    import torch

    kind, wide, x, y, a, b, s, sums = case["kind"], acc(case), t.x, t.y, t.a, t.b, t.s, t.sums
    short = -case.n % CHUNK

    def launch() -> None:
        if kind == "copy":
            y.copy_(x)
        elif kind == "write":
            y.copy_(s.expand(y.shape))
        elif kind == "triad":
            y.copy_(a.to(wide) + s.to(wide) * b.to(wide))
        else:
            padded = torch.nn.functional.pad(x, (0, short)) if short else x
            sums.copy_(padded.view(-1, CHUNK).sum(1, dtype=wide))

    return compiled(case, launch)


@impl("numpy", about="NumPy", devices=("cpu",), arrays="numpy")
def numpy(case: Case, t: Any) -> Launch:
    import numpy as np

    kind, wide = case["kind"], numpy_acc(case)

    def copy() -> None:
        np.copyto(t.y, t.x)

    def write() -> None:
        t.y.fill(t.s[0])

    def triad() -> None:
        s = wide(t.s[0])
        for at in range(0, case.n, CHUNK):
            part = slice(at, at + CHUNK)
            y = t.b[part].astype(wide)
            y *= s
            y += t.a[part]
            t.y[part] = y

    def read() -> None:
        for i in range(len(t.sums)):
            t.sums[i] = t.x[i * CHUNK : (i + 1) * CHUNK].sum(dtype=wide)

    return {"copy": copy, "write": write, "triad": triad, "read": read}[kind]
