"""What NumPy's operations are: which move values, which add up, which multiply matrices, which nobody here knows.

Works on plain arrays; `run` draws the roundings."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from ._model import FUNCTION, ROOT, SUM

# What these names mean while no reference runs.
array, asarray, empty = np.array, np.asarray, np.empty

EXACT_UFUNCS = set(
    """negative positive absolute fabs sign maximum minimum fmax fmin clip floor ceil rint trunc copysign conjugate
    signbit ldexp frexp modf heaviside spacing nextafter""".split()
)
UNITS = dict.fromkeys("add subtract multiply square remainder fmod floor_divide divmod".split(), SUM) | dict.fromkeys(
    "divide true_divide sqrt cbrt reciprocal hypot".split(), ROOT
)

# Functions that put values elsewhere, or choose among them.
MOVES = set(
    """where concatenate stack vstack hstack dstack column_stack block split array_split hsplit vsplit dsplit unstack
    transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis reshape ravel squeeze expand_dims atleast_1d
    atleast_2d atleast_3d broadcast_to broadcast_arrays repeat tile flip fliplr flipud rot90 roll pad take
    take_along_axis put put_along_axis putmask place copyto copy choose select compress extract delete insert append
    resize trim_zeros diag diagonal diagflat tril triu fill_diagonal sort partition argsort argpartition lexsort argmax
    argmin nanargmax nanargmin argwhere nonzero flatnonzero searchsorted digitize bincount unique isin max min amax amin
    nanmax nanmin zeros_like ones_like empty_like full_like shape size ndim real imag meshgrid ix_ tril_indices_from
    triu_indices_from result_type can_cast iscomplexobj isrealobj array_equal allclose isclose count_nonzero any all
    nan_to_num ascontiguousarray require sliding_window_view astype shares_memory may_share_memory einsum_path
    array_repr array_str array2string savetxt save""".split()
)
# Functions whose Python code comes back to ufuncs and to functions named here.
MADE_OF_UFUNCS = set(
    """sum nansum prod nanprod cumsum cumprod cumulative_sum cumulative_prod mean nanmean average var nanvar std nanstd
    median percentile quantile ptp diff ediff1d gradient trapezoid clip round around fix angle cross trace
    apply_along_axis apply_over_axes piecewise isposinf isneginf""".split()
)


def plain(value: Any) -> Any:
    """The same memory as an ordinary array."""
    return value.view(np.ndarray) if isinstance(value, np.ndarray) else value


def plainly(value: Any) -> Any:
    """The same, through tuples, lists and dicts."""
    if isinstance(value, dict):
        return {name: plainly(part) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(plainly, value))
    return plain(value)


def is_float(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fc"


def compute(
    run: Any, ufunc: Any, method: str, given: list[Any], terms: list[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Optional[Any]]:
    """Results of a ufunc, rounded at random; of a sum of two also the size of what was added, which `terms` is for the
    inputs."""
    name = ufunc.__name__
    if name in ("matmul", "vecdot", "matvec", "vecmat"):
        matrix = name != "vecdot" and max(map(np.ndim, given)) > 1
        return (run.product(lambda a, b: ufunc(a, b, **kwargs), given, inner_length(name, given), matrix),), None
    found = getattr(ufunc, method)(*given, **kwargs)
    found = found if isinstance(found, tuple) else (found,)
    results = tuple(r if method == "__call__" and isinstance(r, np.ndarray) else array(r) for r in found)
    if run.model.exact or name in EXACT_UFUNCS or not any(map(is_float, results)):
        return results, None
    value = results[0]
    if method in ("reduce", "accumulate", "reduceat"):
        along(run, ufunc, method, given, kwargs, value)
        return results, None
    for result in results:
        run.function(name, result, UNITS.get(name, FUNCTION), given[0], terms[0], kwargs.get("where", True))
    added = name in ("add", "subtract") and method == "__call__"
    return results, np.abs(given[0]) + np.abs(given[1]) if added else None


def along(run: Any, ufunc: Any, method: str, given: list[Any], kwargs: dict[str, Any], value: np.ndarray) -> None:
    """Rounds what a ufunc made of the elements of an axis."""
    x, rest = asarray(given[0]), given[1:]
    kwargs = {name: v for name, v in kwargs.items() if name not in ("initial", "dtype")}

    def sums(of: np.ndarray) -> Any:
        return getattr(np.add, method)(of, *rest, **kwargs)

    more = np.maximum(sums((x != 0).astype(np.float64)) - 1, 0)  # a sum of one is exact; zeros cost nothing
    if ufunc.__name__ in ("add", "subtract"):
        run.walk(value, sums(np.abs(x) ** 2), more)
    elif ufunc.__name__ == "multiply":
        run.walk(value, 0.0, more)
    else:
        run.each(value, FUNCTION)


def scatter(run: Any, ufunc: Any, given: list[Any]) -> None:
    """`np.add.at(target, indices, values)`: sums of as many terms as meet in one place."""
    target, indices = given[0], given[1]
    before = target.copy()
    ufunc.at(*given)
    if run.model.exact or not is_float(target) or ufunc.__name__ in EXACT_UFUNCS:
        return
    squares, count = np.abs(before) ** 2, (before != 0).astype(np.float64)
    if ufunc.__name__ in ("add", "subtract") and len(given) > 2:
        np.add.at(squares, indices, np.abs(given[2]) ** 2)
        np.add.at(count, indices, asarray(given[2] != 0).astype(np.float64))
        run.walk(target, squares, np.maximum(count - 1, 0))
    else:
        touched = before * 0
        np.add.at(touched, indices, 1)
        run.walk(target, 0.0, touched)


# --- products --------------------------------------------------------------------------------------------------------


def inner_length(name: str, given: list[Any]) -> int:
    return np.shape(given[0])[-2 if name == "vecmat" and np.ndim(given[0]) > 1 else -1]


def _dot(run: Any, a: Any, b: Any, out: Any = None) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        value = array(np.multiply(a, b))
        run.each(value, SUM)
    else:
        value = run.product(np.dot, [a, b], np.shape(a)[-1], max(np.ndim(a), np.ndim(b)) > 1)
    if out is not None:
        out[...] = value
    return value


def _vdot(run: Any, a: Any, b: Any) -> Any:
    return run.product(np.vdot, [a, b], np.size(a), matrix=False)


def _inner(run: Any, a: Any, b: Any) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        return _dot(run, a, b)
    return run.product(np.inner, [a, b], np.shape(a)[-1], max(np.ndim(a), np.ndim(b)) > 1)


def _outer(run: Any, a: Any, b: Any, out: Any = None) -> Any:
    value = array(np.outer(a, b))
    run.each(value, SUM)
    return value


def _kron(run: Any, a: Any, b: Any) -> Any:
    value = array(np.kron(a, b))
    run.each(value, SUM)
    return value


def _tensordot(run: Any, a: Any, b: Any, axes: Any = 2) -> Any:
    a = asarray(a)
    over = range(a.ndim - axes, a.ndim) if isinstance(axes, int) else np.atleast_1d(axes[0])
    terms = int(np.prod([a.shape[i] for i in over]))
    return run.product(lambda x, y: np.tensordot(x, y, axes), [a, b], terms)


def _einsum(run: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(args[0], str):
        return opaque(run, np.einsum, args, kwargs)
    text, operands = args[0].replace(" ", ""), list(args[1:])
    inputs, _, kept = text.partition("->")
    if "->" not in text:
        letters = [c for c in inputs if c.isalpha()]
        kept = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    sizes = {}
    for subscripts, operand in zip(inputs.split(","), operands):
        front, _, back = subscripts.partition("...")
        sizes |= dict(zip(front, np.shape(operand))) | dict(zip(reversed(back), reversed(np.shape(operand))))
    terms = int(np.prod([n for c, n in sizes.items() if c not in kept], dtype=np.int64))
    if len(operands) == 1 and terms == 1:
        return array(np.einsum(text, *operands))
    # A matrix unit needs rows or columns that only one of two operands has; else it is a sum along an axis.
    apart = [set(subscripts) & set(kept) for subscripts in inputs.split(",")]
    matrix = len(apart) == 2 and apart[0] != apart[1]
    return run.product(lambda *o: np.einsum(text, *o), operands, max(1, terms), matrix)


def _convolve(run: Any, a: Any, v: Any, mode: str = "full") -> Any:
    return run.product(lambda x, y: np.convolve(x, y, mode), [a, v], min(np.size(a), np.size(v)))


def _correlate(run: Any, a: Any, v: Any, mode: str = "valid") -> Any:
    return run.product(lambda x, y: np.correlate(x, y, mode), [a, v], min(np.size(a), np.size(v)))


def _norm(run: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = asarray(x)
    euclidean = ord is None or (ord == 2 and (x.ndim == 1 or np.ndim(axis) == 0 and axis is not None))
    if not euclidean:
        return opaque(run, np.linalg.norm, (x, ord, axis, keepdims), {})
    squares = array(np.add.reduce(np.abs(x) ** 2, axis=axis, keepdims=keepdims))
    fourth = np.add.reduce(np.abs(x) ** 4, axis=axis, keepdims=keepdims)
    run.walk(squares, fourth, np.add.reduce(x != 0, axis=axis, keepdims=keepdims, dtype=np.float64))
    value = array(np.sqrt(np.maximum(squares, 0)))
    run.each(value, ROOT)
    return value


PRODUCTS: dict[Any, Callable[..., Any]] = {
    np.dot: _dot, np.vdot: _vdot, np.inner: _inner, np.outer: _outer, np.kron: _kron, np.tensordot: _tensordot,
    np.einsum: _einsum, np.convolve: _convolve, np.correlate: _correlate, np.linalg.norm: _norm,
}  # fmt: skip


# --- the rest --------------------------------------------------------------------------------------------------------


def opaque(run: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A function that nobody here knows: its inputs are off by as much as the longest axis could add up to."""
    module = (getattr(func, "__module__", None) or "numpy").split("._")[0]
    run.unknown.add(f"{module}.{func.__name__}")

    def off(value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(off, value))
        if not isinstance(value, np.ndarray):
            return value
        value = array(plain(value))
        run.perturb(value)
        return value

    result = func(*map(off, args), **{name: off(value) for name, value in kwargs.items()})
    for part in result if isinstance(result, tuple) else (result,):
        if isinstance(part, np.ndarray):
            run.each(part, FUNCTION)
    return result
