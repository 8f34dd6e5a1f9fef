"""Candidates for 3_layernorm.py."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=shape)

    def forward(self, x):
        axes = tuple(range(-self.ln.weight.dim(), 0))
        centred = x - x.mean(axes, keepdim=True)
        rstd = torch.rsqrt(centred.square().mean(axes, keepdim=True) + self.ln.eps)
        return torch.addcmul(self.ln.bias, centred * rstd, self.ln.weight)


class NoWeight(nn.Module):
    """Wrong: leaves out weight and bias, which are ones and zeros in a fresh model."""

    def __init__(self, shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=shape)

    def forward(self, x):
        return nn.functional.layer_norm(x, self.ln.normalized_shape, None, None, self.ln.eps)
