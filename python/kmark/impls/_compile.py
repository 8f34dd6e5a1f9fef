"""First calls: compiling and autotuning, done while binding and recorded apart from the timed launches."""

from __future__ import annotations

from typing import Any, Callable

Launch = Callable[[], Any]

# The case that was compiled for last.
_LAST = ""


def compiled(case: Any, f: Launch, **options: Any) -> Launch:
    """`f` by torch.compile for this case alone, in the default mode but for `options` of the compiler.

    It is called once here. Shapes are static and what it closes over stays: no later call compiles again. Kernels may
    come from Inductor's cache, choices between them may not: another run could have made them on a busy GPU."""
    import torch

    global _LAST
    if _LAST != case.id:  # copies of one case, bound for a graph, share what was compiled
        forget()
        _LAST = case.id
    options["autotune_local_cache"] = False
    torch.compiler.config.cache_key_tag = "kmark"  # nor may kernels that were made to look choices up
    return built(case, torch.compile(f, dynamic=False, fullgraph=True, options=options))


def forget() -> None:
    """What was compiled for the last case goes; its kernels stay in Inductor's cache."""
    global _LAST
    if _LAST:
        import torch

        torch._dynamo.reset()
        _LAST = ""


def built(case: Any, launch: Launch) -> Launch:
    """A launch whose first call compiles, after that call."""
    with case.building():
        launch()
    return launch


def tuned(case: Any, launch: Launch) -> Launch:
    """A launch whose first call tries variants and keeps the fastest, after that call."""
    with case.tuning():
        launch()
    return launch
