"""torch tensors whose operations round at random: a dispatch mode sees every operation below autograd.

A reference runs in fp64 throughout: casts to narrower floats become casts to float64, except those to fp8, which are
part of a contract."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Optional, Sequence

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from . import _numpy
from . import _torch_rules as rules
from ._errors import BadReference, raised
from ._model import FUNCTION, Model
from ._outputs import Output, collect
from ._rounding import Rounding
from ._truth import Ran

NARROW = {torch.float32, torch.float16, torch.bfloat16}
SIXTEEN = {"bf16": torch.bfloat16, "f16": torch.float16}

_current: Optional[Mode] = None


class Run(Rounding):
    xp = torch

    def __init__(self, model: Model, seed: list[int], device: str) -> None:
        super().__init__(model)
        # What lies in the host's memory is NumPy's as well, which rounds in blocks.
        self.host = _numpy.Run(model, seed) if device == "cpu" else None
        self.random = torch.Generator(device)
        self.random.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))

    def spread(self, values: Any, amplitude: Any, where: Any = True) -> None:
        if not self._on_host("spread", values, amplitude, where):
            super().spread(values, amplitude, where)

    def each(self, values: Any, units: Any, where: Any = True, least: float = 0.0) -> None:
        if not self._on_host("each", values, units, where, least):
            super().each(values, units, where, least)

    def round_to(self, values: Any, word: str, where: Any = True) -> None:
        if not self._on_host("round_to", values, word, where):
            super().round_to(values, word, where)

    def _on_host(self, method: str, *args: Any) -> bool:
        if self.host is None or not self.is_float(args[0]):
            return False
        with np.errstate(all="ignore"):
            getattr(self.host, method)(*(a.detach().numpy() if isinstance(a, torch.Tensor) else a for a in args))
        return True

    def draw(self, like: Any) -> Any:
        noise = torch.empty_like(like)
        parts = torch.view_as_real(noise) if noise.is_complex() else noise
        parts.uniform_(-1.0, 1.0, generator=self.random)
        return noise

    def sign(self) -> float:
        coin = torch.rand((), generator=self.random, device=self.random.device)
        return 1.0 if coin.item() < 0.5 else -1.0

    def is_float(self, values: Any) -> bool:
        return rules.is_float(values)

    def nonzero(self, values: Any) -> Any:
        return (values != 0).to(torch.float64)

    def fits(self, values: Any, word: str) -> bool:
        return bool((values.to(SIXTEEN[word]).to(values.dtype) == values).all())

    def copy(self, values: Any) -> Any:
        return values.clone()


class Mode(TorchDispatchMode):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run, self.paused = run, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        name = func._schema.name.split("::")[1]
        args, kwargs = _widened(args), {key: _widened(value) for key, value in kwargs.items()}
        if name in rules.RANDOM:
            raise BadReference(f"the reference uses random numbers ({name}); make them an input of the op")
        if name == "view" and func._overloadname == "dtype":
            raise BadReference("the reference reads the bits of a tensor as another type, which fp64 does not have")
        if name == "_local_scalar_dense" and rules.is_float(args[0]):
            self.run.lost.add("item()")
        if name in rules.EXACT or func.is_view:
            return func(*args, **kwargs)
        plain = name.rstrip("_")
        if plain in rules.RULES:
            return rules.RULES[plain](self.run, func, args, kwargs)
        if plain in rules.UNITS:
            return rules.elementwise(self.run, func, plain, args, kwargs)
        parts = rules.parts(func)
        if parts is not None:
            with self:
                return parts(*args, **kwargs)
        return self._opaque(func, name, args, kwargs)

    def _opaque(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """An operation without a rule: its inputs are perturbed, and its results."""
        run = self.run
        if not func._schema.is_mutable:

            def off(value: Any) -> Any:
                if isinstance(value, (tuple, list)):
                    return type(value)(map(off, value))
                if rules.is_float(value):
                    value = value.clone()
                    run.perturb(value)
                return value

            args = tuple(map(off, args))
        result = func(*args, **kwargs)
        for part in result if isinstance(result, (tuple, list)) else (result,):
            if rules.is_float(part):
                run.unknown.add(f"torch.ops.aten.{name}")
                run.each(part, FUNCTION)
        return result

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        global _current
        before, _current = _current, self
        default = torch.get_default_dtype()
        leaving = {name: getattr(torch.Tensor, name) for name in ("numpy", "tolist", "__array__")}
        try:
            for name, method in leaving.items():
                setattr(torch.Tensor, name, self._noting(name, method))
            torch.set_default_dtype(torch.float64)
            with sdpa_kernel(SDPBackend.MATH), self:
                yield
        finally:
            _current = before
            torch.set_default_dtype(default)
            for name, method in leaving.items():
                setattr(torch.Tensor, name, method)

    def _noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if rules.is_float(tensor) and not self.paused:
                self.run.lost.add(f"{name.strip('_')}()")
            return method(tensor, *args, **kwargs)

        return noted


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value in NARROW else value
    return tuple(map(_widened, value)) if type(value) is tuple else value


@contextlib.contextmanager
def without_rounding() -> Iterator[None]:
    """What is computed inside is no operation of the reference's."""
    mode = _current
    if mode is None:
        yield
        return
    before, mode.paused = mode.paused, True
    try:
        yield
    finally:
        mode.paused = before


class Torch:
    words = "torch operations"
    wide = False

    def __init__(
        self, reference: Callable[..., Any], arguments: dict[str, Any], outputs: Sequence[Output], device: str
    ) -> None:
        self.reference, self.outputs, self.device = reference, outputs, device
        self.arguments = {name: self._tensor(value) for name, value in arguments.items()}

    def _tensor(self, value: Any) -> Any:
        return torch.from_numpy(np.array(value)).to(self.device) if isinstance(value, np.ndarray) else value

    def run(self, model: Model, seed: list[int], wide: bool, perturb: bool) -> Ran:
        run = Run(model, seed, self.device)
        given = {n: value.clone() if isinstance(value, torch.Tensor) else value for n, value in self.arguments.items()}
        for value in given.values() if perturb else ():
            if rules.is_float(value):
                run.perturb(value)
        try:
            with Mode(run).active():
                returned = self.reference(**given)
        except Exception as error:
            raise raised(error) from error

        def taken(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                run.lost.add("a value that is no tensor")
                return value
            eight_bits = value.is_floating_point() and value.dtype.itemsize == 1
            return (value.detach().to(torch.float64) if eight_bits else value.detach()).cpu().numpy()

        found = collect(returned, given, self.outputs, taken)
        if model.exact:
            self._unchanged(given)
        return Ran(found, frozenset(run.unknown), frozenset(run.lost))

    def _unchanged(self, after: dict[str, Any]) -> None:
        may_change = {o.name for o in self.outputs if o.in_place}
        for name, value in self.arguments.items():
            if isinstance(value, torch.Tensor) and name not in may_change:
                same = (value == after[name].detach()) | (value != value)
                if not bool(same.all()):
                    raise BadReference(f"the reference changes its input {name}, which is no output in place")

    def random_state(self) -> Any:
        return torch.get_rng_state().tolist(), repr(np.random.get_state())
