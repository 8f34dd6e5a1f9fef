"""Time functions of your own: python examples/harness.py (leaves softmax.svg and softmax-run in the current folder)

Two ways to write a softmax with NumPy, on the CPU; three to write an RMSNorm, if torch finds a GPU."""

from importlib.util import find_spec

import kmark
import numpy as np


def softmaxes(m: int, n: int):
    """Functions that do the same work on the same data, where they leave it, and a check of that."""
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
        return kmark.close(y, wanted, slack=16 * 2**-24 * wanted)  # a few roundings in f32

    return {"plain": plain, "in place": in_place}, {"bytes": 2 * x.nbytes, "outputs": y, "check": right}


def on_the_cpu() -> None:
    h = kmark.Harness("cpu", budget="500ms")
    functions, facts = softmaxes(512, 2048)
    results = h.versus(functions, **facts)  # y gets wrong values before each check
    print(results, end="\n\n")
    print(results.comparison("in place"), end="\n\n")

    # The same over several shapes; a maker per name, and they take turns at every point.
    def maker(name):
        def make(m, n):
            functions, facts = softmaxes(m, n)
            return kmark.Work(functions[name], **facts)

        return make

    grid = {"m": [16, 256], "n": [128, 4096]}
    swept = h.sweep({name: maker(name) for name in functions}, grid, "softmax", base="plain")
    print(swept, end="\n\n")
    swept.plot("softmax.svg", x="n")
    swept.save("softmax-run", overwrite=True)  # kmark report softmax-run; kmark.load("softmax-run")


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
