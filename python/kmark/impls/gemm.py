"""Product of two matrices: torch, Quack, DeepGEMM, FlashInfer, and kernels of ours in Triton and TileLang."""

# Annotations stay what they are, not text: TileLang reads those of its kernels.

from typing import Any, Callable

from ..registry import Unsupported, impl

_BYTE = ("f8e4m3", "f8e5m2")


def operands(case: Any, t: Any) -> tuple[Any, Any]:
    """a as [m, k] and b as [k, n]: views."""
    a = t.a.T if case["layout"][0] == "t" else t.a
    return a, (t.b.T if case["layout"][1] == "t" else t.b)


def on_tensor_cores(case: Any, launch: Callable[[], Any]) -> Callable[[], Any]:
    """`launch`, during which torch may multiply f32 by them if the case wants TF32: a setting of the process. Others
    do not pay for it."""
    import torch

    if case["tf32"] == "no":
        return launch
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32

    def allowed() -> Any:
        matmul.allow_tf32 = True
        try:
            return launch()
        finally:
            matmul.allow_tf32 = before

    return allowed


def rows_divide(case: Any, step: int) -> None:
    """Refuses operands and results whose rows are no multiple of `step` elements."""
    inner_a = case.m if case["layout"][0] == "t" else case.k
    inner_b = case.k if case["layout"][1] == "t" else case.n
    if inner_a % step or inner_b % step or case.n % step:
        raise Unsupported(f"rows must be multiples of {step} elements")


@impl("numpy", about="NumPy's matmul", devices=("cpu",), arrays="numpy", strided=True)
def numpy_(case, t):
    import numpy as np

    if case.dtype not in ("f32", "f64", "f16") or case["out"] == "bf16":
        raise Unsupported("f32, f64 and f16")
    a, b = operands(case, t)
    if case.dtype == "f16":

        def launch():  # its own product of halves sums in halves
            d = a.astype(np.float32) @ b.astype(np.float32)
            np.add(d, t.bias if t.bias is not None else 0, out=t.d, casting="unsafe")

        return launch
    if t.d.dtype != a.dtype:
        raise Unsupported(f"result in {case['out']}")

    def launch():
        np.matmul(a, b, out=t.d)
        if t.bias is not None:
            t.d += t.bias

    return launch


@impl(
    "torch",
    about="torch.mm, addmm or _scaled_mm into d",
    devices=("cpu", "cuda"),
    strided=True,
    contract=lambda case: "a,b,ones -> d" if case.dtype in _BYTE and case["scale"] == "none" else None,
)
def torch_(case, t):
    import torch

    if case.dtype in _BYTE:
        return _scaled(case, t)
    a, b = operands(case, t)
    wider = {} if t.d.dtype == a.dtype else {"out_dtype": t.d.dtype}
    if wider and (case.device == "cpu" or case["out"] != "f32"):
        raise Unsupported(f"{case.dtype} with a result in {case['out']}")

    def launch():
        if t.bias is None:
            torch.mm(a, b, out=t.d, **wider)
        else:
            torch.addmm(t.bias, a, b, out=t.d, **wider)

    return on_tensor_cores(case, launch)


def _scaled(case, t):
    """fp8 through torch._scaled_mm, sums in full precision."""
    import torch

    m, n, k = case.m, case.n, case.k
    if case.device == "cpu" or case["memory"] != "dense":
        raise Unsupported("fp8 on the GPU, dense")
    if case["layout"] != "nt" or k % 16 or n % 16:
        raise Unsupported("fp8 wants layout nt, k and n multiples of 16")
    if case.dtype == "f8e5m2":
        raise Unsupported("cuBLAS multiplies no two e5m2 matrices")
    if t.bias is not None and t.d.dtype == torch.float32:
        raise Unsupported("bias with a result in f32")
    if case["scale"] == "row":
        if t.d.dtype != torch.bfloat16:
            raise Unsupported("scales per row with a result that is not bf16")
        scales = t.a_scale.view(m, 1), t.b_scale.view(1, n)
    elif case["scale"] == "block":
        if k % 512 or n % 128 or t.bias is not None:
            raise Unsupported("scales per block want k % 512 = 0, n % 128 = 0, no bias")
        # Scales of a with rows adjacent, those of b as they are, seen from the side of [k, n].
        scales = case.arranged(lambda: t.a_scale.T.contiguous()).T, t.b_scale.T
    elif case["scale"] == "tensor":
        scales = t.a_scale, t.b_scale
    else:
        scales = torch.ones(2, 1, device=t.a.device).unbind()
    b = t.b.T

    def launch():
        torch._scaled_mm(t.a, b, *scales, bias=t.bias, out_dtype=t.d.dtype, use_fast_accum=False, out=t.d)

    return launch


@impl(
    "torch-compile",
    about="a @ b (+ bias) compiled",
    devices=("cpu", "cuda"),
    strided=True,
    contract="a,b -> d (new tensor)",
)
def torch_compile(case, t):
    import torch

    from ._compile import compiled

    if case.dtype in _BYTE or t.d.dtype != t.a.dtype:
        raise Unsupported("operands and result of one dtype, no fp8")
    a, b = operands(case, t)
    multiply = (lambda: torch.mm(a, b)) if t.bias is None else (lambda: torch.addmm(t.bias, a, b))
    launch = on_tensor_cores(case, lambda: compiled(case, multiply))()
    return on_tensor_cores(case, launch)


@impl("triton", about="A tiled product in Triton, any strides; f32 in full precision or TF32", strided=True)
def triton_(case, t):
    if case.dtype == "f64":
        raise Unsupported("no f64")
    from ._triton_matrix import gemm

    a, b = operands(case, t)
    launch = gemm(a, b, t.d, t.bias, t.a_scale, t.b_scale, case["scale"], case["tf32"] == "yes")
    with case.building():
        launch()
    return launch


def _quack(case, t, tuned):
    import torch
    from quack.gemm_interface import gemm

    if case.dtype not in ("f16", "bf16"):
        raise Unsupported(f"no {case.dtype}")
    if t.d.dtype not in (t.a.dtype, torch.float32):
        raise Unsupported(f"{case.dtype} with a result in {case['out']}")
    rows_divide(case, 8)
    a, b = operands(case, t)

    def launch():
        gemm(a, b, out=t.d, bias=t.bias, tuned=tuned)

    with case.tuning(alone=True) if tuned else case.building():
        launch()
    return launch


@impl("quack", about="Quack's CuTe DSL product, the tile it chooses by timing")
def quack(case, t):
    return _quack(case, t, True)


@impl("quack/untuned", about="Quack's CuTe DSL product, the tile of its heuristic")
def quack_untuned(case, t):
    return _quack(case, t, False)


@impl("deepgemm", about="DeepGEMM: bf16, or fp8 with scales per 1x128 and 128x128")
def deepgemm(case, t):
    import torch

    from ._attention import first_module

    deep_gemm = first_module("deep_gemm", "vllm.third_party.deep_gemm")
    if t.bias is not None or t.d.dtype not in (torch.bfloat16, torch.float32):
        raise Unsupported("no bias; results in bf16 or f32")
    if case.dtype == "bf16":
        rows_divide(case, 8)
        run = getattr(deep_gemm, f"bf16_gemm_{case['layout']}")

        def launch():
            run(t.a, t.b, t.d)

    elif case.dtype == "f8e4m3" and case["scale"] == "block" and case["layout"] == "nt":
        rows_divide(case, 16)
        if t.d.dtype != torch.bfloat16:
            raise Unsupported("fp8 with a result that is not bf16")
        a = t.a, case.arranged(lambda: deep_gemm.get_mn_major_tma_aligned_tensor(t.a_scale))

        def launch():
            deep_gemm.fp8_gemm_nt(a, (t.b, t.b_scale), t.d)

    else:
        raise Unsupported("bf16, or f8e4m3 with scales per block in layout nt")
    with case.building():
        launch()
    return launch


@impl("flashinfer", about="FlashInfer: cuDNN (bf16), cuBLAS (fp8, one scale each), block scales as DeepGEMM")
def flashinfer(case, t):
    import torch
    from flashinfer.gemm import bmm_fp8, fp8_blockscale_gemm_sm90, mm_bf16

    if case["layout"] != "nt":
        raise Unsupported("a row-major and b column-major (layout nt)")
    if case.dtype == "bf16":
        rows_divide(case, 8)
        if t.bias is not None and t.d.dtype != torch.bfloat16:
            raise Unsupported("bias with a result that is not bf16")
        backend = "cudnn" if t.bias is None else "cublaslt"  # cuDNN's takes no bias

        def launch():
            mm_bf16(t.a, t.b.T, bias=t.bias, out=t.d, out_dtype=t.d.dtype, backend=backend)

    elif t.bias is not None or t.d.dtype not in (torch.bfloat16, torch.float16):
        raise Unsupported("fp8 with a bias or a result in f32")
    elif case.dtype in _BYTE and case["scale"] == "tensor":
        rows_divide(case, 16)
        if case.dtype == "f8e5m2":
            raise Unsupported("cuBLAS multiplies no two e5m2 matrices")
        a, b, d = t.a[None], t.b.T[None], t.d[None]

        def launch():
            bmm_fp8(a, b, t.a_scale, t.b_scale, t.d.dtype, out=d)

    elif case.dtype == "f8e4m3" and case["scale"] == "block":
        if case.k % 128 or case.n % 64 or t.d.dtype != torch.bfloat16:
            raise Unsupported("k % 128 and n % 64 must be 0, the result bf16")
        # The kernel reads scales of a with rows adjacent, their number padded to 4.
        scales = case.arranged(lambda: torch.nn.functional.pad(t.a_scale.T, (0, -case.m % 4)).contiguous())

        def launch():
            fp8_blockscale_gemm_sm90(t.a, t.b, scales, t.b_scale, out=t.d)

    else:
        raise Unsupported("bf16, or fp8 with one scale each or scales per block")
    with case.building():
        launch()
    return launch


@impl("tilelang", about="A pipelined product of ours in TileLang: 128x128 tiles, whole ones only")
def tilelang_(case, t):
    if case.dtype not in ("f16", "bf16") or t.bias is not None or t.d.dtype != t.a.dtype:
        raise Unsupported("f16 and bf16, result of the same dtype, no bias")
    if case.m % 128 or case.n % 128 or case.k % 64:
        raise Unsupported("whole tiles of 128x128x64 only")
    with case.building():
        kernel = _tilelang_kernel(case)

    def launch():
        kernel(t.a, t.b, t.d)

    return launch


def _tilelang_kernel(case):
    import tilelang
    import tilelang.language as T

    m, n, k = case.m, case.n, case.k
    across_a, across_b = case["layout"][0] == "t", case["layout"][1] == "t"
    dtype = {"f16": "float16", "bf16": "bfloat16"}[case.dtype]
    bm, bn, bk = 128, 256 if n % 256 == 0 else 128, 64
    shape_a, tile_a = ((k, m), (bk, bm)) if across_a else ((m, k), (bm, bk))
    shape_b, tile_b = ((n, k), (bn, bk)) if across_b else ((k, n), (bk, bn))

    @T.prim_func
    def product(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), D: T.Tensor((m, n), dtype)):
        with T.Kernel(n // bn, m // bm, threads=256) as (x, y):
            a = T.alloc_shared(tile_a, dtype)
            b = T.alloc_shared(tile_b, dtype)
            d = T.alloc_fragment((bm, bn), "float32")
            T.use_swizzle(8)
            T.clear(d)
            for i in T.Pipelined(k // bk, num_stages=3):
                if across_a:
                    T.copy(A[i * bk, y * bm], a)
                else:
                    T.copy(A[y * bm, i * bk], a)
                if across_b:
                    T.copy(B[x * bn, i * bk], b)
                else:
                    T.copy(B[i * bk, x * bn], b)
                T.gemm(a, b, d, transpose_A=across_a, transpose_B=across_b)
            T.copy(d, D[y * bm, x * bn])

    return tilelang.compile(product)


@impl("max", about="Modular's MAX: recognised, not timed")
def max_(case, t):
    from ._max import refuse

    refuse(case)
