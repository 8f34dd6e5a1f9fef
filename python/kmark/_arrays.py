"""Arrays of NumPy's and torch's: what they hold, as the host sees it. Neither library is imported for this."""

from __future__ import annotations

import sys
from typing import Any, Iterator, Optional

#: What libraries call the dtypes that the gate knows.
WORDS = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int32": "i32", "int64": "i64",
}  # fmt: skip
#: Whole numbers that others hold exactly.
_WHOLE = ("bool", "uint8", "int8", "uint16", "int16", "uint32")
_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "i32": 4, "i64": 8}


def is_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def is_array(value: Any) -> bool:
    return is_numpy(value) or is_torch(value)


def arrays_in(value: Any) -> Iterator[Any]:
    """The arrays in what a function returned, however they are packed."""
    if is_array(value):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from arrays_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from arrays_in(one)


def name_of_dtype(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]


def elements(array: Any, dtype: Optional[str], what: str) -> tuple[Any, str]:
    """An array in the host's memory that the compiled part can read, and the dtype of its elements. `dtype` says what
    whole numbers stand for, where a library has no such type."""
    if is_torch(array):
        array = array.detach().cpu().contiguous()
    else:
        import numpy

        array = numpy.asarray(array, order="C")
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
    name = name_of_dtype(array)
    if name in WORDS:
        word = WORDS[name]
        if word in ("bf16", "f8e4m3", "f8e5m2") and is_numpy(array):
            array = array.view(f"u{_BYTES[word]}")
        return array, word
    if name == f"uint{8 * _BYTES.get(dtype or '', 0)}" and dtype is not None:
        return array, dtype
    if name in _WHOLE:
        return (array.long() if is_torch(array) else array.astype("int64")), "i64"
    raise TypeError(f"{what} holds {name}; known are {', '.join([*WORDS, *_WHOLE])}")


def widened(value: Any) -> Any:
    """An argument of a reference: numbers in fp64 as a NumPy array, whatever they were; anything else as it is."""
    if is_torch(value):
        value = value.detach().cpu()
        return (value.double() if value.is_floating_point() else value).numpy()
    if is_numpy(value) and (name_of_dtype(value) in WORDS and not name_of_dtype(value).startswith("int")):
        return value.astype("float64")
    return value


def as_f64(value: Any, what: str) -> Any:
    """Anything that is a number or an array of numbers, in fp64, in the host's memory."""
    if is_torch(value):
        return value.detach().cpu().double().contiguous()
    import numpy

    try:
        return numpy.asarray(value, dtype=numpy.float64, order="C")
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must be numbers, not {type(value).__name__} ({error})") from None


def shape_of(array: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in array.shape)
