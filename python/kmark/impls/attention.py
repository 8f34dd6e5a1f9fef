"""Attention over dense tensors: SDPA's backends, FlashAttention, FlashInfer, xFormers, kernels of ours."""

# Annotations stay what they are, not text: TileLang reads those of its kernels.

from typing import Any

from ..registry import Unsupported, impl
from ._attention import (
    HALF,
    bhsd,
    blind,
    bshd,
    efficient_mask,
    fits,
    flash_attn_3,
    one_head_for_all,
    only,
    plain,
    plain_numpy,
    ragged_prefill,
    scale_of,
    sides,
    visible,
    widths,
)

_NEW = "q,k,v -> o (new tensors)"


def _new(case: Any, o: Any, lse: Any) -> dict[str, Any]:
    """What a launch gives back when the library made the tensors."""
    return {"o": o, "lse": lse} if case.flag("lse") else {"o": o}


@impl("numpy", about="Plain attention in NumPy, head by head", devices=("cpu",), arrays="numpy", strided=True)
def numpy_(case, t):
    import numpy as np

    only(case, "f32", "f64", "f16")
    q, k, v, o = (x if case["layout"] == "bhsd" else x.swapaxes(1, 2) for x in (t.q, t.k, t.v, t.o))
    scale, group = scale_of(case), case.hq // case.hkv
    seen = visible(np, case.sq, case.sk, case.flag("causal"), case.count("window"))

    def launch():
        for b in range(case.b):
            for h in range(case.hq):
                o[b, h], lse = plain_numpy(q[b, h], k[b, h // group], v[b, h // group], scale, seen)
                if t.lse is not None:
                    t.lse[b, h] = lse

    return launch


@impl(
    "torch",
    about="Two products and a softmax, nothing fused",
    devices=("cpu", "cuda"),
    strided=True,
    contract=lambda case: None if case["layout"] == "bhsd" and case["memory"] == "dense" else _NEW,
)
def torch_(case, t):
    import torch

    b, hkv, sq, sk, d, group = case.b, case.hkv, case.sq, case.sk, case.d, case.hq // case.hkv
    fits(case, b * case.hq * sq * sk)
    scale = scale_of(case)
    q, k, v = (bhsd(case, x) for x in (t.q, t.k, t.v))
    seen = visible(torch, sq, sk, case.flag("causal"), case.count("window"), device=t.q.device)
    if seen is not None:
        seen = seen.repeat(group, 1)  # queries of a group's heads lie one after the other
    lse = t.lse.view(b * hkv, group * sq) if case.flag("lse") else None
    direct = case["layout"] == "bhsd" and case["memory"] == "dense"
    out = t.o.view(b * hkv, group * sq, d) if direct else None

    def launch():
        rows = (q.reshape(b * hkv, group * sq, d), k.reshape(b * hkv, sk, d), v.reshape(b * hkv, sk, d))
        o = plain(*rows, scale, seen, out, lse)
        return None if direct else {"o": bhsd(case, o.view(b, case.hq, sq, d))}

    return launch


@impl("torch-compile", about="flex_attention compiled, with a block mask", contract=_NEW)
def torch_compile(case, t):
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    from ._compile import compiled

    only(case, "f32", "f16", "bf16")
    scale, window, shift = scale_of(case), case.count("window"), case.sk - case.sq
    q, k, v = (bhsd(case, x) for x in (t.q, t.k, t.v))
    mask = None
    if case.flag("causal") or window:

        def seen(b, h, i, j):
            at = i + shift
            after = j <= at if case.flag("causal") else j < at + window
            return after & (j > at - window) if window else after

        mask = create_block_mask(seen, None, None, case.sq, case.sk, device=t.q.device)
    aux = AuxRequest(lse=True) if case.flag("lse") else None

    def attend():
        return flex_attention(q, k, v, block_mask=mask, scale=scale, enable_gqa=case.hq != case.hkv, return_aux=aux)

    run = compiled(case, attend)

    def launch():
        got = run()
        return {"o": bhsd(case, got)} if aux is None else {"o": bhsd(case, got[0]), "lse": got[1].lse}

    return launch


@impl("sdpa-flash", about="torch's FlashAttention-2, the op below SDPA", contract=_NEW)
def sdpa_flash(case, t):
    import torch

    only(case, *HALF)
    widths(case, 256)
    if blind(case) and case.flag("lse"):
        raise Unsupported("lse of queries that see no key is plus infinity")
    q, k, v = (bshd(case, x) for x in (t.q, t.k, t.v))
    left, right = sides(case, None)
    causal, scale = case.flag("causal"), scale_of(case)
    run = torch.ops.aten._flash_attention_forward.default

    def launch():
        o, lse, *_ = run(
            q,
            k,
            v,
            None,
            None,
            case.sq,
            case.sk,
            0.0,
            causal,
            False,
            scale=scale,
            window_size_left=left,
            window_size_right=right,
        )
        return _new(case, bshd(case, o), lse)

    return launch


@impl("sdpa-cudnn", about="cuDNN's attention, the op below SDPA", contract=_NEW)
def sdpa_cudnn(case, t):
    import torch

    only(case, *HALF)
    widths(case, 256)
    if case.count("window"):
        raise Unsupported("no window")
    if case.flag("causal") and case.sq != case.sk:
        raise Unsupported("its causal mask is aligned at the first key")
    q, k, v = (bhsd(case, x) for x in (t.q, t.k, t.v))
    want, causal, scale = case.flag("lse"), case.flag("causal"), scale_of(case)
    run = torch.ops.aten._scaled_dot_product_cudnn_attention.default

    def launch():
        o, lse, *_ = run(q, k, v, None, want, 0.0, causal, False, scale=scale)
        return _new(case, bhsd(case, o), lse.squeeze(-1) if want else None)

    with case.building():  # cuDNN makes a plan at the first call
        launch()
    return launch


@impl("sdpa-efficient", about="torch's memory-efficient attention (CUTLASS), the op below SDPA", contract=_NEW)
def sdpa_efficient(case, t):
    import torch

    only(case, "f32", *HALF)
    mask, window = efficient_mask(case)
    if blind(case):
        raise Unsupported("queries that see no key")
    q, k, v = (bshd(case, x) for x in (t.q, t.k, t.v))
    k, v = (one_head_for_all(case, x) for x in (k, v))
    want, scale = case.flag("lse"), scale_of(case)
    run = torch.ops.aten._efficient_attention_forward.default

    def launch():
        o, lse, *_ = run(q, k, v, *[None] * 5, 0.0, mask, want, scale=scale, window_size=window)
        return _new(case, bshd(case, o), lse[:, :, : case.sq])  # its rows are padded to 32

    return launch


@impl("triton", about="FlashAttention-2's scheme in Triton, any strides", strided=True)
def triton_(case, t):
    from ._triton_matrix import attention

    only(case, "f32", *HALF)
    if case.d > 256:
        raise Unsupported("head size up to 256")
    views = [bhsd(case, x) for x in (t.q, t.k, t.v, t.o)]
    launch = attention(*views, t.lse, scale_of(case), case.flag("causal"), case.count("window"))
    with case.building():
        launch()
    return launch


@impl("flash-attn-4", about="FlashAttention-4's CuTe DSL kernel")
def flash_attn_4(case, t):
    from flash_attn.cute.interface import _flash_attn_fwd

    only(case, *HALF)
    widths(case, 256)
    q, k, v, o = (bshd(case, x) for x in (t.q, t.k, t.v, t.o))
    left, right = sides(case, None)
    causal, scale, want = case.flag("causal"), scale_of(case), case.flag("lse")

    def launch():
        _flash_attn_fwd(
            q,
            k,
            v,
            softmax_scale=scale,
            causal=causal,
            window_size_left=left,
            window_size_right=right,
            return_lse=want,
            out=o,
            lse=t.lse,
        )

    with case.building():
        launch()
    return launch


@impl(
    "flash-attn-3",
    about="FlashAttention-3's kernel for Hopper",
    contract=lambda case: "q,k,v -> o,lse (lse a new tensor)" if case.flag("lse") else "q,k,v -> o,lse",
)
def flash_attn_3_(case, t):
    only(case, *HALF)
    widths(case, 256)
    run = flash_attn_3(case).fwd.default
    q, k, v, o = (bshd(case, x) for x in (t.q, t.k, t.v, t.o))
    left, right = sides(case)
    causal, scale = case.flag("causal"), scale_of(case)

    def launch():
        _, lse, *_ = run(
            q,
            k,
            v,
            out=o,
            softmax_scale=scale,
            is_causal=causal,
            window_size_left=left,
            window_size_right=right,
            num_splits=1,
        )
        return {"lse": lse} if case.flag("lse") else None

    return launch


@impl("flash-attn-2", about="FlashAttention-2", contract=_NEW)
def flash_attn_2(case, t):
    from flash_attn import flash_attn_func

    only(case, *HALF)
    widths(case, 256)
    if blind(case) and case.flag("lse"):
        raise Unsupported("lse of queries that see no key is plus infinity")
    q, k, v = (bshd(case, x) for x in (t.q, t.k, t.v))
    causal, scale, window, want = case.flag("causal"), scale_of(case), sides(case), case.flag("lse")

    def launch():
        got = flash_attn_func(q, k, v, softmax_scale=scale, causal=causal, window_size=window, return_attn_probs=want)
        return _new(case, bshd(case, got[0]), got[1]) if want else {"o": bshd(case, got)}

    return launch


@impl(
    "flashinfer",
    about="FlashInfer's ragged prefill, planned once",
    contract=lambda case: "q,k,v -> o,lse (lse a new tensor, from base 2)" if case.flag("lse") else None,
)
def flashinfer(case, t):
    import torch

    if case["layout"] != "bshd":
        raise Unsupported("positions before heads (layout bshd) only")
    ints = dict(dtype=torch.int32, device=t.q.device)
    cu_q = torch.arange(0, (case.b + 1) * case.sq, case.sq, **ints)
    cu_k = torch.arange(0, (case.b + 1) * case.sk, case.sk, **ints)
    q, k, v, o = (x.flatten(0, 1) for x in (t.q, t.k, t.v, t.o))
    run = ragged_prefill(case, q, k, v, o, None, cu_q, cu_k)

    def launch():
        lse = run()
        return {"lse": lse.view(case.b, case.sq, case.hq).transpose(1, 2)} if case.flag("lse") else None

    return launch


def _xformers(case, t, op):
    from xformers.ops import fmha

    only(case, *(HALF if op is fmha.flash3.FwOp else ("f32", *HALF)))
    widths(case, 256)
    if blind(case):
        raise Unsupported("queries that see no key")
    bias = xformers_mask(case, fmha, op is fmha.flash3.FwOp)
    q, k, v = (bshd(case, x) for x in (t.q, t.k, t.v))
    group = case.hq // case.hkv
    if group > 1:  # groups are a dimension of their own, keys repeated along it by a stride of 0
        q = q.unflatten(2, (case.hkv, group))
        k, v = (x.unsqueeze(3).expand(-1, -1, -1, group, -1) for x in (k, v))
    scale, want = scale_of(case), case.flag("lse")

    def launch():
        if not want:
            o = fmha.memory_efficient_attention_forward(q, k, v, bias, scale=scale, op=op)
            return {"o": bshd(case, o.reshape(case.b, case.sq, case.hq, case.d))}
        o, lse = fmha.memory_efficient_attention_forward_requires_grad(q, k, v, bias, scale=scale, op=op)
        lse = lse.reshape(case.b, case.hq, -1)[:, :, : case.sq]
        return {"o": bshd(case, o.reshape(case.b, case.sq, case.hq, case.d)), "lse": lse}

    return launch


def xformers_mask(case: Any, fmha: Any, both_sides: bool) -> Any:
    """The mask as xFormers describes it, aligned at the last key."""
    masks, window = fmha.attn_bias, case.count("window")
    if not window:
        return masks.LowerTriangularFromBottomRightMask() if case.flag("causal") else None
    if case.flag("causal"):
        return masks.LowerTriangularFromBottomRightLocalAttentionMask(window)
    if not both_sides:
        raise Unsupported("a window without causality")
    return masks.LocalAttentionFromBottomRightMask(window - 1, window - 1)


@impl("xformers/cutlass", about="xFormers, its CUTLASS kernel forced", contract=_NEW)
def xformers_cutlass(case, t):
    from xformers.ops import fmha

    return _xformers(case, t, fmha.cutlass.FwOp)


@impl("xformers/fa3", about="xFormers, its FlashAttention-3 forced", contract=_NEW)
def xformers_fa3(case, t):
    from xformers.ops import fmha

    return _xformers(case, t, fmha.flash3.FwOp)


@impl("tilelang", about="FlashAttention-2's scheme of ours in TileLang: whole tiles of 128 only")
def tilelang_(case, t):
    only(case, *HALF)
    if case["layout"] != "bshd" or case.count("window") or case.flag("lse"):
        raise Unsupported("layout bshd, no window, no lse")
    if case.d not in (64, 128) or case.sq % 128 or case.sk % 128:
        raise Unsupported("head size 64 or 128, whole tiles of 128 queries and keys")
    if case.flag("causal") and case.sq > case.sk:
        raise Unsupported("queries that see no key")
    with case.building():
        kernel = _tilelang_kernel(case)

    def launch():
        kernel(t.q, t.k, t.v, t.o)

    return launch


def _tilelang_kernel(case):
    import tilelang
    import tilelang.language as T

    b, hq, hkv, sq, sk, d = case.b, case.hq, case.hkv, case.sq, case.sk, case.d
    dtype = {"f16": "float16", "bf16": "bfloat16"}[case.dtype]
    causal, group, shift = case.flag("causal"), hq // hkv, sk - sq
    scale = scale_of(case) * 1.4426950408889634  # exponents to base 2
    bq = bk = 128

    @T.prim_func
    def flash(
        Q: T.Tensor((b, sq, hq, d), dtype),
        K: T.Tensor((b, sk, hkv, d), dtype),
        V: T.Tensor((b, sk, hkv, d), dtype),
        O: T.Tensor((b, sq, hq, d), dtype),
    ):
        with T.Kernel(sq // bq, hq, b, threads=256) as (x, h, n):
            q = T.alloc_shared((bq, d), dtype)
            k = T.alloc_shared((bk, d), dtype)
            v = T.alloc_shared((bk, d), dtype)
            s = T.alloc_fragment((bq, bk), "float32")
            p = T.alloc_fragment((bq, bk), dtype)
            o = T.alloc_fragment((bq, d), "float32")
            most = T.alloc_fragment((bq,), "float32")
            before = T.alloc_fragment((bq,), "float32")
            shrink = T.alloc_fragment((bq,), "float32")
            part = T.alloc_fragment((bq,), "float32")
            total = T.alloc_fragment((bq,), "float32")
            T.copy(Q[n, x * bq : (x + 1) * bq, h, :], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(most, -T.infinity("float32"))
            tiles = T.ceildiv((x + 1) * bq + shift, bk) if causal else sk // bk
            for j in T.Pipelined(tiles, num_stages=2):
                T.copy(K[n, j * bk : (j + 1) * bk, h // group, :], k)
                if causal:
                    for r, c in T.Parallel(bq, bk):
                        s[r, c] = T.if_then_else(x * bq + r + shift >= j * bk + c, 0, -T.infinity("float32"))
                else:
                    T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(V[n, j * bk : (j + 1) * bk, h // group, :], v)
                T.copy(most, before)
                T.reduce_max(s, most, dim=1, clear=False)
                for r in T.Parallel(bq):
                    shrink[r] = T.exp2((before[r] - most[r]) * scale)
                for r, c in T.Parallel(bq, bk):
                    s[r, c] = T.exp2((s[r, c] - most[r]) * scale)
                T.reduce_sum(s, part, dim=1)
                for r in T.Parallel(bq):
                    total[r] = total[r] * shrink[r] + part[r]
                for r, c in T.Parallel(bq, d):
                    o[r, c] = o[r, c] * shrink[r]
                T.copy(s, p)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for r, c in T.Parallel(bq, d):
                o[r, c] = o[r, c] / total[r]
            T.copy(o, O[n, x * bq : (x + 1) * bq, h, :])

    return tilelang.compile(flash)


@impl("max", about="Modular's MAX: recognised, not timed")
def max_(case, t):
    from ._max import refuse

    refuse(case)
