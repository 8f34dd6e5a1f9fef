"""Absorbed MLA, decoding: FlashMLA, FlashInfer, torch by gathering pages."""

from __future__ import annotations

from ..registry import Unsupported, impl
from ._attention import (
    HALF,
    Pages,
    first_module,
    fits,
    gathered,
    only,
    plain,
    plain_numpy,
    seen_in_cache,
    workspace,
)


@impl(
    "numpy",
    about="Pages gathered, then plain attention in NumPy, all heads at once",
    devices=("cpu",),
    arrays="numpy",
    strided=True,
)
def numpy_(case, t):
    import numpy as np

    only(case, "f32", "f64", "f16")
    page, queries, scale, rank = case.count("page"), case.count("q"), case.number("scale"), case.count("rank")
    lengths = [int(n) for n in t.lengths]

    def launch():
        for b, n in enumerate(lengths):
            rows = t.cache[t.page_table[b, : -(-n // page)]].reshape(-1, t.cache.shape[-1])[:n]
            for i in range(queries):
                seen = (np.arange(n) <= i + n - queries)[None, :]
                t.o[b, i], lse = plain_numpy(t.q[b, i], rows, rows[:, :rank], scale, seen)
                if t.lse is not None:
                    t.lse[b, i] = lse

    return launch


@impl(
    "torch",
    about="Pages gathered, then two products and a softmax, nothing fused",
    devices=("cpu", "cuda"),
    strided=True,
    contract="q,cache -> c (gathered copy), o (new tensors)",
)
def torch_(case, t):
    b, q, h, rank, scale = case.b, case.count("q"), case.h, case.count("rank"), case.number("scale")
    tokens = t.page_table.shape[1] * case.count("page")
    fits(case, b * h * q * tokens)
    seen = seen_in_cache(case, t, tokens)[:, :, None].expand(b, q, h, tokens).reshape(b, q * h, tokens)

    def launch():
        (c,) = gathered(t, t.cache)
        rows = t.q.reshape(b, q * h, -1)
        lse = t.lse.new_empty(b, q * h) if case.flag("lse") else None
        o = {"o": plain(rows, c, c[:, :, :rank], scale, seen, None, lse).view(b, q, h, rank)}
        return o if lse is None else {**o, "lse": lse.view(b, q, h)}

    return launch


def _deepseek(case):
    """The one shape that kernels for MLA are written for."""
    only(case, *HALF)
    if case.count("rank") != 512 or case.count("rope") != 64:
        raise Unsupported("rank 512 and rope 64 only")


@impl(
    "flashmla",
    about="FlashMLA for Hopper, its schedule planned once",
    contract="q,cache -> o,lse (new tensors)",
)
def flashmla(case, t):
    _deepseek(case)
    if case.count("page") != 64:
        raise Unsupported("pages of 64 tokens only")
    flash_mla = first_module("sgl_kernel.flash_mla", "vllm.third_party.flashmla.flash_mla_interface")
    case.note(f"module {flash_mla.__name__}")
    schedule, _ = flash_mla.get_mla_metadata()
    cache, causal, scale = t.cache.unsqueeze(2), case.count("q") > 1, case.number("scale")

    def launch():
        o, lse = flash_mla.flash_mla_with_kvcache(
            t.q, cache, t.page_table, t.lengths, 512, schedule, softmax_scale=scale, causal=causal
        )
        return {"o": o, "lse": lse.transpose(1, 2)} if case.flag("lse") else {"o": o}

    with case.building():  # the first call fills the schedule
        launch()
    return launch


def _flashinfer(case, t, backend):
    from flashinfer.mla import BatchMLAPagedAttentionWrapper, MLAPlanMetadata

    _deepseek(case)
    pages, want = Pages(case, t), case.flag("lse")
    wrapper = BatchMLAPagedAttentionWrapper(workspace(t.q.device), backend=backend)
    with case.building():
        wrapper.plan(
            metadata=MLAPlanMetadata.csr(pages.queries, pages.starts, pages.pages, t.lengths),
            num_heads=case.h,
            head_dim_ckv=512,
            head_dim_kpe=64,
            page_size=case.count("page"),
            causal=case.count("q") > 1,
            sm_scale=case.number("scale"),
            q_data_type=t.q.dtype,
            kv_data_type=t.q.dtype,
            query_layout="split",
            kv_cache_layout="split",
            lse_mode="basee" if want else "none",
        )
    q, o = t.q.flatten(0, 1), t.o.flatten(0, 1)
    query, cache = (q[..., :512], q[..., 512:]), (t.cache[..., :512], t.cache[..., 512:])
    lse = t.lse.flatten(0, 1) if want else None

    def launch():
        wrapper.run(query=query, kv_cache=cache, out=o, lse=lse, return_lse=want, return_lse_base_on_e=want)

    return launch


@impl("flashinfer", about="FlashInfer's MLA for Hopper (fa3), planned once")
def flashinfer(case, t):
    return _flashinfer(case, t, "fa3")


@impl("flashinfer/fa2", about="FlashInfer's MLA of the generation before (fa2), planned once")
def flashinfer_fa2(case, t):
    return _flashinfer(case, t, "fa2")
