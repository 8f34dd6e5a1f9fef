"""Code of a torch problem on a device of our choice, looked at while it runs: which tensors are plain draws, and
whether it does something that has no one right answer."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..bounds._torch_rules import RANDOM
from ..own._words import BadOp
from ._problem import fill

# Factorisations whose factors may differ in sign, order or basis.
AMBIGUOUS = set(
    """_linalg_eigh linalg_eigh linalg_eig _linalg_svd linalg_svd svd linalg_qr qr geqrf orgqr
    linalg_householder_product linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_ldl_factor
    linalg_ldl_factor_ex lobpcg _lobpcg""".split()
)
# What leaves a draw a draw.
CARRIES = set("to cuda cpu contiguous clone float half bfloat16 double requires_grad_ detach".split())


class Elsewhere(TorchFunctionMode):
    """Whatever device the code names, it is on this one. `draws`: what `rand` and `randn` gave, and nothing changed."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.device, self.draws = torch.device(device), {}  # type: ignore[var-annotated]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if kwargs.get("device") is not None:
            kwargs["device"] = self.device
        if self.device.type == "meta":
            kwargs.pop("generator", None)
        if name == "cuda":
            func, args = torch.Tensor.to, (args[0], self.device)
        elif name == "to":
            args = tuple(self.device if i and _is_device(value) else value for i, value in enumerate(args))
        drawn = name in CARRIES and self.is_draw(args[0])
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and (drawn or name in ("rand", "randn", "rand_like", "randn_like")):
            self.draws[id(result)] = result
        elif name.endswith("_") and not name.endswith("__") and args and isinstance(args[0], torch.Tensor):
            self.draws.pop(id(args[0]), None)
        return result

    def is_draw(self, tensor: Any) -> bool:
        return self.draws.get(id(tensor)) is tensor


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu", "hip")


@contextlib.contextmanager
def on(device: Any, seed: Optional[int] = None) -> Iterator[Elsewhere]:
    """Runs what is inside on a device, with this seed; the caller's random state stays."""
    generator = torch.Generator
    place = "cpu" if torch.device(device).type == "meta" else device

    class Near(generator):  # type: ignore[valid-type, misc]
        def __new__(cls, *_: Any, **__: Any) -> Any:
            return generator(place)

    mode = Elsewhere(device)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed % (1 << 63))
        try:
            torch.Generator = Near  # type: ignore[misc, assignment]
            with torch.device(device), mode:
                yield mode
        finally:
            torch.Generator = generator  # type: ignore[misc]


PRODUCTS = set("mm bmm addmm baddbmm mv dot vdot addmv addbmm convolution _convolution".split())
SOFTMAX = {"_softmax", "_log_softmax", "logsumexp", "_safe_softmax"}


class Refusing(TorchDispatchMode):
    """Ends code that has no one right answer, and notes what it computes."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.seen: set[str] = set()

    def fill(self) -> str:
        return fill(bool(self.seen & PRODUCTS), bool(self.seen & SOFTMAX))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        self.seen.add(name)
        if name in RANDOM:
            raise BadOp(f"{self.what} draws random numbers ({name.strip('_')}): there is no one right answer")
        if name in AMBIGUOUS:
            raise BadOp(f"{self.what} factorises ({name.strip('_')}), and the factors are not unique")
        if func.namespace in ("c10d", "_c10d_functional"):
            raise BadOp(f"{self.what} is distributed ({name}); one device is all there is here")
        return func(*args, **(kwargs or {}))


def flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What a nest of tuples, lists and dicts holds, by names."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(part, f"{name}_{key}" if name else str(key))
    elif isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            yield from flat(part, f"{name}{i}")
    else:
        yield name, value


def rebuilt(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same nest with other leaves, which are asked for in the order of `flat`."""
    if isinstance(value, Mapping):
        return {key: rebuilt(part, leaf) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(part, leaf) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(rebuilt(part, leaf) for part in value)
    return leaf(value)


def tensors_of(value: Any, what: str) -> list[torch.Tensor]:
    """What code returned, as tensors."""
    found = []
    for _, part in flat(value, ""):
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif part is not None:
            raise BadOp(f"{what} returns a {type(part).__name__}; only tensors can be judged")
    if not found:
        raise BadOp(f"{what} returns no tensor")
    return found


def output_names(found: Sequence[Any]) -> list[str]:
    return ["y"] if len(found) == 1 else [f"y{i}" for i in range(len(found))]
