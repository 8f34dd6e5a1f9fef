"""Attention of the newest tokens over a paged cache: FlashInfer, FlashAttention 2 to 4, torch and NumPy."""

from __future__ import annotations

from ..registry import Unsupported, impl
from ._attention import (
    HALF,
    LN2,
    Pages,
    fits,
    flash_attn_3,
    gathered,
    only,
    plain,
    plain_numpy,
    scale_of,
    seen_in_cache,
    widths,
    workspace,
)


@impl(
    "numpy",
    about="Pages gathered, then plain attention in NumPy, head by head",
    devices=("cpu",),
    arrays="numpy",
    strided=True,
)
def numpy_(case, t):
    import numpy as np

    only(case, "f32", "f64", "f16")
    page, queries, scale, group = case.count("page"), case.count("q"), scale_of(case), case.hq // case.hkv
    lengths = [int(n) for n in t.lengths]

    def launch():
        for b, n in enumerate(lengths):
            pages = t.page_table[b, : -(-n // page)]
            k, v = (c[pages].reshape(-1, case.hkv, case.d)[:n] for c in (t.k_cache, t.v_cache))
            seen = np.arange(n)[None, :] <= np.arange(queries)[:, None] + n - queries
            for h in range(case.hq):
                t.o[b, :, h], lse = plain_numpy(t.q[b, :, h], k[:, h // group], v[:, h // group], scale, seen)
                if t.lse is not None:
                    t.lse[b, :, h] = lse

    return launch


@impl(
    "torch",
    about="Pages gathered, then two products and a softmax, nothing fused",
    devices=("cpu", "cuda"),
    strided=True,
    contract="q,k_cache,v_cache -> k,v (gathered copies), o (new tensors)",
)
def torch_(case, t):
    b, q, hkv, d, group = case.b, case.count("q"), case.hkv, case.d, case.hq // case.hkv
    tokens = t.page_table.shape[1] * case.count("page")
    fits(case, b * case.hq * q * tokens)
    scale = scale_of(case)
    # A mask for every row of a group: heads before query tokens.
    seen = seen_in_cache(case, t, tokens)[:, None, None].expand(b, hkv, group, q, tokens)
    seen = seen.reshape(b * hkv, group * q, tokens)

    def launch():
        k, v = (x.transpose(1, 2).reshape(b * hkv, tokens, d) for x in gathered(t, t.k_cache, t.v_cache))
        rows = t.q.transpose(1, 2).reshape(b * hkv, group * q, d)
        lse = t.lse.new_empty(b * hkv, group * q) if case.flag("lse") else None
        o = {"o": plain(rows, k, v, scale, seen, None, lse).view(b, case.hq, q, d).transpose(1, 2)}
        return o if lse is None else {**o, "lse": lse.view(b, case.hq, q).transpose(1, 2)}

    return launch


@impl(
    "flashinfer",
    about="FlashInfer's paged decode, planned once; tensor cores from groups of 4 heads on",
    contract=lambda case: "q,k_cache,v_cache -> o,lse (lse in base 2, then scaled)" if case.flag("lse") else None,
)
def flashinfer(case, t):
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    only(case, *HALF)
    if case.d not in (64, 128, 256):
        raise Unsupported("head sizes 64, 128 and 256")
    queries, pages = case.count("q"), Pages(case, t)
    tensor_cores = case.hq // case.hkv >= 4 or queries > 1
    wrapper = BatchDecodeWithPagedKVCacheWrapper(workspace(t.q.device), "NHD", use_tensor_cores=tensor_cores)
    with case.building():
        wrapper.plan(
            pages.starts,
            pages.pages,
            pages.last,
            case.hq,
            case.hkv,
            case.d,
            case.count("page"),
            q_data_type=t.q.dtype,
            kv_data_type=t.q.dtype,
            sm_scale=scale_of(case),
            q_len_per_req=queries,
        )
    case.note(f"backend {wrapper._backend}, tensor cores {'yes' if tensor_cores else 'no'}")
    q, o, cache = t.q.flatten(0, 1), t.o.flatten(0, 1), (t.k_cache, t.v_cache)
    lse = t.lse.flatten(0, 1) if case.flag("lse") else None

    def launch():
        wrapper.run(q, cache, out=o, lse=lse, return_lse=lse is not None)
        if lse is not None:
            lse.mul_(LN2)

    return launch


@impl(
    "flash-attn-4",
    about="FlashAttention-4's CuTe DSL kernel with a page table; keys unsplit on Hopper",
    contract=lambda case: "q,k_cache,v_cache -> o,lse (lse a new tensor)" if case.flag("lse") else None,
)
def flash_attn_4(case, t):
    from flash_attn.cute.interface import _flash_attn_fwd

    only(case, *HALF)
    widths(case, 256)
    causal, scale, want = case.count("q") > 1, scale_of(case), case.flag("lse")

    def launch():
        _, lse, *_ = _flash_attn_fwd(
            t.q,
            t.k_cache,
            t.v_cache,
            seqused_k=t.lengths,
            page_table=t.page_table,
            max_seqlen_k=case.l,
            softmax_scale=scale,
            causal=causal,
            return_lse=want,
            out=t.o,
        )
        return {"lse": lse.transpose(1, 2)} if want else None

    with case.building():
        launch()
    return launch


@impl(
    "flash-attn-3",
    about="FlashAttention-3's kernel for Hopper with a page table, split by its heuristic",
    contract="q,k_cache,v_cache -> o,lse (lse a new tensor)",
)
def flash_attn_3_(case, t):
    only(case, *HALF)
    widths(case, 256)
    run = flash_attn_3(case).fwd.default
    scale = scale_of(case)

    def launch():
        _, lse, *_ = run(
            t.q,
            t.k_cache,
            t.v_cache,
            out=t.o,
            seqused_k=t.lengths,
            page_table=t.page_table,
            softmax_scale=scale,
            is_causal=True,
            num_splits=0,
        )
        return {"lse": lse.transpose(1, 2)} if case.flag("lse") else None

    return launch


@impl(
    "flash-attn-2",
    about="FlashAttention-2's flash_attn_with_kvcache",
    contract="q,k_cache,v_cache -> o (new tensors)",
)
def flash_attn_2(case, t):
    from flash_attn import flash_attn_with_kvcache

    only(case, *HALF)
    widths(case, 256)
    if case.count("page") % 256:
        raise Unsupported("pages of multiples of 256 tokens")
    if case["lengths"] == "ragged" and case.flag("lse"):
        raise Unsupported("lse of an empty sequence is plus infinity")
    scale, want = scale_of(case), case.flag("lse")

    def launch():
        got = flash_attn_with_kvcache(
            t.q,
            t.k_cache,
            t.v_cache,
            cache_seqlens=t.lengths,
            block_table=t.page_table,
            softmax_scale=scale,
            causal=True,
            return_softmax_lse=want,
        )
        return {"o": got[0], "lse": got[1].transpose(1, 2)} if want else {"o": got}

    return launch
