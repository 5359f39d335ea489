"""Image classifiers as their papers and torchvision have them, in plain torch.

Each function builds one network for 3x224x224 inputs and 1,000 classes; the
number of parameters is the published one, which a test checks.
"""

from torch import nn


class ConvNorm(nn.Sequential):
    """Convolution without bias, batch norm, activation or none."""

    def __init__(self, inputs, outputs, kernel, stride=1, groups=1, activation=nn.ReLU):
        layers = [
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        if activation is not None:
            layers.append(activation(inplace=True))
        super().__init__(*layers)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 and a shortcut; He et al. 2015, Xie et al. 2016 with groups."""

    def __init__(self, inputs, width, outputs, stride, groups):
        super().__init__()
        self.body = nn.Sequential(
            ConvNorm(inputs, width, 1),
            ConvNorm(width, width, 3, stride, groups),
            ConvNorm(width, outputs, 1, activation=None),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride, activation=None)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def _resnet(groups, width_per_group):
    layers = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        planes = 64 << stage
        width = planes * width_per_group // 64 * groups
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            layers.append(Bottleneck(inputs, width, planes * 4, stride, groups))
            inputs = planes * 4
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers)


def resnet50():
    return _resnet(groups=1, width_per_group=64)


def resnext50():
    """32x4d."""
    return _resnet(groups=32, width_per_group=4)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), nn.SiLU(), nn.Conv2d(squeezed, channels, 1), nn.Sigmoid()
        )

    def forward(self, x):
        return x * self.gate(x)


class MBConv(nn.Module):
    """Inverted residual with squeeze-and-excite; Tan and Le 2019."""

    def __init__(self, inputs, outputs, kernel, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        layers = [ConvNorm(inputs, hidden, 1, activation=nn.SiLU)] if expansion != 1 else []
        layers += [
            ConvNorm(hidden, hidden, kernel, stride, hidden, nn.SiLU),
            SqueezeExcite(hidden, max(1, inputs // 4)),
            ConvNorm(hidden, outputs, 1, activation=None),
        ]
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


def efficientnet_b0():
    """In evaluation the stochastic depth of the original is the identity, and left out."""
    layers = [ConvNorm(3, 32, 3, 2, activation=nn.SiLU)]
    inputs = 32
    stages = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))
    for expansion, kernel, stride, outputs, blocks in stages:
        for block in range(blocks):
            layers.append(MBConv(inputs, outputs, kernel, stride if block == 0 else 1, expansion))
            inputs = outputs
    layers += [ConvNorm(inputs, 1280, 1, activation=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, 1000))
