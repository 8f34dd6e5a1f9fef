"""Triton kernels of ours for products and attention: right at every size. Only adapters that use Triton
load this file, so it may import it."""

from __future__ import annotations

from typing import Any, Callable

import torch
import triton
import triton.language as tl

_PRECISION = {torch.float32: "ieee"}


@triton.jit
def _gemm(
    a,
    b,
    d,
    bias,
    a_scale,
    b_scale,
    m,
    n,
    k,
    a_m,
    a_k,
    b_k,
    b_n,
    d_m,
    d_n,
    as_m,
    as_k,
    bs_n,
    bs_k,
    BIAS: tl.constexpr,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One BM x BN tile of d. Programs go down GROUP rows of tiles at a time, to share operands in L2."""
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    pid = tl.program_id(0)
    first = pid // (GROUP * tiles_n) * GROUP
    rows = min(tiles_m - first, GROUP)
    tile_m = first + pid % (GROUP * tiles_n) % rows
    tile_n = pid % (GROUP * tiles_n) // rows

    at_m = (tile_m * BM + tl.arange(0, BM)).to(tl.int64)
    at_n = (tile_n * BN + tl.arange(0, BN)).to(tl.int64)
    in_m, in_n = at_m < m, at_n < n
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        at_k = (start + tl.arange(0, BK)).to(tl.int64)
        in_k = at_k < k
        from_a = a + at_m[:, None] * a_m + at_k[None, :] * a_k
        from_b = b + at_k[:, None] * b_k + at_n[None, :] * b_n
        x = tl.load(from_a, mask=in_m[:, None] & in_k[None, :], other=0.0)
        y = tl.load(from_b, mask=in_k[:, None] & in_n[None, :], other=0.0)
        if SCALE == "block":
            # BK is a block of scales, and no tile of columns crosses one.
            sa = tl.load(a_scale + at_m * as_m + start // BK * as_k, mask=in_m, other=0.0)
            sb = tl.load(b_scale + tile_n * BN // 128 * bs_n + start // BK * bs_k)
            sums += tl.dot(x, y) * (sa * sb)[:, None]
        else:
            # The sums of fp8 products are short on the GPU: they are brought into f32 after every block.
            sums = tl.dot(x, y, sums, input_precision=PRECISION, max_num_imprecise_acc=BK)
    if SCALE == "tensor":
        sums *= tl.load(a_scale) * tl.load(b_scale)
    if SCALE == "row":
        sa = tl.load(a_scale + at_m * as_m, mask=in_m, other=0.0)
        sb = tl.load(b_scale + at_n * bs_n, mask=in_n, other=0.0)
        sums *= sa[:, None] * sb[None, :]
    if BIAS:
        sums += tl.load(bias + at_n, mask=in_n, other=0.0).to(tl.float32)[None, :]
    at = d + at_m[:, None] * d_m + at_n[None, :] * d_n
    tl.store(at, sums.to(d.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


def gemm(
    a: Any, b: Any, d: Any, bias: Any, a_scale: Any, b_scale: Any, scale: str, tf32: bool = False
) -> Callable[[], None]:
    """A launch of d = scales * (a b) + bias; a is [m, k] and b [k, n], of any strides."""
    (m, k), n = a.shape, b.shape[1]
    if a.element_size() == 4:
        bm, bn, bk, warps, stages = 64, 64, 32, 4, 3
    elif a.element_size() == 1:
        bm, bn, bk, warps, stages = 128, 128, 128, 8, 3
    else:
        bm, bn, bk, warps, stages = 128, 128, 64, 8, 3
    if m <= 64:
        bm = 16 if m <= 16 else 64
    strides = lambda x, i: 0 if x is None or x.dim() <= i else x.stride(i)  # noqa: E731
    scales = [strides(a_scale, 0), strides(a_scale, 1), strides(b_scale, 0), strides(b_scale, 1)]
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)

    def launch() -> None:
        _gemm[grid](
            a,
            b,
            d,
            bias,
            a_scale,
            b_scale,
            m,
            n,
            k,
            *a.stride(),
            *b.stride(),
            *d.stride(),
            *scales,
            BIAS=bias is not None,
            SCALE=scale,
            PRECISION="tf32" if tf32 else _PRECISION.get(a.dtype, "tf32"),
            BM=bm,
            BN=bn,
            BK=bk,
            GROUP=8,
            num_warps=warps,
            num_stages=stages,
        )

    return launch


@triton.jit
def _attention(
    q,
    k,
    v,
    o,
    lse,
    scale,
    heads,
    group,
    queries,
    keys,
    width,
    q_b,
    q_h,
    q_s,
    q_d,
    k_b,
    k_h,
    k_s,
    k_d,
    v_b,
    v_h,
    v_s,
    v_d,
    o_b,
    o_h,
    o_s,
    o_d,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    LSE: tl.constexpr,
    PRECISION: tl.constexpr,
    BQ: tl.constexpr,
    BKEYS: tl.constexpr,
    BD: tl.constexpr,
):
    """BQ queries of one head against tiles of keys, softmax on the way; the last query is at the last key."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest rows of a causal mask first
    batch, head = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    key_head = head // group
    at_q = tile * BQ + tl.arange(0, BQ)
    at_d = tl.arange(0, BD)
    in_q, in_d = at_q < queries, at_d < width
    x = tl.load(
        q + batch * q_b + head.to(tl.int64) * q_h + at_q[:, None].to(tl.int64) * q_s + at_d[None, :] * q_d,
        mask=in_q[:, None] & in_d[None, :],
        other=0.0,
    )
    k += batch * k_b + key_head.to(tl.int64) * k_h
    v += batch * v_b + key_head.to(tl.int64) * v_h

    own = at_q + (keys - queries)  # the key that lies where the query does
    low, high = 0, keys
    if CAUSAL:
        high = min(keys, tile * BQ + BQ + keys - queries)
    elif WINDOW > 0:
        high = min(keys, tile * BQ + BQ - 1 + keys - queries + WINDOW)
    if WINDOW > 0:
        low = max(0, tile * BQ + keys - queries + 1 - WINDOW) // BKEYS * BKEYS

    most = tl.full((BQ,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BQ,), dtype=tl.float32)
    sums = tl.zeros((BQ, BD), dtype=tl.float32)
    for start in range(low, high, BKEYS):
        at_k = start + tl.arange(0, BKEYS)
        in_k = at_k < keys
        from_k = k + at_k[None, :].to(tl.int64) * k_s + at_d[:, None] * k_d
        y = tl.load(from_k, mask=in_k[None, :] & in_d[:, None], other=0.0)
        s = tl.dot(x, y, input_precision=PRECISION) * scale
        seen = in_k[None, :]
        if CAUSAL:
            seen = seen & (at_k[None, :] <= own[:, None])
        elif WINDOW > 0:
            seen = seen & (at_k[None, :] < own[:, None] + WINDOW)
        if WINDOW > 0:
            seen = seen & (at_k[None, :] > own[:, None] - WINDOW)
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(most, tl.max(s, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # nothing seen yet
        p = tl.exp(s - base[:, None])
        shrink = tl.exp(most - base)
        total = total * shrink + tl.sum(p, 1)
        from_v = v + at_k[:, None].to(tl.int64) * v_s + at_d[None, :] * v_d
        z = tl.load(from_v, mask=in_k[:, None] & in_d[None, :], other=0.0)
        sums = sums * shrink[:, None] + tl.dot(p.to(z.dtype), z, input_precision=PRECISION)
        most = higher

    sums = sums / tl.where(total == 0.0, 1.0, total)[:, None]
    at = o + batch * o_b + head.to(tl.int64) * o_h + at_q[:, None].to(tl.int64) * o_s + at_d[None, :] * o_d
    tl.store(at, sums.to(o.dtype.element_ty), mask=in_q[:, None] & in_d[None, :])
    if LSE:
        row = tl.where(total == 0.0, float("-inf"), most + tl.log(tl.where(total == 0.0, 1.0, total)))
        tl.store(lse + tl.program_id(1).to(tl.int64) * queries + at_q, row, mask=in_q)


def attention(q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float, causal: bool, window: int) -> Callable[[], None]:
    """A launch of attention over [b, heads, positions, d] of any strides; lse is [b, heads, positions]."""
    (b, hq, sq, d), (hkv, sk) = q.shape, k.shape[1:3]
    wide = max(16, triton.next_power_of_2(d))
    if q.element_size() == 4:
        bq, bk, warps, stages = (32, 32, 4, 1) if wide <= 128 else (16, 16, 4, 1)
    else:
        bq, bk, warps, stages = (128, 64, 8 if wide > 64 else 4, 3) if wide <= 128 else (64, 32, 4, 2)
    grid = (triton.cdiv(sq, bq), b * hq)

    def launch() -> None:
        _attention[grid](
            q,
            k,
            v,
            o,
            lse,
            scale,
            hq,
            hq // hkv,
            sq,
            sk,
            d,
            *q.stride(),
            *k.stride(),
            *v.stride(),
            *o.stride(),
            CAUSAL=causal,
            WINDOW=window,
            LSE=lse is not None,
            PRECISION=_PRECISION.get(q.dtype, "tf32"),
            BQ=bq,
            BKEYS=bk,
            BD=wide,
            num_warps=warps,
            num_stages=stages,
        )

    return launch
