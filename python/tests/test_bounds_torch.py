"""Bounds derived from torch references; skipped where torch is missing."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import unittest
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import bounded  # noqa: E402
import numpy as np  # noqa: E402
from bounded import SUMS, mutants, ratio, rmsnorm_f32, softmax_f32, values  # noqa: E402
from kmark import bounds  # noqa: E402
from kmark.bounds import BadReference, Output  # noqa: E402

if importlib.util.find_spec("torch"):
    import torch
    import torch.nn.functional as F

ROWS, COLUMNS = 24, 700


def truth(reference: Any, dtype: str = "f32", *, matmul: Any = None, **arguments: Any) -> bounds.Truth:
    return bounds.truth(reference, arguments, [Output("y", dtype)], library="torch", matmul=matmul)


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Torch(unittest.TestCase):
    def test_a_fused_softmax_is_its_parts(self) -> None:
        x, other = values("f32", ROWS, COLUMNS, scale=3), values("f32", ROWS, COLUMNS, seed=9, scale=3)
        x[3] += 100

        def parts(x: Any) -> Any:
            e = torch.exp(x - x.amax(-1, keepdim=True))
            return e / e.sum(-1, keepdim=True)

        numpy = bounds.truth(bounded.softmax, {"x": x}, [Output("y", "f32")], library="numpy")
        for reference in (parts, lambda x: torch.softmax(x, -1), lambda x: x.float().softmax(-1).to(torch.bfloat16)):
            found = truth(reference, x=x)
            self.assertEqual((found.how, found.blind), ("random rounding of torch operations, 16 runs", []))
            np.testing.assert_allclose(found.width, numpy.width, rtol=0.1)
            for add in SUMS.values():
                for base2 in (False, True):
                    self.assertLessEqual(ratio(found, softmax_f32(x, add, base2), "f32"), 1)
            for name, got in mutants(softmax_f32(x), softmax_f32(other)).items():
                self.assertGreater(ratio(found, got, "f32"), 1, name)

    def test_norms(self) -> None:
        x, w = values("bf16", ROWS, COLUMNS), values("bf16", COLUMNS, seed=1)
        for reference in (
            lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w,
            lambda x, w: F.rms_norm(x, (COLUMNS,), w, 1e-5),
        ):
            found = truth(reference, "bf16", x=x, w=w)
            self.assertLessEqual(ratio(found, rmsnorm_f32(x, w), "bf16"), 1)
            rounded = bounds.rounded(rmsnorm_f32(x, np.ones(COLUMNS)).astype(float), "bf16") * w
            self.assertGreater(ratio(found, rounded, "bf16"), 1)
            self.assertLessEqual(ratio(found, rounded, "bf16", "loose"), 1)
        with torch.no_grad():
            honest = F.layer_norm(torch.tensor(x, dtype=torch.float32), (COLUMNS,)).numpy()
        self.assertLessEqual(ratio(truth(lambda x: F.layer_norm(x, (COLUMNS,)), x=x), honest, "f32"), 1)

    def test_torch_itself_in_f32_passes(self) -> None:
        x, y = values("f32", 16, 96), values("f32", 96, 24, seed=1)
        image, kernel = values("f32", 2, 3, 9, 9), values("f32", 4, 3, 3, 3, seed=1)
        q = values("f32", 1, 2, 17, 16)
        for reference, arguments in (
            (lambda x: F.gelu(x), {"x": x}),
            (lambda x: F.gelu(x, approximate="tanh"), {"x": x}),
            (lambda x: F.silu(x), {"x": x}),
            (lambda x: torch.logsumexp(x, -1), {"x": x}),
            (lambda x: x.var(-1), {"x": x}),
            (lambda x: x.cumsum(-1), {"x": x}),
            (lambda x: F.cross_entropy(x, torch.arange(16), reduction="none"), {"x": x}),
            (lambda x, y: x @ y, {"x": x, "y": y}),
            (lambda x, y: F.linear(x, y.t(), y[0]), {"x": x, "y": y}),
            (lambda x: torch.einsum("ij,kj->ik", x, x), {"x": x}),
            (lambda x: torch.zeros(4, 96).index_add(0, torch.arange(16) % 4, x), {"x": x}),
            (lambda image, kernel: F.conv2d(image, kernel, padding=1), {"image": image, "kernel": kernel}),
            (lambda image: F.avg_pool2d(image, 2), {"image": image}),
            (lambda image: F.batch_norm(image, None, None, training=True), {"image": image}),
            (lambda image: F.group_norm(image, 3), {"image": image}),
            (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), {"q": q}),
        ):
            found = truth(reference, **arguments)
            self.assertEqual(found.blind, [])
            honest = reference(**{n: torch.tensor(v, dtype=torch.float32) for n, v in arguments.items()})
            self.assertLessEqual(ratio(found, honest.numpy(), "f32"), 1)
            self.assertGreater(ratio(found, honest.numpy() * (1 + 1e-3), "f32"), 1)

    def test_gradients_by_autograd(self) -> None:
        x, dy = values("f32", 8, 64), values("f32", 8, 64, seed=1)

        def backward(x: Any, dy: Any) -> Any:
            x.requires_grad_()
            return torch.autograd.grad(torch.softmax(x, -1), x, dy)[0]

        found = truth(backward, x=x, dy=dy)
        self.assertEqual(found.blind, [])
        honest = backward(torch.tensor(x, dtype=torch.float32), torch.tensor(dy, dtype=torch.float32)).numpy()
        self.assertLessEqual(ratio(found, honest, "f32"), 1)
        self.assertGreater(found.width[0], 1)

    def test_a_matrix_unit_rounds_what_it_is_handed(self) -> None:
        x, v = values("bf16", ROWS, 64, scale=3), values("bf16", 64, 16, seed=1)
        p = bounds.rounded(softmax_f32(x).astype(float), "bf16")
        for matmul, passes in (("bf16", True), (None, False)):
            found = truth(lambda x, v: torch.softmax(x, -1) @ v, "bf16", matmul=matmul, x=x, v=v)
            self.assertEqual(ratio(found, p @ v, "bf16") <= 1, passes)

    def test_fp8_and_integers_stay_what_they_are(self) -> None:
        x = values("bf16", 8, 64)
        found = truth(lambda x: x.to(torch.float8_e4m3fn), "f8e4m3", x=x)
        np.testing.assert_array_equal(found.expect[0], bounds.rounded(x, "f8e4m3"))
        found = bounds.truth(lambda x: x.topk(4).indices, {"x": x}, [Output("i", "i64")], library="torch")
        self.assertEqual(found.expect[0].dtype, np.float64)
        rounded = truth(lambda x: bounds.rounded(x * 1.5, "bf16"), x=x)
        np.testing.assert_array_equal(rounded.expect[0], bounds.rounded(x * 1.5, "bf16"))

    def test_in_place(self) -> None:
        x = values("f32", 8, 64)
        found = bounds.truth(lambda x: x.mul_(2).add_(1), {"x": x}, [Output("x", "f32", True)], library="torch")
        np.testing.assert_allclose(found.expect[0], 2 * x + 1)

    def test_what_is_told(self) -> None:
        x = values("f32", 8, 64)
        found = truth(lambda x: x / x.max().item(), x=x)
        self.assertEqual(found.how, "inputs perturbed at random, 16 runs")
        self.assertIn("item()", found.blind[0])
        found = truth(lambda x: torch.fft.rfft(x).abs(), x=x)
        self.assertIn("_fft_r2c has no rule of its own", found.blind[0])
        self.assertIn("computed in fp64 itself", truth(lambda x: x.sum(-1), "f64", x=x).blind[0])

    def test_bad_references(self) -> None:
        x = values("f32", 8, 64)
        for reference, message in (
            (lambda x: F.dropout(x, 0.5), "uses random numbers"),
            (lambda x: x + torch.rand(()), "uses random numbers"),
            (lambda x: x.view(torch.int64), "reads the bits"),
            (lambda x: x.mul_(2), "changes its input x"),
            (lambda x: x @ x, "raised RuntimeError: .*test_bounds_torch.py"),
            (lambda x: (x, x), "returns 2 outputs instead of 1"),
        ):
            with self.assertRaisesRegex(BadReference, message) as caught:
                truth(reference, x=x)
            self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(torch.get_default_dtype(), torch.float32)


if __name__ == "__main__":
    unittest.main()
