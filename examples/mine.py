"""RMSNorm as a user would bring it in Python:

kmark run rmsnorm --impl ./examples/mine.py:fast --impl 'cuda/*'            on a GPU, with Triton
kmark run rmsnorm --impl ./examples/mine.py:plain --device cpu --dtype f32  anywhere, with NumPy
"""

from importlib.util import find_spec

import kmark


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy", strided=True)
def plain(x, w, y, rstd, eps):
    """NumPy, a whole array at a time."""
    # Parameters named like the op's tensors, axes and attributes: this itself is called for every launch.
    import numpy as np

    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    r = 1 / np.sqrt(np.mean(np.square(wide), axis=1, keepdims=True) + eps)
    np.multiply(wide * r, w, out=y, casting="same_kind")
    if isinstance(rstd, np.ndarray):  # a tensor where the case asks for it
        rstd[:] = r[:, 0]


if find_spec("triton"):
    import triton
    import triton.language as tl

    @triton.jit
    def rows(x, w, y, rstd, x_pitch, y_pitch, n, eps, BLOCK: tl.constexpr, SAVE: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < n
        v = tl.load(x + row * x_pitch + column, mask=inside, other=0.0).to(tl.float32)
        r = 1.0 / tl.sqrt(tl.sum(v * v, axis=0) / n + eps)
        scaled = v * r * tl.load(w + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row * y_pitch + column, scaled.to(y.dtype.element_ty), mask=inside)
        if SAVE:
            tl.store(rstd + row, r)


@kmark.impl(op="rmsnorm", strided=True)
def fast(case, t):
    """Triton, a row in the registers of a block."""
    # Parameters `case, t`: this binds once and returns what is launched and timed.
    import triton

    if case.dtype not in ("f32", "f16", "bf16"):
        raise kmark.Unsupported(f"sums in f32, which is not enough for {case.dtype}")
    block = triton.next_power_of_2(case.n)
    if block > 65536:
        raise kmark.Unsupported("a row must fit into registers: n <= 65536")
    sizes = t.x.stride(0), t.y.stride(0), case.n, case.number("eps")
    warps = min(16, max(1, block // 512))

    def launch():
        rows[(case.m,)](t.x, t.w, t.y, t.rstd, *sizes, BLOCK=block, SAVE=t.rstd is not None, num_warps=warps)

    with case.building():
        launch()
    return launch
