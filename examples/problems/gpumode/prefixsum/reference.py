import torch
from task import input_t, output_t


def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    return torch.randn(size, device="cuda", dtype=torch.float32, generator=gen).contiguous()


def ref_kernel(data: input_t) -> output_t:
    return torch.cumsum(data.to(torch.float64), dim=0).to(torch.float32)


def check_implementation(data: input_t, output: output_t) -> str:
    # Errors of a scan grow with its length.
    scale = data.numel() ** 0.5
    expected = ref_kernel(data)
    if torch.allclose(output, expected, rtol=1e-5 * scale, atol=1e-5 * scale):
        return ""
    return "mismatch"
