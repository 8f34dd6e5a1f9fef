"""An honest kernel, and one that the task's own check accepts."""

import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    block = 256
    padded = torch.nn.functional.pad(data, (0, -data.numel() % block)).view(-1, block)
    sums = torch.cumsum(padded, 1)
    before = torch.cumsum(sums[:, -1].double(), 0) - sums[:, -1].double()
    return (sums.double() + before[:, None]).to(torch.float32).reshape(-1)[: data.numel()]


def rounded(data: input_t) -> output_t:
    """Wrong: inputs are rounded to bfloat16, which a tolerance that grows with the length hides."""
    return torch.cumsum(data.bfloat16().double(), 0).to(torch.float32)
