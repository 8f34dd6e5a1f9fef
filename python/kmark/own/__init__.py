"""Ops of your own: a reference in fp64 is an op, and everything else follows from it.

    @kmark.op("x: m n, w: n normal(1,0.1) -> y: m n", dtypes="bf16 f32", configs=["1024x4096"])
    def norm(x, w, eps=1e-5):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w

`kmark run ./norm.py` judges and times what the file has for it (docs/own-ops.md)."""

from __future__ import annotations

from ._op import Op, op

__all__ = ["Op", "op"]
