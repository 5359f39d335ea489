"""The plain UNet (Ronneberger, Fischer and Brox 2015), as it is trained today: padded, with batch norm."""

import torch
from torch import nn

from .classifiers import ConvNorm


def _double(inputs, outputs):
    return nn.Sequential(ConvNorm(inputs, outputs, 3), ConvNorm(outputs, outputs, 3))


class UNet(nn.Module):
    """One class for each pixel of an image whose sides are multiples of 16."""

    def __init__(self, widths=(64, 128, 256, 512, 1024)):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.first = _double(3, widths[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), _double(narrow, wide)) for narrow, wide in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, stride=2) for narrow, wide in reversed(pairs))
        self.join = nn.ModuleList(_double(wide, narrow) for narrow, wide in reversed(pairs))
        self.last = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        x = self.first(x)
        passed = []
        for down in self.down:
            passed.append(x)
            x = down(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([passed.pop(), up(x)], 1))
        return self.last(x)
