"""Candidates for 1_softmax.py: an honest one, and two that KernelBench's own check accepts."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)


class NoMaximum(nn.Module):
    """Wrong: does not subtract the maximum, which inputs in [0, 1) never show."""

    def forward(self, x):
        e = torch.exp(x)
        return e / e.sum(1, keepdim=True)


class Flush(nn.Module):
    """Wrong: what is below 1e-4 becomes zero, and so does the error that is allowed."""

    def forward(self, x):
        y = torch.softmax(x, dim=1)
        return torch.where(y < 1e-4, 0.0, y)
