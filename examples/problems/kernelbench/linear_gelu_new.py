"""Candidates for 2_linear_gelu.py."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        made = nn.Linear(in_features, out_features)
        self.weight, self.bias = made.weight, made.bias

    def forward(self, x):
        y = torch.addmm(self.bias, x, self.weight.t())
        return 0.5 * y * (1 + torch.erf(y * 0.5**0.5))


class NoTail(nn.Module):
    """Wrong: a GELU that is zero wherever it is small, which the allowed error hides."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        return torch.where(y.abs() < 5e-5, 0.0, y)
