"""An honest kernel, and one that the task's own check accepts."""

import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b, c = data
    return torch.add(a, b, out=c)


def coarse(data: input_t) -> output_t:
    """Wrong: what is smaller than 1/128 is lost, which the absolute tolerance hides."""
    a, b, c = data
    torch.add(a, b, out=c)
    return torch.where(c.abs() < 2.0**-7, 0, c)
