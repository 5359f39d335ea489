"""The networks of the study: built without weights, then filled on a device.

build(name) gives the module, inputs(name, batch) its inputs' shapes. Weights are
random: only shapes, types and magnitudes matter here, and nothing can be
downloaded where the study runs.
"""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import nn

from . import classifiers, diffusion, special, unet, yolo


@dataclasses.dataclass(frozen=True)
class Network:
    make: Callable[[], nn.Module]
    # Shapes of one sample of each input. An entry of no dimensions is a time step.
    sample: tuple[tuple[int, ...], ...]
    # Published number of parameters; 0: the network is of this study alone.
    parameters: int = 0
    # Variance of the weights times fan-in. 2 keeps the size of activations behind
    # ReLUs; where many residuals add up it is less, so that f16 holds them.
    gain: float = 2.0
    # Batch of the inputs where it is part of the network and not to be chosen.
    batch: int = 0


IMAGE = ((3, 224, 224),)
NETWORKS = {
    "resnet50": Network(classifiers.resnet50, IMAGE, 25_557_032),
    "resnext50": Network(classifiers.resnext50, IMAGE, 25_028_904),
    "mobilenet_v2": Network(classifiers.mobilenet_v2, IMAGE, 3_504_872),
    "efficientnet_b0": Network(classifiers.efficientnet_b0, IMAGE, 5_288_548),
    "convnext_tiny": Network(classifiers.convnext_tiny, IMAGE, 28_589_128),
    "yolov3": Network(yolo.YoloV3, ((3, 416, 416),), 61_949_149, gain=1.2),
    "unet": Network(unet.UNet, ((3, 256, 256),), 31_037_633),
    "sd_unet": Network(diffusion.sd_unet, ((4, 64, 64), (), (77, 768)), 859_520_964),
    "sdxl_unet": Network(diffusion.sdxl_unet, ((4, 128, 128), (), (77, 2048), (2816,)), 2_567_463_684),
    "vae_decoder": Network(diffusion.vae_decoder, ((4, 64, 64),), 49_490_199),
    "conv_transpose1d": Network(special.conv_transpose1d, ((1000, 100),), 10_000_001, batch=16),
    "varying": Network(special.Varying, ((64, 63, 63),)),
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


def build(name, device="meta", dtype=torch.float32, layout="nhwc"):
    """The network, its parameters uninitialised (fill() makes them)."""
    with _On("meta"):
        module = NETWORKS[name].make()
    module = module.to(dtype).eval()
    if str(device) != "meta":
        module = module.to_empty(device=device)
        fill(module, NETWORKS[name].gain)
    if layout == "nhwc":
        module = module.to(memory_format=torch.channels_last)
    return module


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
                    tensor.fill_(1.0 if name in ("weight", "scale") else 0.0)
            for name, tensor in part.named_buffers(recurse=False):
                tensor.fill_(1 if name == "running_var" else 0)


def inputs(name, batch, device="meta", dtype=torch.float32, layout="nhwc", seed=2):
    """Normal random inputs, half of them cut to zero as after a ReLU for what is an image."""
    network = NETWORKS[name]
    count = network.batch or batch
    made = []
    generator = None if str(device) == "meta" else torch.Generator(device=device).manual_seed(seed)
    for sample in network.sample:
        if not sample:
            made.append(torch.full((count,), 500, device=device, dtype=torch.int64))
            continue
        tensor = torch.empty((count, *sample), device=device, dtype=dtype)
        if generator is not None:
            tensor.normal_(generator=generator)
        if len(sample) == 3 and layout == "nhwc":
            tensor = tensor.to(memory_format=torch.channels_last)
        made.append(tensor)
    return tuple(made)
