"""Attention to selected blocks of keys: flash-linear-attention's kernel, torch by gathering."""

from __future__ import annotations

from ..registry import Unsupported, impl
from ._attention import HALF, only, plain, scale_of

# Keys and values that the plain version gathers at a time.
_CHUNK = 1 << 28


@impl(
    "torch",
    about="Blocks gathered for some tokens at a time, then two products and a softmax, nothing fused",
    devices=("cpu", "cuda"),
    strided=True,
    contract="q,k,v,blocks -> gathered copies, o (new tensors)",
)
def torch_(case, t):
    import torch

    b, s, hkv, d, block = case.b, case.s, case.hkv, case.d, case.count("block")
    group, many, scale = case.hq // hkv, case.count("selected") * block, scale_of(case)
    # Lists as keys: [b, s, hkv, many]. Places that hold s are empty; keys behind the end and, causally, later
    # ones are not seen.
    ends = torch.arange(s, device=t.blocks.device)[:, None, None] + 1 if case.flag("causal") else s

    def all_keys():
        return (t.blocks.long()[..., None] * block + torch.arange(block, device=t.blocks.device)).flatten(-2)

    # Made again whenever the lists change.
    keys = case.arranged(lambda: all_keys().clamp_(max=s - 1))
    seen = case.arranged(lambda: (t.blocks < s).repeat_interleave(block, -1) & (all_keys() < s) & (all_keys() < ends))
    size = max(1, _CHUNK // max(1, b * hkv * many * d))
    batch = torch.arange(b, device=keys.device)[:, None, None, None]
    head = torch.arange(hkv, device=keys.device)[None, None, :, None]

    def launch():
        os, lses = [], []
        for at in range(0, s, size):
            at = slice(at, min(s, at + size))
            n = b * (at.stop - at.start) * hkv
            k, v = (x[batch, keys[:, at], head].reshape(n, many, d) for x in (t.k, t.v))
            lse = t.lse.new_empty(n, group) if case.flag("lse") else None
            q, mask = t.q[:, at].reshape(n, group, d), seen[:, at].reshape(n, 1, many)
            o = plain(q, k, v, scale, mask, None, lse)
            os.append(o.view(b, -1, case.hq, d))
            lses.append(None if lse is None else lse.view(b, -1, case.hq))
        o = {"o": torch.cat(os, 1)}
        return {**o, "lse": torch.cat(lses, 1)} if case.flag("lse") else o

    return launch


@impl(
    "fla",
    about="flash-linear-attention's Triton kernel of the selected branch",
    contract="q (scaled and rounded again),k,v,blocks -> o,lse (new tensors)",
)
def fla(case, t):
    from fla.ops.nsa.parallel import parallel_nsa_fwd

    only(case, *HALF)
    group, block = case.hq // case.hkv, case.count("block")
    if not case.flag("causal"):
        raise Unsupported("causal only")
    if case.flag("empty"):
        raise Unsupported("a token without blocks divides by zero")
    if group < 16 or group & (group - 1):
        raise Unsupported("groups of 16 heads or more, powers of two")
    if block < 16 or block & (block - 1) or case.d < 16 or case.d > 256:
        raise Unsupported("blocks of a power of two from 16 on, head size 16 to 256")
    scale, selected = scale_of(case), case.count("selected")

    def launch():
        o, lse = parallel_nsa_fwd(t.q, t.k, t.v, t.blocks, selected, block, scale)
        return {"o": o, "lse": lse} if case.flag("lse") else {"o": o}

    with case.tuning():
        launch()
    return launch
