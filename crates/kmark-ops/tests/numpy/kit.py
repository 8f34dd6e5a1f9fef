"""What the functions of ops share: the registry, a case as it was written, a value and its tolerance, element types."""

import copy

import numpy as np

# How far two fp64 computations of the same thing may be apart, as a part of the size of what was added up. Sums here
# have at most some ten thousand terms and exponentials have arguments below a hundred, so that fp64 (1.1e-16) stays
# below 1e-12 in whatever order; and what the oracle is there to judge, rounding in f32, starts at 6e-8.
CLOSE = 1e-11

OPS = {}


def op(name):
    def add(function):
        OPS[name] = function
        return function

    return add


class Near:
    """A value, and the size of the terms that it was made of where these cancel; by default the largest of its row."""

    def __init__(self, value, size=None, close=CLOSE):
        self.value, self.close = np.asarray(value, dtype=np.float64), close
        if size is None:
            finite = np.where(np.isfinite(self.value), np.abs(self.value), 0.0)
            size = finite.max(axis=-1, keepdims=True) if finite.size else finite
        self.size = np.broadcast_to(size, self.value.shape)


class Case:
    def __init__(self, line, numbers):
        self.id, self.op, self.dtype = line["id"], line["op"], line["dtype"]
        self.axes, self.attrs, self.outputs = line["axes"], line["attrs"], line["outputs"]
        self.dtypes = {name: t["dtype"] for name, t in line["tensors"].items()}
        self.inputs = {name: array(t, t["at"], numbers) for name, t in line["tensors"].items()}

    def on(self, inputs):
        """The same case on other inputs."""
        other = copy.copy(self)
        other.inputs = inputs
        return other

    def __getitem__(self, names):
        """`x, w = case["x w"]`"""
        found = [self.inputs[name] for name in names.split()]
        return found if len(found) > 1 else found[0]

    def has(self, name):
        return name in self.inputs

    def flag(self, name):
        return self.attrs[name] == "yes"

    def number(self, name, default=None):
        return float(self.attrs[name]) if default is None else float(self.attrs.get(name, default))

    def count(self, name, default=None):
        return int(self.number(name, default))

    def scale(self, auto):
        return auto if self.attrs["scale"] == "auto" else self.number("scale")


def array(tensor, at, numbers):
    shape = tuple(tensor["shape"])
    return numbers[at : at + int(np.prod(shape, dtype=np.int64))].reshape(shape)


# Bits of the fraction, and the exponent of the least normal value.
FORMATS = {
    "f64": (52, -1022), "f32": (23, -126), "f16": (10, -14), "bf16": (7, -126), "f8e4m3": (3, -6), "f8e5m2": (2, -14),
}  # fmt: skip
LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}


def f8_values(dtype):
    """Every finite value that is not negative, by the definition of the format (OCP 8-bit floating point, 2023)."""
    fraction, least = FORMATS[dtype]
    codes = np.arange(128)
    exponent, rest = codes >> fraction, codes & ((1 << fraction) - 1)
    normal = np.ldexp(1.0 + rest / (1 << fraction), exponent + least - 1)
    values = np.where(exponent == 0, np.ldexp(rest / (1 << fraction), least), normal)
    return values[values <= LARGEST[dtype]]


def round_to(dtype, x):
    """To the nearest value of the type, ties to even, in one rounding."""
    if dtype == "f64":
        return x
    with np.errstate(over="ignore", under="ignore"):
        if dtype == "f32":
            return x.astype(np.float32).astype(np.float64)
        if dtype == "f16":
            return x.astype(np.float16).astype(np.float64)
    if dtype == "bf16":
        # An fp64 has 45 bits of fraction more: add half of the last one kept, a bit less if that one is even, and cut.
        bits = np.ascontiguousarray(x).view(np.uint64)
        odd = (bits >> np.uint64(45)) & np.uint64(1)
        cut = (bits + np.uint64((1 << 44) - 1) + odd) & ~np.uint64((1 << 45) - 1)
        subnormal = np.rint(x * 2.0**133) * 2.0**-133
        return np.where(np.isfinite(x), np.where(np.abs(x) < 2.0**-126, subnormal, cut.view(np.float64)), x)
    values = f8_values(dtype)
    above = np.clip(np.searchsorted(values, np.abs(x)), 1, len(values) - 1)
    low, high = values[above - 1], values[above]
    middle = (low + high) / 2
    # Codes count up, so that the even one of two neighbours is the one with the even code.
    up = (np.abs(x) > middle) | ((np.abs(x) == middle) & (above % 2 == 0))
    return np.copysign(np.where(up, high, low), x)
