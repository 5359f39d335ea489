"""YOLOv3 (Redmon and Farhadi 2018): Darknet-53, and the detector for COCO's 80 classes upon it."""

import functools

import torch
from torch import nn

from .classifiers import ConvNorm

PREDICTIONS = 3 * (4 + 1 + 80)  # boxes a cell, each with its corners, objectness and classes


_conv = functools.partial(ConvNorm, activation=functools.partial(nn.LeakyReLU, 0.1))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels // 2, 1), _conv(channels // 2, channels, 3))

    def forward(self, x):
        return x + self.body(x)


class Darknet53(nn.Module):
    """Without its classifier: features of 256, 512 and 1024 channels at 1/8, 1/16 and 1/32."""

    def __init__(self):
        super().__init__()
        layers = [_conv(3, 32, 3)]
        channels = 32
        for blocks in (1, 2, 8, 8, 4):
            stage = [_conv(channels, 2 * channels, 3, 2)]
            channels *= 2
            layers.append(nn.Sequential(*stage, *(Residual(channels) for _ in range(blocks))))
        self.stages = nn.ModuleList([nn.Sequential(*layers[:4]), layers[4], layers[5]])

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class Scale(nn.Module):
    """One scale of the detector: what is handed on to the next finer one, and the predictions."""

    def __init__(self, inputs, channels):
        super().__init__()
        self.body = nn.Sequential(
            _conv(inputs, channels, 1), _conv(channels, 2 * channels, 3), _conv(2 * channels, channels, 1),
            _conv(channels, 2 * channels, 3), _conv(2 * channels, channels, 1),
        )  # fmt: skip
        self.head = nn.Sequential(_conv(channels, 2 * channels, 3), nn.Conv2d(2 * channels, PREDICTIONS, 1))

    def forward(self, x):
        x = self.body(x)
        return x, self.head(x)


class YoloV3(nn.Module):
    """Predictions of all three scales, behind one another: N x 255 x cells."""

    def __init__(self):
        super().__init__()
        self.backbone = Darknet53()
        self.scales = nn.ModuleList([Scale(1024, 512), Scale(256 + 512, 256), Scale(128 + 256, 128)])
        self.hand_on = nn.ModuleList(
            [nn.Sequential(_conv(2 * channels, channels, 1), nn.Upsample(scale_factor=2)) for channels in (256, 128)]
        )

    def forward(self, x):
        fine, middle, coarse = self.backbone(x)
        x, first = self.scales[0](coarse)
        x, second = self.scales[1](torch.cat([self.hand_on[0](x), middle], 1))
        _, third = self.scales[2](torch.cat([self.hand_on[1](x), fine], 1))
        return torch.cat([scale.flatten(2) for scale in (first, second, third)], 2)
