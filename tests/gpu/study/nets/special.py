"""Two cases that are hard for a search, as modules."""

import torch
from torch import nn


def conv_transpose1d():
    """On 16 x 1000 x 100: cuDNN's own search of it is known to take minutes."""
    return nn.ConvTranspose1d(1000, 1, 10000, stride=1000)


class Varying(nn.Module):
    """Three convolutions at 16 sizes: what a server sees whose inputs are not of one size."""

    SIZES = tuple(range(33, 65, 2))

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(64, 128, 3, padding=1, bias=False), nn.ReLU(),
            nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.ReLU(),
            nn.Conv2d(128, 64, 1, bias=False),
        )  # fmt: skip

    def forward(self, x):
        return torch.stack([self.body(x[:, :, :size, :size].contiguous(memory_format=self._format(x))).float().mean() for size in self.SIZES])

    @staticmethod
    def _format(x):
        nhwc = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        return torch.channels_last if nhwc else torch.contiguous_format
