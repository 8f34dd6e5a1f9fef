"""RMSNorm in NumPy, right in five ways and wrong in all others."""

import ctypes
import time

import kmark
import numpy as np


def norm(x, w, eps):
    r = 1 / np.sqrt((x.astype(np.float32) ** 2).mean(axis=1, keepdims=True) + eps)
    return (x * r * w).astype(x.dtype)


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def writes(x, w, y, eps):
    y[...] = norm(x, w, eps)


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def returns(x, w, eps):
    return norm(x, w, eps)


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def binds(case, t):
    eps = case.number("eps")
    return lambda: {"y": norm(t.x, t.w, eps)}


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="dlpack")
def takes_dlpack(x, w, eps):
    return norm(np.from_dlpack(x), np.from_dlpack(w), eps)


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def keeps_what_it_allocates_once(case, t):
    eps, kept = case.number("eps"), []

    def launch():
        if not kept:
            kept.append(np.ones(96 << 20, dtype=np.uint8))
        return {"y": norm(t.x, t.w, eps)}

    return launch


def raises(x):
    raise ValueError("no such thing")


def segfaults(x):
    ctypes.string_at(0)


def hangs(x):
    time.sleep(3600)  # as whoever waits for a GPU; a loop would take a core from other tests


KEPT = []


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def leaks(x, w, eps):
    KEPT.append(np.ones(8 << 20, dtype=np.uint8))
    return norm(x, w, eps)


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def changes_its_input(x, w, eps):
    y = norm(x, w, eps)
    x[0, 0] = 3
    return y


FIRST = {}


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def returns_a_cached_output(x, w, eps):
    if x.shape not in FIRST:
        FIRST[x.shape] = norm(x, w, eps)
    return FIRST[x.shape]


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def returns_another_dtype(x, w, eps):
    return norm(x, w, eps).astype(np.float64)


@kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")
def returns_another_shape(x, w, eps):
    return norm(x, w, eps)[:-1]
