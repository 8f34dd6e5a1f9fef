"""What torch's operations are: which move values, which add up, which multiply matrices, what fused ones consist of.

`run` draws the roundings; `func` is called on tensors as the dispatcher hands them over."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

import torch

from ._model import EXPONENTIALS, FUNCTION, LOGISTIC, ROOT, SUM

RANDOM = set(
    """rand randn randint randperm rand_like randn_like randint_like bernoulli bernoulli_ uniform uniform_ normal
    normal_ random random_ exponential_ geometric_ cauchy_ log_normal_ multinomial poisson binomial native_dropout
    rrelu_with_noise rrelu_with_noise_""".split()
)
EXACT = set(
    """_unsafe_view clone copy copy_ _to_copy contiguous lift_fresh lift_fresh_copy cat stack index gather index_select
    embedding where masked_fill masked_fill_ masked_scatter max min amax amin aminmax maximum minimum fmax fmin relu
    relu_ neg neg_ abs abs_ sign sgn floor ceil round trunc frac clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_
    clip hardtanh hardtanh_ threshold threshold_ zeros ones full empty empty_like zeros_like ones_like full_like
    new_zeros new_empty new_full new_ones new_empty_strided empty_strided empty_permuted arange linspace eye
    scalar_tensor fill fill_ zero_ eq ne lt le gt ge isnan isinf isfinite signbit logical_and logical_or logical_not
    logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not any all nonzero argmax argmin argsort topk sort kthvalue
    median mode searchsorted bucketize bincount unique_dim _unique2 constant_pad_nd reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d tril triu tril_indices triu_indices
    diag_embed flip roll repeat repeat_interleave scatter scatter_ slice_scatter select_scatter diagonal_scatter
    as_strided_scatter max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
    pixel_shuffle pixel_unshuffle channel_shuffle im2col resize_ set_ masked_select copysign ldexp cummax cummin
    _local_scalar_dense _reshape_alias split_with_sizes_copy expand_copy view_copy unfold_copy one_hot complex
    convert_element_type collapse_view broadcast_in_dim""".split()
)
UNITS = dict.fromkeys("add sub rsub mul square remainder fmod floor_divide addcmul".split(), SUM)
UNITS |= dict.fromkeys("div sqrt rsqrt reciprocal hypot true_divide".split(), ROOT)
UNITS |= dict.fromkeys(
    """exp exp2 expm1 log log2 log10 log1p pow tanh sigmoid erf erfc erfinv sin cos tan asin acos atan atan2 sinh cosh
    asinh acosh atanh lgamma digamma special_ndtr special_erfcx special_i0 special_i0e polar angle
    logaddexp logaddexp2 xlogy""".split(),
    FUNCTION,
)


def is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float64, torch.complex128)


def elementwise(run: Any, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    if run.model.exact:
        return func(*args, **kwargs)
    argument, terms, added = args[0], getattr(args[0], "kmark_terms", None), None
    if name in ("add", "sub", "rsub"):
        added = sum(value.abs() if isinstance(value, torch.Tensor) else abs(value) for value in args[:2])
    elif func._schema.is_mutable and (name in EXPONENTIALS or name in LOGISTIC):
        argument = argument.clone()
    result = func(*args, **kwargs)
    if is_float(result):
        run.function(name, result, UNITS[name], argument, terms)
        if added is not None:
            result.kmark_terms = added.detach() * abs(kwargs.get("alpha", 1))
        elif hasattr(result, "kmark_terms"):
            del result.kmark_terms  # changed in place
    return result


# --- sums ------------------------------------------------------------------------------------------------------------


def _sum(run: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x, value = args[0], func(*args, **kwargs)
    if run.model.exact or not is_float(value):
        return value
    squares = func(x.abs() ** 2, *args[1:], **kwargs)
    terms = func(run.nonzero(x), *args[1:], **kwargs)
    if func._schema.name.endswith("mean"):
        n = x.numel() / max(1, value.numel())
        squares, terms = squares / n, terms * n
    run.walk(value, squares, (terms - 1).clamp_min(0))
    return value


def _scan(run: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Running sums; the factor of a running product is off by as many roundings."""
    x = args[0].clone()
    value = func(*args, **kwargs)
    if run.model.exact or not is_float(value):
        return value
    add = torch.cumsum
    terms = (add(run.nonzero(x), args[1]) - 1).clamp_min(0)
    run.walk(value, add(x.abs() ** 2, args[1]) if "cumsum" in func._schema.name else 0.0 * value.abs(), terms)
    return value


def _prod(run: Any, func: Any, args: Any, kwargs: Any) -> Any:
    value = func(*args, **kwargs)
    if is_float(value):
        run.walk(value, 0.0 * value.abs(), float(args[0].numel() / max(1, value.numel())))
    return value


def _scatter(run: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Sums of as many terms as meet in one place: linear in what is there and what is added."""
    schema = [argument.name for argument in func._schema.arguments]
    given = dict(zip(schema, args)) | kwargs
    adds = given.get("accumulate", True) and given.get("reduce", "sum") in ("sum", "add", "mean")
    name = next((n for n in ("src", "source", "values", "value") if n in given), None)
    before, source = args[0].clone(), given.get(name) if name else None
    result = func(*args, **kwargs)
    if run.model.exact or not is_float(result) or not adds or not isinstance(source, torch.Tensor):
        return result

    def again(there: Any, added: Any) -> Any:
        again = dict(given) | {schema[0]: there, name: added}
        return func(*[again[n] for n in schema[: len(args)]], **{n: again[n] for n in kwargs})

    squares, terms = again(before.abs() ** 2, source.abs() ** 2), again(run.nonzero(before), run.nonzero(source))
    run.walk(result, squares, (terms - 1).clamp_min(0))
    return result


def _pool(run: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Means of few: off by units of the mean of magnitudes."""
    value = func(*args, **kwargs)
    if not run.model.exact and is_float(value):
        run.spread(value, FUNCTION * run.model.unit * func(args[0].abs(), *args[1:], **kwargs))
        run.store(value)
    return value


# --- products --------------------------------------------------------------------------------------------------------


def _matrix(run: Any, func: Any, args: Any, kwargs: Any) -> Any:
    matrix = max(value.dim() for value in args[:2]) > 1
    return run.product(lambda a, b: func(a, b, **kwargs), args[:2], args[0].shape[-1], matrix)


def _convolution(run: Any, func: Any, args: Any, kwargs: Any) -> Any:
    x, w, bias, *rest = args
    transposed, groups = rest[3], rest[-1]
    terms = math.prod(w.shape[1:]) if not transposed else w.shape[0] // groups * math.prod(w.shape[2:])
    value = run.product(lambda a, b: func(a, b, None, *rest), [x, w], terms)
    if bias is not None:
        value += bias.view(1, -1, *[1] * (value.dim() - 2)) if value.dim() > 2 else bias
        run.each(value, SUM)
    return value


RULES: dict[str, Callable[..., Any]] = {
    "sum": _sum, "mean": _sum, "nansum": _sum, "cumsum": _scan, "cumprod": _scan, "prod": _prod,
    "scatter_add": _scatter, "index_add": _scatter, "index_put": _scatter, "_index_put_impl": _scatter,
    "scatter_reduce": _scatter, "mm": _matrix, "bmm": _matrix, "dot": _matrix, "vdot": _matrix, "mv": _matrix,
    "convolution": _convolution, "avg_pool1d": _pool, "avg_pool2d": _pool, "avg_pool3d": _pool,
    "_adaptive_avg_pool2d": _pool, "_adaptive_avg_pool3d": _pool,
}  # fmt: skip


# --- what fused operations consist of --------------------------------------------------------------------------------


def _layer_norm(x: Any, shape: Any, w: Any, b: Any, eps: float) -> Any:
    axes = tuple(range(-len(shape), 0))
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)
    y = centred * rstd
    y = y if w is None else y * w
    return y if b is None else y + b, mean, rstd


def _var(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    axes = tuple(range(x.dim())) if not dim else tuple(dim)
    n = math.prod(x.shape[i] for i in axes)
    centred = x - x.mean(axes, keepdim=True)
    return (centred * centred).sum(axes, keepdim=keepdim) / (n - (1 if correction is None else correction))


def _var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    axes = tuple(range(x.dim())) if not dim else tuple(dim)
    return _var(x, dim, correction=correction, keepdim=keepdim), x.mean(axes, keepdim=keepdim)


FUSED = """_softmax _log_softmax gelu addmm addmv addbmm addr native_group_norm native_batch_norm
native_layer_norm_backward _native_batch_norm_legit _native_batch_norm_legit_no_training
_native_batch_norm_legit_functional _batch_norm_with_update cudnn_batch_norm
logsumexp dist leaky_relu elu softplus log_sigmoid_forward
upsample_bilinear2d upsample_nearest2d upsample_bicubic2d _fused_rms_norm"""

_table: dict[Any, Callable[..., Any]] = {}


def parts(func: Any) -> Optional[Callable[..., Any]]:
    """The operation in smaller ones, if torch has it so."""
    if not _table:
        from torch._decomp import core_aten_decompositions, get_decompositions

        aten = torch.ops.aten
        _table.update(core_aten_decompositions())
        _table.update(get_decompositions([getattr(aten, n) for n in FUSED.split() if hasattr(aten, n)]))
        _table[aten.native_layer_norm.default] = _layer_norm
        _table[aten.var.correction] = _var
        _table[aten.std.correction] = lambda *args, **kwargs: _var(*args, **kwargs).sqrt()
        _table[aten.var_mean.correction] = _var_mean
    return _table.get(func)
