"""What every cheat starts from: RMSNorm in NumPy, and how a function says that it takes NumPy's arrays."""

import kmark
import numpy as np

impl = kmark.impl(op="rmsnorm", devices=("cpu",), arrays="numpy")


def norm(x, w, eps):
    r = 1 / np.sqrt((x.astype(np.float32) ** 2).mean(axis=1, keepdims=True) + eps)
    return (x * r * w).astype(x.dtype)
