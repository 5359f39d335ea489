"""YOLOv3's backbone: Darknet-53 without its classifier (Redmon and Farhadi 2018)."""

from torch import nn


def _conv(inputs, outputs, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1, inplace=True),
    )


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels // 2, 1), _conv(channels // 2, channels, 3))

    def forward(self, x):
        return x + self.body(x)


def darknet53():
    """Its output is what YOLOv3's coarsest head reads: 1024 channels at 1/32."""
    layers = [_conv(3, 32, 3)]
    channels = 32
    for blocks in (1, 2, 8, 8, 4):
        layers.append(_conv(channels, 2 * channels, 3, 2))
        channels *= 2
        layers += [Residual(channels) for _ in range(blocks)]
    return nn.Sequential(*layers)
