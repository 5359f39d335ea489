"""The UNets of Stable Diffusion 1 and SDXL, and the decoder of their VAE.

Rombach et al. 2022 and Podell et al. 2023, with the layer sizes of the released
models, so that the number of parameters is the published one. Text, pooled and
time embeddings are inputs of the shapes that the models take.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


def _attend(q, k, v):
    """batch x heads x tokens x features."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v)
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs, time=None, eps=1e-5):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, inputs, eps)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs) if time else None
        self.norm2 = nn.GroupNorm(32, outputs, eps)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, embedding=None):
        y = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(F.silu(embedding))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels, heads, context):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(channels, channels, bias=False)
        self.k = nn.Linear(context, channels, bias=False)
        self.v = nn.Linear(context, channels, bias=False)
        self.out = nn.Linear(channels, channels)

    def forward(self, x, context=None):
        context = x if context is None else context
        split = lambda t: t.reshape(t.shape[0], t.shape[1], self.heads, -1).transpose(1, 2)
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


class TransformerBlock(nn.Module):
    def __init__(self, channels, heads, context):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.own = Attention(channels, heads, channels)
        self.cross = Attention(channels, heads, context)
        self.feed = GatedFeedForward(channels)

    def forward(self, x, context):
        x = x + self.own(self.norms[0](x))
        x = x + self.cross(self.norms[1](x), context)
        return x + self.feed(self.norms[2](x))


class Transformer(nn.Module):
    """Of the pixels of an image. SD 1 projects by 1x1 convolutions, SDXL by linear layers."""

    def __init__(self, channels, heads, context, depth, linear):
        super().__init__()
        self.linear = linear
        self.norm = nn.GroupNorm(32, channels, eps=1e-6)
        self.proj_in = nn.Linear(channels, channels) if linear else nn.Conv2d(channels, channels, 1)
        self.blocks = nn.ModuleList(TransformerBlock(channels, heads, context) for _ in range(depth))
        self.proj_out = nn.Linear(channels, channels) if linear else nn.Conv2d(channels, channels, 1)

    def forward(self, x, context):
        n, c, h, w = x.shape
        y = self.norm(x)
        if not self.linear:
            y = self.proj_in(y)
        y = y.permute(0, 2, 3, 1).reshape(n, h * w, c)
        if self.linear:
            y = self.proj_in(y)
        for block in self.blocks:
            y = block(y, context)
        if self.linear:
            y = self.proj_out(y)
        y = y.reshape(n, h, w, c).permute(0, 3, 1, 2)
        if not self.linear:
            y = self.proj_out(y)
        return x + y


class Upsample(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class UNet(nn.Module):
    """levels: channels, number of transformer blocks (0: none) per level, finest first."""

    def __init__(self, levels, middle, heads, context, linear, added=0):
        super().__init__()
        first = levels[0][0]
        time = 4 * first
        self.frequencies = first
        self.time = nn.Sequential(nn.Linear(first, time), nn.SiLU(), nn.Linear(time, time))
        self.added = nn.Sequential(nn.Linear(added, time), nn.SiLU(), nn.Linear(time, time)) if added else None
        attention = lambda channels, depth: Transformer(channels, heads(channels), context, depth, linear)

        self.stem = nn.Conv2d(4, first, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, channels = [first], first
        for level, (width, depth) in enumerate(levels):
            for _ in range(2):
                parts = [ResBlock(channels, width, time)] + ([attention(width, depth)] if depth else [])
                self.down.append(nn.ModuleList(parts))
                channels = width
                skips.append(channels)
            if level + 1 < len(levels):
                self.down.append(nn.ModuleList([nn.Conv2d(channels, channels, 3, 2, 1)]))
                skips.append(channels)
        self.middle = nn.ModuleList([ResBlock(channels, channels, time), attention(channels, middle), ResBlock(channels, channels, time)])
        for level, (width, depth) in reversed(list(enumerate(levels))):
            for block in range(3):
                parts = [ResBlock(channels + skips.pop(), width, time)] + ([attention(width, depth)] if depth else [])
                channels = width
                if block == 2 and level > 0:
                    parts.append(Upsample(channels))
                self.up.append(nn.ModuleList(parts))
        self.head = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1))

    def forward(self, x, step, context, added=None):
        half = self.frequencies // 2
        rates = torch.exp(torch.arange(half, device=x.device, dtype=torch.float32) * (-math.log(10000.0) / half))
        angles = step.float()[:, None] * rates
        embedding = self.time(torch.cat([angles.cos(), angles.sin()], 1).to(x.dtype))
        if self.added is not None:
            embedding = embedding + self.added(added)
        x = self.stem(x)
        skips = [x]
        for parts in self.down:
            x = self._run(parts, x, embedding, context)
            skips.append(x)
        x = self._run(self.middle, x, embedding, context)
        for parts in self.up:
            x = self._run(parts, torch.cat([x, skips.pop()], 1), embedding, context)
        return self.head(x)

    @staticmethod
    def _run(parts, x, embedding, context):
        for part in parts:
            if isinstance(part, ResBlock):
                x = part(x, embedding)
            elif isinstance(part, Transformer):
                x = part(x, context)
            else:
                x = part(x)
        return x


def sd_unet():
    """Stable Diffusion 1: latents of 4x64x64, 77 tokens of 768."""
    return UNet([(320, 1), (640, 1), (1280, 1), (1280, 0)], 1, lambda channels: 8, 768, linear=False)


def sdxl_unet():
    """SDXL: latents of 4x128x128, 77 tokens of 2048, an added embedding of 2816."""
    return UNet([(320, 0), (640, 2), (1280, 10)], 10, lambda channels: channels // 64, 2048, linear=True, added=2816)


class PixelAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels, eps=1e-6)
        self.qkv = nn.ModuleList(nn.Linear(channels, channels) for _ in range(3))
        self.out = nn.Linear(channels, channels)

    def forward(self, x):
        n, c, h, w = x.shape
        y = self.norm(x).permute(0, 2, 3, 1).reshape(n, 1, h * w, c)
        y = self.out(_attend(*(linear(y) for linear in self.qkv)))
        return x + y.reshape(n, h, w, c).permute(0, 3, 1, 2)


def vae_decoder():
    """Latents of 4 x H x W to images of 3 x 8H x 8W; the 1x1 convolution in front included."""
    block = lambda inputs, outputs: ResBlock(inputs, outputs, eps=1e-6)
    layers = [nn.Conv2d(4, 4, 1), nn.Conv2d(4, 512, 3, padding=1)]
    layers += [block(512, 512), PixelAttention(512), block(512, 512)]
    channels = 512
    for level, width in enumerate((512, 512, 256, 128)):
        for _ in range(3):
            layers.append(block(channels, width))
            channels = width
        if level < 3:
            layers.append(Upsample(channels))
    layers += [nn.GroupNorm(32, channels, eps=1e-6), nn.SiLU(), nn.Conv2d(channels, 3, 3, padding=1)]
    return nn.Sequential(*layers)
