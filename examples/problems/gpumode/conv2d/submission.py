"""An honest kernel, and one that the task's own check accepts."""

import torch
import torch.nn.functional as F
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, w = data
    patches = F.unfold(x, w.shape[-2:])
    y = torch.einsum("ok,bkp->bop", w.flatten(1), patches)
    return y.reshape(x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1, -1)


def narrow(data: input_t) -> output_t:
    """Wrong: the result goes through bfloat16, which the relative tolerance hides."""
    return custom_kernel(data).bfloat16().float()
