"""The op of drop_norm.py in Triton: a program per row, which is read once and stays in registers."""

import triton
import triton.language as tl


@triton.jit
def rows(x, r, u, w, y, s, n, p, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    there, at = columns < n, tl.program_id(0).to(tl.int64) * n + columns
    kept = tl.load(x + at, there, 0).to(tl.float32) / (1 - p)
    total = tl.load(r + at, there, 0).to(tl.float32) + tl.where(tl.load(u + at, there, 0) < p, 0.0, kept)
    tl.store(s + at, total, there)
    centred = tl.where(there, total - tl.sum(total) / n, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred) / n + eps)
    tl.store(y + at, centred * scale * tl.load(w + columns, there, 0).to(tl.float32), there)


def fused(x, r, u, w, p, eps, y, s):
    m, n = x.shape
    rows[m,](x, r, u, w, y, s, n, p, eps, triton.next_power_of_2(n))
