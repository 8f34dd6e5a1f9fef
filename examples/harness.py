"""Time functions of your own: python examples/harness.py

Two ways to write a softmax with NumPy, on the CPU; three to write an RMSNorm, if torch finds a GPU."""

from importlib.util import find_spec

import kmark
import numpy as np


def softmaxes(m: int, n: int):
    """Functions that do the same work on the same data, and a check of what they left in `y`."""
    x = np.random.default_rng(42).standard_normal((m, n), dtype=np.float32)
    y = np.empty_like(x)
    wide = np.exp(x.astype(np.float64))
    wanted = wide / wide.sum(axis=1, keepdims=True)

    def plain():
        e = np.exp(x - x.max(axis=1, keepdims=True))
        y[:] = e / e.sum(axis=1, keepdims=True)

    def in_place():
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        np.divide(y, y.sum(axis=1, keepdims=True), out=y)

    def right():
        close = np.allclose(y, wanted, rtol=1e-5)
        y.fill(np.nan)  # what an earlier call left behind shall not pass for the next one's
        return close

    return {"plain": plain, "in place": in_place}, 2 * x.nbytes, right


def on_the_cpu() -> None:
    h = kmark.Harness("cpu", budget="500ms")
    functions, moved, right = softmaxes(512, 2048)
    results = h.versus(functions, bytes=moved, check=right)
    print(results, end="\n\n")
    print(results.comparison("in place"), end="\n\n")

    # The same over several shapes; a maker per name, and they take turns at every point.
    def maker(name):
        def make(m, n):
            functions, moved, right = softmaxes(m, n)
            return kmark.Work(functions[name], bytes=moved, check=right)

        return make

    grid = {"m": [16, 256], "n": [128, 4096]}
    print(h.sweep({name: maker(name) for name in functions}, grid, base="plain"), end="\n\n")


def on_a_gpu() -> None:
    import torch
    import torch.nn.functional as F

    m, n, eps = 4096, 8192, 1e-6
    x = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(n, device="cuda", dtype=torch.bfloat16)

    def by_hand():
        v = x.float()
        return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)

    wide = x.double()
    wanted = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * w.double()
    functions = {
        "by hand": by_hand,
        "torch": lambda: F.rms_norm(x, (n,), w, eps),
        "compiled": torch.compile(by_hand, dynamic=False),
    }
    h = kmark.Harness("cuda")  # times torch's current stream; the functions must not wait for the device
    results = h.versus(
        functions,
        base="torch",
        bytes=2 * x.nbytes + w.nbytes,
        check=lambda y: torch.allclose(y.double(), wanted, rtol=2**-7, atol=1e-3),
    )
    print(results)


if __name__ == "__main__":
    on_the_cpu()
    if find_spec("torch") is None:
        print("no torch here, so nothing on a GPU")
    else:
        import torch

        if torch.cuda.is_available():
            on_a_gpu()
        else:
            print("torch finds no GPU here")
