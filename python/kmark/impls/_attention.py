"""What the attention ops share: scale, masks, layouts, page lists, plain attention, loaders."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
from typing import Any, Callable, Optional

from ..registry import Unsupported

LN2 = math.log(2.0)
HALF = ("f16", "bf16")
GIB = 1 << 30


def scale_of(case: Any) -> float:
    """What logits are multiplied by."""
    return 1.0 / math.sqrt(case.d) if case["scale"] == "auto" else case.number("scale")


def only(case: Any, *dtypes: str) -> None:
    """Refuses every other dtype."""
    if case.dtype not in dtypes:
        raise Unsupported(f"no {case.dtype}")


def widths(case: Any, most: int, step: int = 8) -> None:
    """Refuses head sizes beyond `most` or that `step` does not divide."""
    if case.d > most or case.d % step:
        raise Unsupported(f"head size {case.d}: multiples of {step} up to {most}")


def bshd(case: Any, x: Any) -> Any:
    """A dense tensor with positions before heads: a view."""
    return x.transpose(1, 2) if case["layout"] == "bhsd" else x


def bhsd(case: Any, x: Any) -> Any:
    """A dense tensor with heads before positions: a view."""
    return x if case["layout"] == "bhsd" else x.transpose(1, 2)


def sides(case: Any, free: Any = -1) -> tuple[Any, Any]:
    """The window as flash-attention's family counts it: keys to the left and to the right of the query's."""
    if not case.count("window"):
        return (free, 0 if case.flag("causal") else free)
    return (case.count("window") - 1, 0 if case.flag("causal") else case.count("window") - 1)


def blind(case: Any) -> bool:
    """Whether some queries of a dense case see no key: the op wants 0 and minus infinity there."""
    more = case.sq - case.sk
    return more > 0 and (case.flag("causal") or 0 < case.count("window") <= more)


def visible(np: Any, queries: int, keys: int, causal: bool, window: int, **where: Any) -> Any:
    """Which keys each query sees, as booleans [queries, keys], or None for all; `np` is torch or NumPy."""
    if not causal and not window:
        return None
    at = np.arange(queries, **where)[:, None] + (keys - queries)
    key = np.arange(keys, **where)[None, :]
    seen = key <= at if causal else (key < at + window)
    return seen & (key > at - window) if window else seen


def fits(case: Any, scores: int, most: int = 24 * GIB) -> None:
    """Refuses cases whose scores, kept whole, would need too much memory."""
    size = scores * (16 if case.dtype == "f64" else 8)
    if size > most:
        raise Unsupported(f"scores and weights of {size / GIB:.0f} GiB, kept whole")


def scores_of(q: Any, k: Any) -> Any:
    """q k^T of [n, rows, d] and [n, keys, d], in f32 where the tensors are 16 bits wide."""
    import torch

    k = k.transpose(1, 2)
    if q.dtype in (torch.float32, torch.float64):
        return torch.bmm(q, k)
    if q.is_cuda:
        return torch.bmm(q, k, out_dtype=torch.float32)
    return torch.bmm(q.float(), k.float())  # no product on the CPU widens its result


def plain(q: Any, k: Any, v: Any, scale: float, seen: Any, out: Any = None, lse: Any = None) -> Any:
    """Attention by two products with a softmax between: q [n, rows, d], k and v [n, keys, d].

    `seen` broadcasts against [n, rows, keys] and may be None. Rows without keys get 0 and minus infinity."""
    import torch

    s = scores_of(q, k).mul_(scale)
    if seen is not None:
        s.masked_fill_(~seen, -math.inf)
    if lse is not None:
        torch.logsumexp(s, -1, out=lse)
    p = torch.softmax(s, -1)
    if seen is not None:
        p.nan_to_num_(0.0)
    p = p.to(v.dtype)
    return torch.bmm(p, v) if out is None else torch.bmm(p, v, out=out)


def plain_numpy(q: Any, k: Any, v: Any, scale: float, seen: Any) -> tuple[Any, Any]:
    """The same for one head in NumPy: q [rows, d], k and v [keys, d]; gives o and lse."""
    import numpy as np

    wide = np.float64 if q.dtype == np.float64 else np.float32
    if not len(k):
        return np.zeros((len(q), v.shape[1]), wide), np.full(len(q), -np.inf, wide)
    s = (q.astype(wide) @ k.astype(wide).T) * wide(scale)
    if seen is not None:
        s = np.where(seen, s, wide(-np.inf))
    most = s.max(-1, keepdims=True)
    most[np.isneginf(most)] = 0.0
    p = np.exp(s - most)
    total = p.sum(-1, keepdims=True)
    o = (p @ v.astype(wide)) / np.where(total == 0.0, 1.0, total)
    with np.errstate(divide="ignore"):
        return o, (np.log(total) + most)[:, 0]


class Pages:
    """Which pages each sequence of a paged cache has, as libraries want to know it; read when binding."""

    def __init__(self, case: Any, t: Any):
        import torch

        page, device = case.count("page"), t.page_table.device
        lengths = t.lengths.tolist()
        counts = [-(-n // page) for n in lengths]
        ints = dict(dtype=torch.int32, device=device)
        self.longest = max(lengths, default=0)
        self.queries = torch.arange(0, (case.b + 1) * case.count("q"), case.count("q"), **ints)
        self.starts = torch.tensor([sum(counts[:i]) for i in range(len(counts) + 1)], **ints)

        def pages() -> Any:
            rows = [t.page_table[i, :n] for i, n in enumerate(counts)]
            return torch.cat(rows).to(torch.int32) if rows else torch.empty(0, **ints)

        self.pages = case.arranged(pages)  # tables change with the values, lengths do not
        # An empty sequence has no pages; a full last page then makes its length (0 - 1) * page + page = 0.
        self.last = torch.tensor([(n - 1) % page + 1 if n else page for n in lengths], **ints)


def gathered(t: Any, *caches: Any) -> list[Any]:
    """Caches as [b, tokens, ...] by the page table: copies. -1 takes the last page; masks hide it."""
    pages = t.page_table.long()
    return [c[pages].flatten(1, 2) for c in caches]


def seen_in_cache(case: Any, t: Any, tokens: int) -> Any:
    """Keys of a gathered cache that each query token sees: booleans [b, q, tokens]."""
    import torch

    q = case.count("q")
    ends = t.lengths[:, None] - q + 1 + torch.arange(q, device=t.lengths.device)[None, :]
    return torch.arange(tokens, device=ends.device)[None, None, :] < ends[:, :, None]


def first_module(*names: str) -> Any:
    """The first of these modules that is installed; the last is imported in any case: its absence shows."""
    for name in names[:-1]:
        if importlib.util.find_spec(name.split(".")[0]) and importlib.util.find_spec(name):
            return importlib.import_module(name)
    return importlib.import_module(names[-1])


@functools.cache
def workspace(device: Any) -> Any:
    """Scratch memory for FlashInfer, one for all that is bound: launches follow each other on one stream."""
    import torch

    return torch.zeros(256 << 20, dtype=torch.uint8, device=device)


_FA3: Optional[str] = None


def flash_attn_3(case: Any, backward: bool = False) -> Any:
    """FlashAttention-3's torch ops. Several packages hold a build of them, and a process can load only one;
    those made for serving lack the backward."""
    global _FA3
    import torch

    if _FA3 is None:
        builds = ["flash_attn_3._C", "xformers.flash_attn_3._C"]
        if backward and not _has_backward():
            builds.reverse()
        _FA3 = first_module(*builds).__name__
    if backward and _FA3 == "flash_attn_3._C" and not _has_backward():
        raise Unsupported("the build that is loaded has no backward")
    case.note(f"module {_FA3}")
    return torch.ops.flash_attn_3


def _has_backward() -> bool:
    """Whether the build named flash_attn_3 was made with a backward."""
    if not importlib.util.find_spec("flash_attn_config"):
        return True
    flags = importlib.import_module("flash_attn_config").CONFIG["build_flags"]
    return not flags.get("FLASHATTENTION_DISABLE_BACKWARD", False)


def efficient_mask(case: Any) -> tuple[int, Any]:
    """Mask and window in the words of torch's memory-efficient attention; 2 is causal from the last key."""
    if case.count("window") and not case.flag("causal"):
        raise Unsupported("a window without causality")
    return (2 if case.flag("causal") else 0), (case.count("window") or None)


def one_head_for_all(case: Any, x: Any) -> Any:
    """Keys or values with as many heads as queries; a view only where there is one head."""
    if case.hkv == case.hq:
        return x
    if case.hkv > 1:
        raise Unsupported("grouped key heads: they would have to be copied")
    return x.expand(-1, -1, case.hq, -1)


def ragged_prefill(case: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, cu_q: Any, cu_k: Any) -> Callable[[], Any]:
    """FlashInfer's ragged prefill, planned: its launch gives lse as [tokens, heads] if the case has one."""
    from flashinfer import BatchPrefillWithRaggedKVCacheWrapper

    only(case, *HALF)
    if case.d not in (64, 128, 256):
        raise Unsupported("head sizes 64, 128 and 256")
    if case.count("window") and not case.flag("causal"):
        raise Unsupported("a window without causality")
    wrapper = BatchPrefillWithRaggedKVCacheWrapper(workspace(q.device), "NHD")
    with case.building():  # planning compiles, too
        wrapper.plan(
            cu_q,
            cu_k,
            case.hq,
            case.hkv,
            case.d,
            causal=case.flag("causal"),
            sm_scale=scale_of(case),
            window_left=case.count("window") - 1,
            q_data_type=q.dtype,
            kv_data_type=k.dtype,
        )
    case.note(f"backend {wrapper._backend}")
    if not case.flag("lse"):
        return lambda: wrapper.run(q, k, v, out=o)
    return lambda: wrapper.run(q, k, v, out=o, lse=lse, return_lse=True, lse_base="ln")[1]
