"""The six networks: built without weights, then filled on a device.

build(name) gives the module, inputs(name, batch) its inputs. Weights are
random: only shapes, types and magnitudes matter here, and nothing can be
downloaded where the study runs.
"""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import nn

from . import classifiers, diffusion, unet, yolo


@dataclasses.dataclass(frozen=True)
class Network:
    make: Callable[[], nn.Module]
    # Shapes of one sample of each input. An entry of no dimensions is a time step.
    sample: tuple[tuple[int, ...], ...]
    # Published number of parameters.
    parameters: int
    # Variance of the weights times fan-in. 2 keeps the size of activations behind
    # ReLUs; where many residuals add up it is less, so that f16 holds them.
    gain: float = 2.0


IMAGE = ((3, 224, 224),)
NETWORKS = {
    "resnet50": Network(classifiers.resnet50, IMAGE, 25_557_032),
    "resnext50": Network(classifiers.resnext50, IMAGE, 25_028_904),
    "efficientnet_b0": Network(classifiers.efficientnet_b0, IMAGE, 5_288_548),
    "unet": Network(unet.UNet, ((3, 256, 256),), 31_037_633),
    "yolov3": Network(yolo.YoloV3, ((3, 416, 416),), 61_949_149, gain=1.2),
    "sd_unet": Network(diffusion.UNet, ((4, 64, 64), (), (77, 768)), 859_520_964),
}


class _On(torch.overrides.TorchFunctionMode):
    """Tensors that modules make lie on one device: what torch.device(...) is as a context from torch 2.0 on."""

    MAKERS = (torch.empty, torch.zeros, torch.ones, torch.full, torch.tensor, torch.rand, torch.randn)

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in self.MAKERS and kwargs.get("device") is None:
            kwargs["device"] = self.device
        return function(*args, **kwargs)


def build(name, device="meta", dtype=torch.float32):
    """The network in channels-last layout; on the meta device without values."""
    with _On("meta"):
        module = NETWORKS[name].make()
    module = module.to(dtype).eval()
    if str(device) != "meta":
        module = module.to_empty(device=device)
        fill(module, NETWORKS[name].gain)
    return module.to(memory_format=torch.channels_last)


def fill(module, gain, seed=1):
    """Weights drawn so that activations keep their size; norms are the identity."""
    devices = {p.device.type for p in module.parameters()}
    generator = torch.Generator(device=devices.pop()).manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            for name, tensor in part.named_parameters(recurse=False):
                if tensor.dim() > 1:
                    fan_in = tensor[0].numel()
                    tensor.normal_(0.0, math.sqrt(gain / fan_in) / (2 if isinstance(part, nn.Linear) else 1), generator=generator)
                else:
                    tensor.fill_(1.0 if name == "weight" else 0.0)
            for name, tensor in part.named_buffers(recurse=False):
                tensor.fill_(1 if name == "running_var" else 0)


def inputs(name, batch, device="meta", dtype=torch.float32, seed=2):
    """Normal random inputs; time steps are 500."""
    made = []
    generator = None if str(device) == "meta" else torch.Generator(device=device).manual_seed(seed)
    for sample in NETWORKS[name].sample:
        if not sample:
            made.append(torch.full((batch,), 500, device=device, dtype=torch.int64))
            continue
        tensor = torch.empty((batch, *sample), device=device, dtype=dtype)
        if generator is not None:
            tensor.normal_(generator=generator)
        if len(sample) == 3:
            tensor = tensor.to(memory_format=torch.channels_last)
        made.append(tensor)
    return tuple(made)


def problems(name, batch):
    """{problem: how often an iteration runs it}, most work first, as networks.json keeps it. Needs the repository's Python client."""
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "client" / "python"))
    try:
        import convtune.torch
    finally:
        sys.path.pop(0)
    # On the meta device PyTorch's convolutions lose channels-last, which on a GPU they keep.
    found = convtune.torch.problems(build(name), inputs(name, batch), dtype="f16", layout="nhwc")
    return {str(p): found.count(p) for p in found.most_work_first()}
