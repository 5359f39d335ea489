"""The UNet of Stable Diffusion 1 (Rombach et al. 2022), with the layer sizes of the released model.

The number of parameters is therefore the published one. Text embeddings and
time steps are inputs of the shapes that the model takes.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

HEADS, CONTEXT = 8, 768
WIDTHS = (320, 640, 1280, 1280)  # finest first; all but the last have transformers
TIME = 4 * WIDTHS[0]


def _attend(q, k, v):
    """batch x heads x tokens x features."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v)
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(TIME, outputs)
        self.norm2 = nn.GroupNorm(32, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, embedding, context):
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(embedding))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels, context):
        super().__init__()
        self.q = nn.Linear(channels, channels, bias=False)
        self.k = nn.Linear(context, channels, bias=False)
        self.v = nn.Linear(context, channels, bias=False)
        self.out = nn.Linear(channels, channels)

    def forward(self, x, context=None):
        context = x if context is None else context
        split = lambda t: t.reshape(t.shape[0], t.shape[1], HEADS, -1).transpose(1, 2)
        y = _attend(split(self.q(x)), split(self.k(context)), split(self.v(context)))
        return self.out(y.transpose(1, 2).reshape(x.shape))


class GatedFeedForward(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.proj = nn.Linear(channels, 8 * channels)
        self.out = nn.Linear(4 * channels, channels)

    def forward(self, x):
        value, gate = self.proj(x).chunk(2, dim=-1)
        return self.out(value * F.gelu(gate))


class Transformer(nn.Module):
    """One block over the pixels of an image, between two 1x1 convolutions."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels, eps=1e-6)
        self.proj_in = nn.Conv2d(channels, channels, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.own = Attention(channels, channels)
        self.cross = Attention(channels, CONTEXT)
        self.feed = GatedFeedForward(channels)
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x, embedding, context):
        n, c, h, w = x.shape
        y = self.proj_in(self.norm(x)).permute(0, 2, 3, 1).reshape(n, h * w, c)
        y = y + self.own(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), context)
        y = y + self.feed(self.norms[2](y))
        return x + self.proj_out(y.reshape(n, h, w, c).permute(0, 3, 1, 2))


class Resize(nn.Module):
    """Halves an image with a strided convolution, or doubles it in front of one."""

    def __init__(self, channels, stride):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride, 1)

    def forward(self, x, embedding, context):
        return self.conv(x if self.conv.stride[0] == 2 else F.interpolate(x, scale_factor=2.0, mode="nearest"))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        first = channels = WIDTHS[0]
        self.time = nn.Sequential(nn.Linear(first, TIME), nn.SiLU(), nn.Linear(TIME, TIME))
        self.stem = nn.Conv2d(4, first, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, last = [first], len(WIDTHS) - 1
        attention = lambda level, width: [Transformer(width)] if level < last else []
        for level, width in enumerate(WIDTHS):
            for _ in range(2):
                self.down.append(nn.ModuleList([ResBlock(channels, width), *attention(level, width)]))
                channels = width
                skips.append(channels)
            if level < last:
                self.down.append(nn.ModuleList([Resize(channels, 2)]))
                skips.append(channels)
        self.middle = nn.ModuleList([ResBlock(channels, channels), Transformer(channels), ResBlock(channels, channels)])
        for level, width in reversed(list(enumerate(WIDTHS))):
            for block in range(3):
                parts = [ResBlock(channels + skips.pop(), width), *attention(level, width)]
                channels = width
                if block == 2 and level > 0:
                    parts.append(Resize(channels, 1))
                self.up.append(nn.ModuleList(parts))
        self.head = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1))

    def forward(self, x, step, context):
        half = WIDTHS[0] // 2
        rates = torch.exp(torch.arange(half, device=x.device, dtype=torch.float32) * (-math.log(10000.0) / half))
        angles = step.float()[:, None] * rates
        embedding = self.time(torch.cat([angles.cos(), angles.sin()], 1).to(x.dtype))
        x = self.stem(x)
        skips = [x]
        for parts in [*self.down, self.middle]:
            for part in parts:
                x = part(x, embedding, context)
            skips.append(x)
        skips.pop()  # the middle's own
        for parts in self.up:
            x = torch.cat([x, skips.pop()], 1)
            for part in parts:
                x = part(x, embedding, context)
        return self.head(x)
