"""Every op of Kernelmark in NumPy and SciPy, from its contract; compares with what the Rust oracles expect.

Called with a folder that holds manifest.jsonl and numbers.f64. Prints one line for each thing that is wrong, and exits
with 1 if there is any. The ops stand in the modules beside this one. A function gets a case and returns its outputs by
name: an array, or `Near(array, size)`. It may also return inputs that the op derives from others (a saved lse): those
are compared at their own dtype's precision. NaN marks an element about which the contract says nothing; both sides must
agree on which those are.
"""

import json
import sys
from pathlib import Path

import attention  # noqa: F401  the modules enter their ops into OPS
import numpy as np
import products  # noqa: F401
import rows  # noqa: F401
from kit import FORMATS, OPS, Case, Near, array, round_to


def differences(what, got, near, dtype=None):
    """One line, on the first place that is wrong, if `got` is not `near`, or not near after rounding to `dtype`."""
    if got.shape != near.value.shape:
        return [f"{what}: shape {got.shape}, NumPy has {near.value.shape}"]
    with np.errstate(invalid="ignore"):
        allowed = near.close * near.size
        if dtype:
            # Half a spacing; the smallest numbers lie as far apart as the smallest normal ones.
            fraction, least = FORMATS[dtype]
            allowed = allowed + 2.0 ** -(fraction + 1) * (1 + 1e-6) * np.maximum(np.abs(near.value), 2.0**least)
        right = (got == near.value) | (np.isnan(got) & np.isnan(near.value)) | (np.abs(got - near.value) <= allowed)
    if right.all():
        return []
    at = tuple(int(i) for i in np.argwhere(~right)[0])
    count = f"{np.count_nonzero(~right)} of {right.size} elements"
    return [f"{what}{list(at)}: {float(got[at])}, NumPy has {float(near.value[at])} +- {allowed[at]:.1e} ({count})"]


def judge(c, numbers):
    found = OPS[c.op](c)
    found = {name: value if isinstance(value, Near) else Near(value) for name, value in found.items()}
    wrong = []
    for name, tensor in c.outputs.items():
        if name not in found:
            wrong.append(f"{c.id}: {name}: no function computes it")
            continue
        expected = array(tensor, tensor["at"], numbers)
        rounded = array(tensor, tensor["rounded"], numbers)
        wrong += differences(f"{c.id}: {name}", expected, found[name])
        # What the gate takes for the best answer: the expectation, rounded once.
        exact = Near(round_to(tensor["dtype"], expected), 0.0)
        wrong += differences(f"{c.id}: {name} rounded to {tensor['dtype']}", rounded, exact)
    for name in found.keys() & c.inputs.keys() - c.outputs.keys():
        wrong += differences(f"{c.id}: input {name}", c.inputs[name], found[name], c.dtypes[name])
    return wrong


def main(folder):
    numbers = np.fromfile(folder / "numbers.f64", dtype="<f8")
    lines = (folder / "manifest.jsonl").read_text().splitlines()
    cases = [Case(json.loads(line), numbers) for line in lines]
    seen = {c.op for c in cases}
    wrong = [f"{name}: no function for this op" for name in sorted(seen - OPS.keys())]
    wrong += [f"{name}: no case was written for it" for name in sorted(OPS.keys() - seen)]
    with np.errstate(divide="ignore"):
        wrong += [line for c in cases if c.op in OPS for line in judge(c, numbers)]
    print("\n".join(wrong[:100]) if wrong else f"{len(cases)} cases of {len(seen)} ops agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
