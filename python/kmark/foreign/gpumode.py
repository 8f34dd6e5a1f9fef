"""A GPU MODE task as an op: the cases of its task.yml, the tensors of `generate_input`, `ref_kernel` as reference,
`check_implementation` beside our gate, `custom_kernel(data)` as an impl."""

from __future__ import annotations

import atexit
import importlib
import inspect
import pathlib
import shutil
import sys
import tempfile
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np

from ..own._words import BadOp
from ..registry import Adapter, Case, Launch
from . import _shapes, _yaml
from ._problem import AXIS, Problem, Verdict, dtype_word, named, op_name

# The extra axis that says which of the cases it is, where whole numbers do not.
WHICH = "number"
SUBMISSION = "@SUBMISSION@"
# So many of the smallest cases are looked at where a look needs values.
FEW = 4


def load(folder: pathlib.Path) -> Problem:
    spec = _yaml.read((folder / "task.yml").read_text(encoding="utf-8"))
    if spec.get("multi_gpu") or (spec.get("config") or {}).get("world_size"):
        raise BadOp("it is distributed (multi_gpu); one device is all there is here")
    if str(spec.get("lang", "py")) != "py":
        raise BadOp(f"its language is {spec['lang']}; tasks in Python are read")
    cases = [dict(case) for key in ("tests", "benchmarks") for case in spec.get(key) or []]
    if not cases:
        raise BadOp("task.yml has neither tests nor benchmarks")
    return Task(folder, spec, cases)


class Task(Problem):
    collection = "GPU MODE"

    def __init__(self, folder: pathlib.Path, spec: Mapping[str, Any], cases: list[dict[str, Any]]) -> None:
        self.sources = _sources(folder, spec)
        self.module, self.has_seed = _module(self.sources), any("seed" in case for case in cases)
        cases = [{key: value for key, value in case.items() if key != "seed"} for case in cases]
        self.cases = [case for i, case in enumerate(cases) if case not in cases[:i]]
        keys = list(dict.fromkeys(key for case in self.cases for key in case))
        self.keys = [key for key in keys if all(_is_size(case.get(key)) for case in self.cases)]
        others = [{k: v for k, v in case.items() if k not in self.keys} for case in self.cases]
        self.by_number = any(other != others[0] for other in others) or not self.keys
        used = {*self.keys, WHICH}
        self._skeletons: dict[Any, Any] = {}
        self._drawn: tuple[Any, dict[str, Any]] = (None, {})
        self._look(used)
        axes = [*self.keys, *([WHICH] if self.by_number else [])]
        configs = ["x".join(str({**case, WHICH: i + 1}[a]) for a in axes) for i, case in enumerate(self.cases)]
        kinds = [words.split()[-1] for words in self.outputs_in_words]
        super().__init__(
            self._call, self.tensors_in_words, self.outputs_in_words, dict.fromkeys(axes, AXIS),
            files=list(self.sources.values()), at=folder / "task.yml", name=op_name(f"gpumode.{folder.resolve().name}"),
            about=f"the GPU MODE task {folder.resolve().name}", axes=axes,
            dtypes=next((k for k in kinds if k[0] in "fb"), kinds[0]), configs=list(dict.fromkeys(configs)),
            inputs=self._made, library="torch",
        )  # fmt: skip

    # --- what its code says of tensors --------------------------------------------------------------------------------

    def _look(self, used: set[str]) -> None:
        """Names, sizes and fills of all tensors."""
        looks = self._looks("meta", self.cases)
        if looks is None:
            few = sorted(self.cases, key=lambda case: np.prod([float(case[key]) for key in self.keys]))[:FEW]
            looks = self._looks("cpu", few)
            assert looks is not None
        self.names: dict[str, str] = {}
        self.slots: dict[str, int] = {}
        self.tensors_in_words, self.outputs_in_words = [], []
        first = looks[0]
        for path, leaf in first.leaves.items():
            if path in first.aliases:
                self.slots[path] = first.aliases[path]
                continue
            if first.changed == path:
                raise BadOp(f"ref_kernel changes {path or 'data'}, which it does not return")
            ours = all(look.drawn[path] for look in looks) and leaf.is_floating_point()
            fill = " made" if not ours else first.fill if leaf.dim() > 1 else ""
            self.names[path] = named(path if path[:1].isalpha() else f"x{path}", used)
            self.tensors_in_words.append(f"{self.names[path]}: {_words(looks, path, path or 'data')}{fill}")
        self.returned = [named(name, used) for name in first.output_names]
        for i, name in enumerate(self.returned):
            self.outputs_in_words.append(f"{name}: {_words(looks, i, 'the output')}")
        if not self.tensors_in_words:
            raise BadOp("generate_input gives no tensor")
        self._independent()

    def _looks(self, device: str, cases: Sequence[Mapping[str, Any]]) -> Optional[list[_Look]]:
        try:
            return [_Look(self, case, device) for case in cases]
        except BadOp:
            raise
        except Exception as error:
            if device == "meta":
                return None  # not every operation can do without values
            what = str(error).split("\n")[0]
            raise BadOp(f"its reference fails on its own inputs: {type(error).__name__}: {what}") from None

    def _independent(self) -> None:
        """What is passed in to be written must not be read: else it would be an input."""
        if not self.slots:
            return
        import torch

        from . import _torch

        case = min(self.cases, key=lambda case: np.prod([float(case[key]) for key in self.keys]))
        answers = []
        for value in (0.0, 1.0):
            with _torch.on("cpu", seed=0), torch.no_grad():
                data = self.generate(case, 0)
                for path, leaf in _torch.flat(data, ""):
                    if path in self.slots:
                        leaf.fill_(value)
                answers.append(_torch.tensors_of(self.module.ref_kernel(data), "ref_kernel"))
        if any(not torch.equal(a, b) for a, b in zip(*answers)):
            raise BadOp("ref_kernel adds to what is in the output that it is given; such a task is not mapped")

    def generate(self, case: Mapping[str, Any], seed: int) -> Any:
        return self.module.generate_input(**case, **({"seed": seed} if self.has_seed else {}))

    # --- what our side asks for ---------------------------------------------------------------------------------------

    def _case(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of `generate_input`."""
        which = int(sizes[WHICH]) if self.by_number else 1
        if not 0 < which <= len(self.cases):
            raise BadOp(f"there is no case {which}; there are {len(self.cases)}")
        return {**self.cases[which - 1], **{key: int(sizes[key]) for key in self.keys}}

    def _data(self, sizes: Mapping[str, Any], tensors: Mapping[str, Any], slots: Mapping[int, Any]) -> Any:
        """As their code takes it: our tensors in their nest."""
        from ..bounds._torch import without_rounding
        from . import _torch

        case = self._case(sizes)
        key = repr(case)
        if key not in self._skeletons:
            with without_rounding():
                try:
                    with _torch.on("meta", seed=0):
                        self._skeletons = {key: self.generate(case, 0)}
                except Exception:  # not every operation can do without values
                    with _torch.on("cpu", seed=0):
                        self._skeletons = {key: self.generate(case, 0)}
        skeleton = self._skeletons[key]
        paths = iter([path for path, _ in _torch.flat(skeleton, "")])

        def leaf(value: Any) -> Any:
            path = next(paths)
            if path in self.slots:
                return slots[self.slots[path]]
            return tensors[self.names[path]] if path in self.names else value

        return _torch.rebuilt(skeleton, leaf)

    def _empty(self, sizes: Mapping[str, Any], like: Any) -> dict[int, Any]:
        """Outputs that are passed in, for code of theirs."""
        import torch

        from ..registry import torch_dtype
        from ._problem import size

        made, known = {}, {key: int(sizes[key]) for key in self.axes}
        for i in self.slots.values():
            t = next(t for t in self.outputs if t.name == self.returned[i])
            wide = like.dtype == torch.float64 and t.is_float
            shape = tuple(size(dim, known) for dim in t.dims)
            made[i] = torch.zeros(
                shape, dtype=like.dtype if wide else torch_dtype(t.dtype or "f32"), device=like.device
            )
        return made

    def _near(self, device: Any) -> Any:
        """Where their code names a GPU and there is none."""
        import contextlib

        from . import _torch

        return _torch.on("cpu") if str(device) == "cpu" else contextlib.nullcontext()

    def _call(self, given: dict[str, Any]) -> Any:
        import torch

        like = next(
            (given[n] for n in self.names.values() if given[n].is_floating_point()), given[self.tensors[0].name]
        )
        with self._near(like.device), torch.no_grad():
            copies = {name: given[name].clone() for name in self.names.values()}
            returned = self.module.ref_kernel(self._data(given, copies, self._empty(given, like)))
        return self._outputs(returned)

    def _outputs(self, returned: Any) -> dict[str, Any]:
        from . import _torch

        found = _torch.tensors_of(returned, "the kernel")
        return {name: y.reshape(y.shape or (1,)) for name, y in zip(self.returned, found)}

    def _made(self, rng: Any, **sizes: Any) -> dict[str, Any]:
        from . import _torch

        case, seed = self._case(sizes), int(rng.integers(1 << 31))
        if self._drawn[0] != (repr(case), seed):
            with _torch.on("cpu", seed=seed):
                leaves = dict(_torch.flat(self.generate(case, seed), ""))
            wide = {self.names[path]: leaf for path, leaf in leaves.items() if path in self.names}
            found = {n: (x.double() if x.is_floating_point() else x).numpy() for n, x in wide.items()}
            self._drawn = (repr(case), seed), found
        return self._drawn[1]

    def theirs(
        self, case: Case, arguments: Mapping[str, Any], outputs: Mapping[str, np.ndarray], device: str
    ) -> Verdict:
        inputs = self.typed({name: arguments[name] for name in self.names.values()}, case, device)
        got = self.typed(outputs, case, device)
        shaped = [got[name] for name in self.returned]
        with self._near(device):
            data = self._data(case.axes, inputs, self._empty(case.axes, shaped[0]))
            try:
                said = self.module.check_implementation(data, shaped[0] if len(shaped) == 1 else tuple(shaped))
            except Exception as error:
                return Verdict(False, f"{type(error).__name__}: {error}".split("\n")[0])
        ok, why = said if isinstance(said, tuple) else (not said if isinstance(said, str) else bool(said), said)
        return Verdict(bool(ok), "" if ok else str(why).replace("\\n", "\n").split("\n")[0])

    def candidate(self, path: str, name: str) -> Adapter:
        _module(self.sources)  # what it imports from the task
        return super().candidate(path, name)

    def binding(self, chosen: Any) -> Optional[Callable[[Case, Any], Launch]]:
        parameters = list(inspect.signature(chosen).parameters)
        if len(parameters) != 1 or parameters[0] in self.names.values():
            return None

        def bind(case: Case, t: Any) -> Launch:
            tensors = {name: getattr(t, name) for name in self.names.values()}
            slots = {i: getattr(t, name) for i, name in enumerate(self.returned)}
            data = self._data(case.axes, tensors, slots)
            if len(self.returned) == 1 and not self.is_scalar:
                return lambda: chosen(data)
            return lambda: self._outputs(chosen(data))

        return bind

    @property
    def is_scalar(self) -> bool:
        return any(t.dims == ["1"] for t in self.outputs)


class _Look:
    """A case of a task without our values: what goes in, what comes out, and what was written."""

    def __init__(self, task: Task, case: Mapping[str, Any], device: str) -> None:
        import torch

        from . import _torch

        self.sizes = {key: int(case[key]) for key in task.keys}
        with _torch.on(device, seed=0) as draws, torch.no_grad():
            data = task.generate(case, 0)
            every = dict(_torch.flat(data, ""))
            for path, leaf in every.items():
                if not isinstance(leaf, (torch.Tensor, torch.dtype, bool, int, float, str, type(None))):
                    raise BadOp(f"{path or 'data'} is a {type(leaf).__name__}; tensors and plain values can be mapped")
            self.leaves = {path: leaf for path, leaf in every.items() if isinstance(leaf, torch.Tensor)}
            self.drawn = {path: draws.is_draw(leaf) for path, leaf in self.leaves.items()}
            versions = {path: leaf._version for path, leaf in self.leaves.items()}
            with _torch.Refusing("ref_kernel") as watch:
                returned = task.module.ref_kernel(data)
            self.fill = watch.fill()
        self.returned = _torch.tensors_of(returned, "ref_kernel")
        self.output_names = _torch.output_names(self.returned)
        written = [path for path, leaf in self.leaves.items() if leaf._version != versions[path]]
        self.aliases = {}
        for path in written:
            store = self.leaves[path].untyped_storage()._cdata
            for i, y in enumerate(self.returned):
                if y.untyped_storage()._cdata == store:
                    self.aliases[path] = i
        self.changed = next((path for path in written if path not in self.aliases), None)

    def tensor(self, which: Any) -> Any:
        return self.returned[which] if isinstance(which, int) else self.leaves[which]


def _words(looks: Sequence[_Look], which: Any, who: str) -> str:
    """Sizes and dtype as a contract writes them."""
    found = [look.tensor(which) for look in looks]
    if len({tensor.dim() for tensor in found}) > 1 or len({tensor.dtype for tensor in found}) > 1:
        raise BadOp(f"{who} has another rank or dtype in other cases")
    dims = []
    for i in range(found[0].dim()):
        text = _shapes.expression([tensor.shape[i] for tensor in found], [look.sizes for look in looks])
        if text is None:
            sizes = ", ".join(str(tensor.shape[i]) for tensor in found[:FEW])
            raise BadOp(f"{who}: size {i} ({sizes}) does not follow from {', '.join(looks[0].sizes) or 'its cases'}")
        dims.append(text)
    return f"{' '.join(dims) or '1'} {dtype_word(found[0].dtype, who)}"


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _sources(folder: pathlib.Path, spec: Mapping[str, Any]) -> dict[str, pathlib.Path]:
    """The task's files by the names under which their code imports them."""
    listed = [f for f in spec.get("files") or [] if isinstance(f, dict) and f.get("source") != SUBMISSION]
    found = {str(f["name"]): folder / str(f["source"]) for f in listed} if listed else {}
    found = found or {file.name: file for file in sorted(folder.glob("*.py")) if file.name != "submission.py"}
    found = {name: file for name, file in found.items() if name.endswith(".py") and name != "eval.py"}
    for name in ("reference.py", *found):
        if name not in found or not found[name].is_file():
            raise BadOp(f"there is no {name}" + (f" at {found[name]}" if name in found else ""))
    return {**found, "task.yml": folder / "task.yml"}


def _module(sources: Mapping[str, pathlib.Path]) -> Any:
    """The task's `reference`; its other files can be imported from now on, those of another task no longer."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="kmark-task-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name, source in sources.items():
        (place / name).symlink_to(source.resolve())
        sys.modules.pop(name.removesuffix(".py"), None)
    sys.path[:] = [str(place), *(path for path in sys.path if "/kmark-task-" not in path)]
    importlib.invalidate_caches()
    module = importlib.import_module("reference")
    for name in ("generate_input", "ref_kernel", "check_implementation"):
        if not hasattr(module, name):
            raise BadOp(f"reference.py has no {name}")
    return module
