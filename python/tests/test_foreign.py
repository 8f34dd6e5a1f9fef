"""Problems of other collections: what is mapped, and what is refused. What needs torch runs where torch is."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
import tempfile
import textwrap
import unittest
from typing import Any
from unittest import mock

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from kmark import foreign, registry  # noqa: E402
from kmark.foreign import _shapes, _solution, _yaml  # noqa: E402
from kmark.own._op import load  # noqa: E402
from kmark.own._words import BadOp  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None
DEFINITION: dict[str, Any] = {
    "name": "Scaled_h8",
    "op_type": "scale",
    "axes": {"n": {"type": "var"}, "h": {"type": "const", "value": 8}, "n_h": {"type": "expr", "expression": "n * h"}},
    "inputs": {
        "x": {"shape": ["n", "h"], "dtype": "float32"},
        "t": {"shape": ["n_h"], "dtype": "int64"},
        "a": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["n", "h"], "dtype": "float16"}},
    "reference": "import numpy as np\n\ndef run(x, t, a):\n    return x * a + t.reshape(x.shape)\n",
}


def workload(n: int, a: float, **more: Any) -> dict[str, Any]:
    inputs = {"x": {"type": "random"}, "t": {"type": "random"}, "a": {"type": "scalar", "value": a}, **more}
    return {"uuid": f"{n}-{a}", "axes": {"n": n}, "inputs": inputs}


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def put(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(path)

    def refused(self, path: str, why: str) -> None:
        with self.assertRaisesRegex(BadOp, why):
            load(path)


class Definitions(Folder):
    def define(self, workloads: list[dict[str, Any]], **changes: Any) -> str:
        self.put("scaled.jsonl", "".join(json.dumps(w) + "\n" for w in workloads))
        return self.put("scaled.json", json.dumps({**DEFINITION, **changes}))

    def test_sizes_and_scalars(self) -> None:
        (op,) = load(self.define([workload(3, 0.5), workload(70, 0.5)]))
        told = op.describe()
        self.assertEqual(told["name"], "scaled_h8")
        self.assertEqual((told["axes"], told["configs"], told["dtypes"]), (["n"], ["3", "70"], ["f16"]))
        self.assertEqual(told["attrs"], [{"name": "a", "default": "0.5", "kind": "number"}])
        words = [(t["name"], t["role"], t["dims"], t["dtype"]) for t in told["tensors"]]
        # A tensor named as kernels name their case is named otherwise; a constant axis is a number.
        self.assertEqual(words[0], ("x", "in", ["n", "8"], "f32"))
        self.assertEqual(words[1], ("t_", "in", ["(n*8)"], "i64"))
        self.assertEqual(words[2], ("y", "out", ["n", "8"], "f16"))
        self.assertEqual([t["fill"] for t in told["tensors"]][:2], [{"rows": {"shift": 16.0}}, "made"])
        self.assertIn("mutant.last-8-missing", [m["name"] for m in told["mutants"]])

    def test_workloads_that_sizes_do_not_tell_apart_have_numbers(self) -> None:
        (op,) = load(self.define([workload(3, 0.5), workload(3, 2.0)]))
        self.assertEqual((op.axes, op.configs, op.attrs), (["n", "workload"], ["3x1", "3x2"], {}))

    @unittest.skipIf(importlib.util.find_spec("numpy") is None, "NumPy is missing")
    def test_the_reference_is_called_with_what_the_workload_says(self) -> None:
        import numpy as np

        (op,) = load(self.define([workload(3, 0.5), workload(3, 2.0)]))
        x, t = np.ones((3, 8)), np.arange(24)
        for which, a in ((1, 0.5), (2, 2.0)):
            y = op.reference(x=x, t_=t, workload=which)["y"]
            self.assertTrue((y == a + t.reshape(3, 8)).all())
        made = op.inputs(np.random.default_rng(0), n=3, workload=1)["t_"]
        self.assertEqual(made.shape, (24,))
        self.assertTrue(made.min() < 0 < made.max())

    def test_a_dataset_keeps_workloads_in_a_folder(self) -> None:
        self.put("workloads/scale/Scaled_h8.jsonl", json.dumps({"definition": "Scaled_h8", "workload": workload(9, 1)}))
        (op,) = load(self.put("definitions/scale/Scaled_h8.json", json.dumps(DEFINITION)))
        self.assertEqual(op.configs, ["9"])

    def test_what_is_refused(self) -> None:
        one = [workload(3, 0.5)]
        self.refused(self.define(one, op_type="sampling"), "at random")
        self.refused(self.define(one, reference="def walk(): pass"), "no function 'run'")
        self.refused(self.define(one, custom_inputs_entrypoint="f.py::g"), "code of its own")
        self.refused(self.define(one, outputs={"y": {"shape": ["n"], "dtype": "bool"}}), "y is bool")
        self.refused(self.define(one, outputs={"y": {"shape": ["k"], "dtype": "float32"}}), "an axis k")
        self.refused(self.define([]), "no workload says its value")
        self.refused(self.define([{"axes": {}}]), "scaled.jsonl, line 1")
        other = workload(3, 0.5, x={"type": "picture"})
        self.refused(self.define([other]), "line 1: inputs of type 'picture'")
        kept = workload(3, 0.5, x={"type": "safetensors", "path": "x.safetensors", "tensor_key": "x"})
        with mock.patch("importlib.util.find_spec", lambda name, find=importlib.util.find_spec: None):
            self.refused(self.define([kept]), "pip install safetensors")
        self.refused(self.put("broken.json", "{"), "no JSON")

    def setUp(self) -> None:
        super().setUp()
        foreign.load.cache_clear()
        self.addCleanup(foreign.load.cache_clear)

    def refused(self, path: str, why: str) -> None:
        foreign.load.cache_clear()
        super().refused(path, why)


class Tasks(Folder):
    def test_yaml(self) -> None:
        text = """\
            # a task
            files:
              - {"name": "submission.py", "source": "@SUBMISSION@"}
              - {name: utils.py, source: ../utils.py} # theirs
            lang: "py"
            description: |
              Text: with - signs
                and more
            config:
              main: "eval.py"
            tests:
              - {"size": 127, "flag": true,
                 "scale": 1e-3}
              - size: 64
                kinds: [a, 'b c', 3]
            gpus:
            - H100
            - "L4"
            empty:
            """
        found = _yaml.read(textwrap.dedent(text))
        self.assertEqual(found["files"][1], {"name": "utils.py", "source": "../utils.py"})
        self.assertEqual((found["lang"], found["config"]), ("py", {"main": "eval.py"}))
        self.assertEqual(found["description"], "Text: with - signs\nand more")
        self.assertEqual(
            found["tests"], [{"size": 127, "flag": True, "scale": 1e-3}, {"size": 64, "kinds": ["a", "b c", 3]}]
        )
        self.assertEqual((found["gpus"], found["empty"]), (["H100", "L4"], None))
        with self.assertRaisesRegex(BadOp, "line 2: cannot read"):
            _yaml.read("a: 1\nnonsense\n")
        with self.assertRaisesRegex(BadOp, "without its"):
            _yaml.read("a: {b: 1\n")

    def test_sizes_follow_from_keys(self) -> None:
        cases = [{"m": 64, "n": 5, "k": 256}, {"m": 100, "n": 3, "k": 384}]

        def text(*values: int) -> Any:
            return _shapes.expression(values, cases)

        self.assertEqual([text(64, 100), text(7, 7), text(320, 300)], ["m", "7", "m*n"])
        self.assertEqual([text(60, 98), text(2, 3), text(192, 300)], ["m-n+1", "k/128", "m*3"])
        self.assertEqual([text(65, 101), text(4, 7), text(5, 1000)], ["m+1", "(m+15)/16", None])

    def test_what_is_refused(self) -> None:
        self.put("none/readme.md", "")
        self.refused(str(self.folder / "none"), "no task.yml")
        self.put("many/task.yml", "multi_gpu: true\ntests:\n  - {n: 1}\n")
        self.refused(str(self.folder / "many"), "distributed")
        self.put("cpp/task.yml", 'lang: "cu"\ntests:\n  - {n: 1}\n')
        self.refused(str(self.folder / "cpp"), "language is cu")
        self.put("bare/task.yml", "lang: py\n")
        self.refused(str(self.folder / "bare"), "neither tests nor benchmarks")
        self.put("lost/task.yml", "tests:\n  - {n: 1}\n")
        self.refused(str(self.folder / "lost"), "no reference.py")

    @unittest.skipUnless(HAS_TORCH, "torch is missing")
    def test_a_nest_of_data_and_words_among_the_keys(self) -> None:
        self.put("nest/task.yml", "tests:\n  - {n: 4, h: 8, kind: a, seed: 1}\n  - {n: 6, h: 16, kind: b, seed: 2}\n")
        text = """\
            import torch
            def generate_input(n, h, kind, seed):
                x = torch.randn(n, h, device="cuda")
                x = x if kind == "a" else x * 2
                return x, {"w.w": torch.rand(h, h // 2, device="cuda")}, {"h": h}
            def ref_kernel(data):
                x, w, config = data
                return x[:, : config["h"]] @ w["w.w"]
            def check_implementation(data, output):
                return torch.allclose(ref_kernel(data), output)
            """
        self.put("nest/reference.py", text)
        (op,) = load(str(self.folder / "nest"))
        self.assertEqual((op.axes, op.configs), (["n", "h", "number"], ["4x8x1", "6x16x2"]))
        told = [(t.name, t.dims, t.fill) for t in op.tensors]
        rows = {"rows": {"shift": 0.0}}
        self.assertEqual(told[:2], [("x0", ["n", "h"], "made"), ("x1_w_w", ["h", "h/2"], rows)])
        import torch

        x, w = torch.rand(6, 16), torch.rand(16, 8)
        y = op.reference(x0=x, x1_w_w=w, n=6, h=16, number=2)["y"]
        self.assertTrue(torch.equal(y, x @ w))

    @unittest.skipUnless(HAS_TORCH, "torch is missing")
    def test_what_is_refused_when_looked_at(self) -> None:
        head = "import torch\ndef generate_input(n):\n    return {data}\ndef check_implementation(d, o): pass\n"
        for i, (data, body, why) in enumerate([
            ("torch.rand(n)", "return torch.rand_like(d)", "draws random numbers"),
            ("torch.rand(n, n)", "return torch.linalg.eigh(d)[1]", "not unique"),
            ("(torch.rand(n), object())", "return d[0]", "is a object"),
            ("(torch.rand(n), torch.zeros(n))", "d[0].zero_(); return d[1] + 1", "changes 0, which it does not return"),
            ("(torch.rand(n), torch.zeros(n))", "d[1].add_(d[0]); return d[1]", "adds to what is in the output"),
            ("torch.rand(n * n % 7 + 1)", "return d", "does not follow from n"),
        ]):  # fmt: skip
            self.put(f"t{i}/task.yml", "tests:\n  - {n: 4}\n  - {n: 5}\n  - {n: 9}\n")
            self.put(f"t{i}/reference.py", head.replace("{data}", data) + f"def ref_kernel(d):\n    {body}\n")
            self.refused(str(self.folder / f"t{i}"), why)


class KernelBench(Folder):
    MODEL = """\
        import torch
        {imports}
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                {init}
            def forward(self, x):
                {forward}
                return y
        def get_inputs():
            return [{inputs}]
        def get_init_inputs():
            return []
        """

    def problem(self, forward: str, init: str = "pass", imports: str = "", inputs: str = "torch.rand(4, 6)") -> str:
        self.number = getattr(self, "number", 0) + 1
        text = textwrap.dedent(self.MODEL).format(forward=forward, init=init, imports=imports, inputs=inputs)
        return self.put(f"{self.number}_problem.py", text)

    def test_what_is_refused_without_running_it(self) -> None:
        self.refused(self.problem("y = x", imports="import torch.distributed as dist"), "distributed")
        self.refused(self.problem("y = x", imports="from torch import distributed"), "distributed")
        self.refused(self.problem("y = x", imports="from transformers import AutoModel"), "level 4")
        self.refused(self.problem("global seen; y = x", imports="seen = 0"), "global seen")

    def test_other_files_are_not_problems(self) -> None:
        self.assertIsNone(foreign.load(self.put("op.py", "class Model: pass\n")))

    @unittest.skipUnless(HAS_TORCH, "torch is missing")
    def test_what_is_refused_when_looked_at(self) -> None:
        self.refused(self.problem("y = x + torch.randn_like(x)"), "forward draws random numbers")
        self.refused(self.problem("y = torch.nn.functional.dropout(x)"), "forward draws random numbers")
        self.refused(self.problem("y = torch.linalg.qr(x)[0]"), "not unique")
        self.refused(self.problem("y = torch.linalg.svd(x)[0]"), "not unique")
        counting = self.problem("self.calls = self.calls + x.sum(); y = x * self.calls", "self.calls = torch.zeros(1)")
        self.refused(counting, "forward changes self.calls")
        self.refused(self.problem("y = x > 0"), "an output is bool")
        self.refused(self.problem("y = 1"), "returns a int")
        self.refused(self.problem("y = x @ x"), "fails on its own inputs: RuntimeError")

    @unittest.skipUnless(HAS_TORCH, "torch is missing")
    def test_weights_are_inputs_and_none_of_them_is_all_ones(self) -> None:
        import numpy as np

        path = self.problem("y = self.norm(x) + x[0, 0] * 0", "self.norm = torch.nn.BatchNorm1d(6)")
        (op,) = load(path)
        fills = {t.name: t.fill for t in op.tensors if t.role == "in"}
        self.assertEqual(fills["x"], {"rows": {"shift": 16.0}})
        names = ["norm_weight", "norm_bias", "norm_running_mean", "norm_running_var"]
        self.assertEqual([n for n, fill in fills.items() if fill == "made"], names)
        self.assertEqual(op.trained, {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"})
        values = op.inputs(np.random.default_rng(3))
        for name in names:
            self.assertGreater(values[name].std(), 0, name)
        self.assertGreater(values["norm_running_var"].min(), 0)
        again = op.inputs(np.random.default_rng(4))
        self.assertFalse((again["norm_weight"] == values["norm_weight"]).any())

    @unittest.skipUnless(HAS_TORCH, "torch is missing")
    def test_a_whole_output_leaves_the_case_its_dtype(self) -> None:
        (op,) = load(self.problem("y = torch.argmax(x, 1)"))
        self.assertEqual((op.dtypes, [t.dtype for t in op.tensors]), (["f32"], [None, "i64"]))

    @unittest.skipUnless(HAS_TORCH, "torch is missing")
    def test_inputs_that_their_code_computes_stay_as_they_are(self) -> None:
        drawn = (
            "torch.rand(4, 6), torch.randn(4, 6).cuda().half(), torch.rand(4, 6).softmax(-1), torch.randint(0, 9, (4,))"
        )
        path = self.problem("y = x + a + b + c[:, None]", inputs=drawn)
        text = pathlib.Path(path).read_text().replace("self, x)", "self, x, a, b, c)")
        (op,) = load(self.put("several.py", text))
        fills = [t.fill for t in op.tensors if t.role == "in"]
        self.assertEqual([fill == "made" for fill in fills], [False, False, True, True])


PROBLEMS = HERE.parent.parent / "examples" / "problems"


@unittest.skipUnless(HAS_TORCH, "torch is missing")
class Examples(unittest.TestCase):
    """The checks of the collections as they run them, on their own values: they accept what our examples get wrong."""

    def test_flashinfer_bench_accepts(self) -> None:
        import torch

        for of, name in (
            ("gemm_n256_k512", "gemm_bf16"),
            ("rmsnorm_h512", "rmsnorm_padded"),
            ("softmax_gather_v2048", "softmax_gather_flush"),
        ):
            (op,) = load(str(PROBLEMS / "definitions" / f"{of}.json"))
            solution = _solution.load(str(PROBLEMS / "definitions" / f"{name}.json"), of)
            torch.manual_seed(1)
            for workload in op.workloads:
                known = {axis: spec.get("value", workload.axes.get(axis)) for axis, spec in op.raw["axes"].items()}
                values = [self.random(spec, known, workload.inputs[n]) for n, spec in op.raw["inputs"].items()]
                right, got = op.run(*values).float(), solution.run(*values).float()
                off = (got - right).abs()
                self.assertFalse(((off > 1e-2) & (off / (right.abs() + 1e-8) > 1e-2)).any(), name)
                self.assertTrue(got.isfinite().all() and (got != right).any())

    def random(self, spec: Any, sizes: Any, given: Any) -> Any:
        import torch

        if given["type"] == "scalar":
            return given["value"]
        shape, dtype = [sizes[axis] for axis in spec["shape"]], getattr(torch, spec["dtype"])
        return torch.randn(shape, dtype=dtype) if dtype.is_floating_point else torch.randint(-1024, 1024, shape)

    def test_kernelbench_accepts(self) -> None:
        import torch

        for file, of, wrong in (
            ("1_softmax", "softmax_new", ["NoMaximum", "Flush"]),
            ("2_linear_gelu", "linear_gelu_new", ["NoTail"]),
            ("3_layernorm", "layernorm_new", ["NoWeight"]),
        ):
            problem = registry.load_file(str(PROBLEMS / "kernelbench" / f"{file}.py"))
            candidates = registry.load_file(str(PROBLEMS / "kernelbench" / f"{of}.py"))
            for name in ["ModelNew", *wrong]:
                for seed in range(5):
                    models = []
                    for kind in (problem.Model, getattr(candidates, name)):
                        torch.manual_seed(seed)
                        models.append(kind(*problem.get_init_inputs()))
                    torch.manual_seed(seed)
                    inputs = problem.get_inputs()
                    with torch.no_grad():
                        right, got = (model(*inputs) for model in models)
                    self.assertTrue(torch.allclose(right, got, atol=1e-4, rtol=1e-4), f"{of}.{name}")

    def test_gpu_mode_accepts(self) -> None:
        from kmark.foreign import _torch

        for task, wrong in (("vectoradd", "coarse"), ("prefixsum", "rounded"), ("conv2d", "narrow")):
            folder = PROBLEMS / "gpumode" / task
            (op,) = load(str(folder))
            submission = registry.load_file(str(folder / "submission.py"))
            for case in op.cases:
                for name in ("custom_kernel", wrong):
                    with _torch.on("cpu", seed=7):
                        data, other = op.generate(case, 7), op.generate(case, 7)
                        said = op.module.check_implementation(other, getattr(submission, name)(data))
                    self.assertTrue(said in ("", (True, "")), f"{task}: {name}: {said}")


if __name__ == "__main__":
    unittest.main()
