"""The outputs of cases and how far they may be off, derived from the NumPy formulas of the ops alone.

A request is a line of JSON and the numbers of the inputs; an answer is a line with the number of its numbers, and
these: for each output the expectations, the slack, and how much more of it the loose grade allows."""

import json
import sys

import attention  # noqa: F401  the modules enter their ops into OPS
import numpy as np
import products  # noqa: F401
import rows  # noqa: F401
from kit import OPS, Case, Near
from kmark import bounds

# Where a contract rounds on the way, a reference says so.
rows.round_to = lambda dtype, x: bounds.rounded(x, dtype)


def derived(case):
    """Expectation, slack and what the loose grade adds, one after the other for each output."""
    outputs = [bounds.Output(name, t["dtype"], False, tuple(t["shape"])) for name, t in case.outputs.items()]

    def reference(**inputs):
        found = OPS[case.op](case.on(inputs))
        return {o.name: found[o.name].value if isinstance(found[o.name], Near) else found[o.name] for o in outputs}

    truth = bounds.truth(reference, case.inputs, outputs, library="numpy", matmul=case.dtype)
    assert truth.how == "random rounding of NumPy operations, 16 runs", f"{case.id}: {truth.how}: {truth.blind}"
    assert not any("no rule" in line for line in truth.blind), f"{case.id}: {truth.blind}"
    parts = []
    for expect, tight, loose in zip(truth.expect, truth.slack("tight"), truth.slack("loose")):
        free = np.isnan(expect)  # where the contract says nothing
        tight, loose = np.where(free, np.inf, tight), np.where(free, np.inf, loose)
        more = np.subtract(loose, tight, where=np.isfinite(tight), out=np.zeros_like(tight))
        parts += [np.where(free, 0.0, expect), tight, more]
    return np.concatenate([p.ravel() for p in parts])


def main():
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while line := requests.readline():
        request = json.loads(line)
        numbers = np.frombuffer(requests.read(8 * request["numbers"]), dtype="<f8")
        found = derived(Case(request, numbers))
        answers.write(f"{found.size}\n".encode() + found.astype("<f8").tobytes())
        answers.flush()


if __name__ == "__main__":
    main()
