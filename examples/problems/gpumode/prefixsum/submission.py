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
    """Wrong: the result goes through float16, which the relative tolerance hides."""
    return custom_kernel(data).half().float()
