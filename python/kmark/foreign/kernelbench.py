"""A KernelBench problem as an op: `class Model`, `get_inputs()`, `get_init_inputs()`. Parameters and buffers become
inputs, so that a kernel that ignores one is seen; `ModelNew` of a candidate gets the same ones."""

from __future__ import annotations

import ast
import copy
import pathlib
from typing import Any, Callable, Mapping, Optional

import numpy as np

from .. import registry
from ..own._words import BadOp
from ..registry import Case, Launch, Unsupported
from ._problem import Problem, Verdict, dtype_word, named, op_name

# KernelBench holds both the absolute and the relative error to this.
TOLERANCE = {"f32": 1e-4, "f64": 1e-4, "f16": 1e-2, "bf16": 1e-2}
# Buffers of norms that are updated in training.
STATISTICS = ("running_mean", "running_var")
# What a model may be made of that no file brings along.
FOREIGN = {"transformers": "level 4: a model of transformers, which brings code and weights of its own"}


def is_problem(path: pathlib.Path) -> bool:
    """By what stands at its top level, without running it."""
    try:
        nodes = ast.parse(path.read_bytes()).body
    except (SyntaxError, OSError):
        return False
    known = {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    return {"Model", "get_inputs"} <= known


def _refuse(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Global):
            raise BadOp(f"it keeps state between calls: global {', '.join(node.names)} (line {node.lineno})")
        for name in names:
            if (name + ".").startswith("torch.distributed."):
                raise BadOp("it is distributed (torch.distributed); one device is all there is here")
            if name.split(".")[0] in FOREIGN:
                raise BadOp(FOREIGN[name.split(".")[0]])


def load(path: pathlib.Path) -> Problem:
    _refuse(ast.parse(path.read_bytes()))
    return KernelBench(path)


class KernelBench(Problem):
    collection = "KernelBench"

    def __init__(self, path: pathlib.Path) -> None:
        import torch

        from . import _torch

        self.module = registry.load_file(str(path))
        self.mentions_cuda = b"cuda" in path.read_bytes()
        self._models: dict[Any, Any] = {}
        self._drawn: tuple[Any, dict[str, Any]] = (None, {})
        model, given, draws, fill, returned = self._looked_at()
        used: set[str] = set()
        tensors = []
        self.given: list[Optional[str]] = []
        for i, value in enumerate(given):
            is_tensor = isinstance(value, torch.Tensor)
            if not is_tensor and not isinstance(value, (bool, int, float, str, type(None))):
                raise BadOp(f"input {i} is a {type(value).__name__}; only tensors and plain values can be mapped")
            self.given.append(named("x" if len(given) == 1 else f"x{i}", used) if is_tensor else None)
            if is_tensor:
                ours = draws.is_draw(value) and value.is_floating_point()
                drawn = " made" if not ours else fill if value.dim() > 1 else ""
                tensors.append(f"{self.given[-1]}: {_shape(value, f'input {i}')}{drawn}")
        self.plain = given
        self.state: dict[str, str] = {}
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                self.state[key] = named(key, used)
                tensors.append(f"{self.state[key]}: {_shape(value, key)} made")
        if not tensors:
            raise BadOp("neither get_inputs() nor the model gives a tensor")
        found = _torch.tensors_of(returned, "forward")
        self.names = [named(name, used) for name in _torch.output_names(found)]
        self.plainly = isinstance(returned, torch.Tensor) and returned.dim() > 0
        outputs = [f"{name}: {_shape(value, 'an output')}" for name, value in zip(self.names, found)]
        # What is f32 in the file is what the case says.
        every = [v for v in [*given, *model.state_dict().values(), *found] if isinstance(v, torch.Tensor)]
        main = "f32" if torch.float32 in {v.dtype for v in every} else dtype_word(found[0].dtype, "an output")
        super().__init__(
            self._call, tensors, outputs, {}, files=[path], name=op_name(f"kb.{path.stem}"),
            about=f"the KernelBench problem {path.stem}", dtypes=main, also=["f16", "bf16"] if main == "f32" else [],
            inputs=self._made, library="torch",
        )  # fmt: skip

    def _init(self) -> list[Any]:
        made = getattr(self.module, "get_init_inputs", list)()
        return list(made) if isinstance(made, (tuple, list)) else [made]

    def _model(self) -> Any:
        return self.module.Model(*self._init())

    def _looked_at(self) -> tuple[Any, list[Any], Any, str, Any]:
        """The model, its inputs, which of them are plain draws, what values they get, and what forward returns: without
        values if possible."""
        try:
            return self._look("meta")
        except BadOp:
            raise
        except Exception:  # not every operation can do without values
            try:
                return self._look("cpu")
            except BadOp:
                raise
            except Exception as error:
                what = str(error).split("\n")[0]
                raise BadOp(f"its model fails on its own inputs: {type(error).__name__}: {what}") from None

    def _look(self, device: str) -> tuple[Any, list[Any], Any, str, Any]:
        import torch

        from . import _torch

        with _torch.on(device, seed=0) as draws, torch.no_grad():
            model = self._model()
            given = list(self.module.get_inputs())
            before = _attributes(model)
            versions = {key: value._version for key, value in model.named_buffers()}
            with _torch.Refusing("forward") as watch:
                returned = model(*given)
            after = _attributes(model)
            changed = [name for name, value in before.items() if after.get(name) is not value]
            if changed:
                raise BadOp(f"it keeps state between calls: forward changes self.{changed[0]}")
            # The statistics of a norm change without their tensors saying so.
            self.trained = {
                key for key, value in model.named_buffers()
                if value._version != versions[key] or key.endswith(STATISTICS)
            }  # fmt: skip
        return model, given, draws, watch.fill(), returned

    def _ready(self, dtype: Any, device: Any) -> Any:
        """A model in a dtype, whose tensors will be replaced by those of the case."""
        import torch

        if (dtype, device) not in self._models:
            from ..bounds._torch import without_rounding
            from . import _torch

            with without_rounding(), _torch.on("cpu", seed=0):
                model = copy.deepcopy(self._model()).to(device, dtype).requires_grad_(False)
            for part in model.modules():
                for name, value in vars(part).items():
                    if isinstance(value, torch.Tensor):
                        narrow = value.is_floating_point()
                        setattr(part, name, value.to(device, dtype) if narrow else value.to(device))
            self._models[dtype, device] = model
        return self._models[dtype, device]

    def _call(self, given: dict[str, Any]) -> Any:
        import torch

        from . import _torch

        known = next(iter(sorted(given.values(), key=lambda x: not x.is_floating_point())))
        dtype = known.dtype if known.is_floating_point() else torch.get_default_dtype()
        model = self._ready(dtype, known.device)
        shapes = {key: value.shape for key, value in model.state_dict().items()}
        # Copies: a batch norm in training changes its buffers, and some models their inputs.
        state = {key: given[name].clone().reshape(shapes[key]) for key, name in self.state.items()}
        inputs = [given[name].clone() if name else value for name, value in zip(self.given, self.plain)]

        def forward() -> Any:
            with torch.no_grad():
                return torch.func.functional_call(model, state, tuple(inputs))

        if self.mentions_cuda and known.device.type == "cpu":
            with _torch.on("cpu"):
                returned = forward()
        else:
            returned = forward()
        return self._outputs(returned)

    def _made(self, rng: Any, **_: Any) -> dict[str, Any]:
        """Weights as the model draws them, and inputs that are no plain draws, by seed. A parameter that starts with
        one value everywhere, as the weight of a norm, gets others around it: a kernel that ignores it must be seen."""
        from . import _torch

        seed = int(rng.integers(1 << 31))
        if self._drawn[0] != seed:
            found = {}
            with _torch.on("cpu", seed=seed):
                model = self._model()
                inputs = list(self.module.get_inputs()) if any(t.fill == "made" for t in self.tensors) else []
            for name, value in zip(self.given, inputs):
                if name:
                    found[name] = value.detach().double().numpy() if value.is_floating_point() else value.numpy()
            parameters = dict(model.named_parameters())
            for key, name in self.state.items():
                values = model.state_dict()[key].detach().double().numpy().reshape(-1)
                may_vary = key in parameters or key.endswith(STATISTICS)
                if may_vary and values.size > 1 and (values == values[0]).all():
                    values = values + 0.1 * np.clip(rng.standard_normal(values.size), -4, 4)
                found[name] = values
            self._drawn = seed, found
        return self._drawn[1]

    def theirs(
        self, case: Case, arguments: Mapping[str, Any], outputs: Mapping[str, np.ndarray], device: str
    ) -> Verdict:
        import torch

        answer = self._call(self.typed(arguments, case, device))
        for name, got in self.typed(outputs, case, device).items():
            limit = TOLERANCE.get(self.dtype_of(name, case), 1e-4)
            close = torch.isclose(answer[name].to(got.dtype), got, rtol=limit, atol=limit)
            if not bool(close.all()):
                off = int((~close).sum())
                return Verdict(False, f"{off} of {got.numel()} elements of {name} are off by more than {limit:g}")
        return Verdict(True)

    def binding(self, chosen: Any) -> Optional[Callable[[Case, Any], Launch]]:
        import torch

        if not (isinstance(chosen, type) and issubclass(chosen, torch.nn.Module)):
            return None

        def bind(case: Case, t: Any) -> Launch:
            with case.building():
                torch.manual_seed(0)
                dtype = registry.torch_dtype(case.dtype)
                model = chosen(*self._init()).to(case.device, dtype).requires_grad_(False)
                self._give(model, t)
            inputs = [getattr(t, name) if name else value for name, value in zip(self.given, self.plain)]
            if self.plainly:
                return lambda: model(*inputs)
            return lambda: self._outputs(model(*inputs))

        return bind

    def _outputs(self, returned: Any) -> dict[str, Any]:
        from . import _torch

        return {n: y.reshape(y.shape or (1,)) for n, y in zip(self.names, _torch.tensors_of(returned, "forward"))}

    def _give(self, model: Any, t: Any) -> None:
        """The case's weights, in its memory: by name, or in order where a candidate has other names for them. Buffers
        that training changes are the candidate's own."""
        own = {key: value for key, value in model.state_dict(keep_vars=True).items() if value.is_floating_point()}
        if len(own) != len(self.state):
            raise Unsupported(f"it has {len(own)} weights, the problem's model has {len(self.state)}")
        order = self.state if set(own) == set(self.state) else own
        for mine, key in zip(order, self.state):
            value, given = own[mine], getattr(t, self.state[key])
            if value.numel() != given.numel():
                sizes = f"{tuple(value.shape)}, not {tuple(given.shape)}"
                raise Unsupported(f"its weight {mine} is {sizes} as {key} of the problem's model")
            value.data = (given.clone() if key in self.trained else given).reshape(value.shape)


def _shape(value: Any, who: str) -> str:
    word = dtype_word(value.dtype, who)
    if 0 in value.shape:
        raise BadOp(f"{who} is empty")
    return f"{' '.join(str(n) for n in value.shape) or '1'}{'' if word == 'f32' else ' ' + word}"


def _attributes(model: Any) -> dict[str, Any]:
    """Tensors that parts of a model hold outside of parameters and buffers, and plain values."""
    found = {}
    for path, part in model.named_modules():
        for name, value in vars(part).items():
            if not name.startswith("_") and name != "training":
                found[f"{path}.{name}".lstrip(".")] = value
    return found
