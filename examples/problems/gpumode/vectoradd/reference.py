import torch
from task import input_t, output_t


def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.randn(size, size, device="cuda", dtype=torch.float16, generator=gen).contiguous()
    b = torch.randn(size, size, device="cuda", dtype=torch.float16, generator=gen).contiguous()
    return a, b, torch.empty(size, size, device="cuda", dtype=torch.float16)


def ref_kernel(data: input_t) -> output_t:
    a, b, c = data
    c[...] = a + b
    return c


def check_implementation(data: input_t, output: output_t):
    expected = ref_kernel(data)
    if not torch.allclose(output.float(), expected.float(), rtol=1e-3, atol=1e-2):
        return False, "mismatch"
    return True, ""
