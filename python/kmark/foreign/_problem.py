"""An op that was read from a problem of another collection."""

from __future__ import annotations

import hashlib
import inspect
import pathlib
import re
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from .. import registry
from ..own._op import Op
from ..own._words import BadOp
from ..registry import Adapter, Case, Launch

# Names that kernels and expressions use for something else, as `crates/kmark-core/src/own.rs` has them.
TAKEN = {"workspace", "seed", "case", "t", "memory"}
DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int32": "i32", "int64": "i64",
}  # fmt: skip


class Verdict(NamedTuple):
    """What the check of a collection says: whether it accepts, else why not, and what it measures by."""

    ok: bool
    why: str = ""
    figures: Mapping[str, float] = {}


class Problem(Op):
    """`files` decide what is true; `at` is how the engine is told where it lies."""

    collection = ""

    def __init__(
        self,
        call: Callable[[dict[str, Any]], Any],
        tensors: Sequence[str],
        outputs: Sequence[str],
        parameters: Mapping[str, Any],
        *,
        files: Sequence[pathlib.Path],
        at: Optional[pathlib.Path] = None,
        also: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.files, self.at, self.also = files, at, list(also)
        self._modules: dict[str, Any] = {}
        reference = _function(call, [t.partition(":")[0] for t in tensors], parameters, options.pop("about"))
        super().__init__(reference, f"{', '.join(tensors)} -> {', '.join(outputs)}", **options)

    def describe(self, file: Optional[str] = None) -> dict[str, Any]:
        return {**super().describe(str(self.at) if self.at else file), "also": self.also}

    def hash(self) -> str:
        texts = b"\0".join(file.name.encode() + b"\0" + file.read_bytes() for file in self.files)
        return hashlib.blake2b(texts, digest_size=8).hexdigest()

    def dtype_of(self, tensor: str, case: Case) -> str:
        return next(t.dtype for t in self.tensors if t.name == tensor) or case.dtype

    def typed(self, arrays: Mapping[str, np.ndarray], case: Case, device: str) -> dict[str, Any]:
        """Values in fp64 as tensors of the dtypes that they have outside the oracle."""
        if self.library == "numpy":
            known = {"f64": "f8", "f32": "f4", "f16": "f2", "i32": "i4", "i64": "i8"}
            return {name: x.astype(known.get(self.dtype_of(name, case), "f4")) for name, x in arrays.items()}
        import torch

        def tensor(name: str, x: np.ndarray) -> Any:
            return torch.from_numpy(np.array(x)).to(device, registry.torch_dtype(self.dtype_of(name, case)))

        return {name: tensor(name, x) for name, x in arrays.items()}

    def theirs(
        self, case: Case, arguments: Mapping[str, Any], outputs: Mapping[str, np.ndarray], device: str
    ) -> Verdict:
        """The verdict of the collection's own check on the same values. Arrays are in fp64."""
        raise NotImplementedError

    def candidate(self, path: str, name: str) -> Adapter:
        """Code that computes the op as an impl."""
        if path not in self._modules:
            self._modules[path] = registry.load_file(path)
        chosen = getattr(self._modules[path], name, None)
        if chosen is None:
            raise AttributeError(f"{path} has no {name}")
        made = registry.adapter_of(chosen, self.name, name, self.library)
        made.bind = self.binding(chosen) or made.bind
        return made

    def binding(self, chosen: Any) -> Optional[Callable[[Case, Any], Launch]]:
        """How what the collection calls a candidate is bound; none for a function that is written for us."""
        return None


def _function(
    call: Callable[[dict[str, Any]], Any], tensors: Iterable[str], parameters: Mapping[str, Any], about: str
) -> Callable[..., Any]:
    """`call` as a function with these parameters; those beside tensors have a default, or none if they are axes."""

    def reference(**given: Any) -> Any:
        return call(given)

    plain = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in tensors]
    plain += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in parameters.items()]
    reference.__signature__ = inspect.Signature(plain)  # type: ignore[attr-defined]
    reference.__doc__ = about
    return reference


# Of a parameter without a default, in `parameters`.
AXIS = inspect.Parameter.empty


def op_name(name: str) -> str:
    """As names of ops are written."""
    word = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")
    return word if word[:1].isalpha() else f"p-{word}"


def named(name: str, used: set[str]) -> str:
    """A name that nothing else has."""
    word = re.sub(r"\W", "_", name)
    word = word if re.match(r"[A-Za-z_]", word) else f"_{word}"
    while word in used or word in TAKEN:
        word += "_"
    used.add(word)
    return word


def dtype_word(name: str, who: str) -> str:
    plain = str(name).rpartition(".")[2]
    if plain not in DTYPES:
        raise BadOp(f"{who} is {plain}, which is none of the dtypes here ({', '.join(DTYPES)})")
    return DTYPES[plain]


def fill(products: bool, softmax: bool) -> str:
    """Which values expose wrong kernels, by what a reference does: sums of products overflow narrow types where rows
    are shifted; a softmax needs logits so large that exp overflows."""
    return " rows(0)" if products else " logits" if softmax else ""


def size(dim: str, sizes: Mapping[str, int]) -> int:
    """The value of a size as the contract writes it."""
    return int(eval(dim.replace("/", "//"), {"__builtins__": {}}, dict(sizes)))


def allowed(error: Any, limit: Any, what: str) -> Verdict:
    """Whether no error exceeds its limit, of NumPy arrays; the first that does is named."""
    bad = ~(error <= limit)
    if not bad.any():
        return Verdict(True)
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return Verdict(False, f"{int(bad.sum())} of {bad.size} elements of {what} are off, the first at {list(at)}")
