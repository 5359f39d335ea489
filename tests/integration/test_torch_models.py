"""convtune.torch against models made here, in any Python of the machine that has torch."""

import json

import pytest

from harness import python_package, study
from harness.needs import missing

SCRIPT = """
import json, sys, torch
import torch.nn as nn
import torch.nn.functional as F
import convtune.torch

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, stride=2, padding=3)
        self.norm = nn.BatchNorm2d(16)
        self.body = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
    def forward(self, x):
        x = self.norm(self.stem(x))
        for layer in self.body:
            x = x + F.relu(layer(x))
        return x

class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)
    def forward(self, pixels, *, scale=None):
        return self.conv(pixels) if scale is None else self.conv(pixels * scale)

class Functional(nn.Module):
    def forward(self, x, w):
        return {"a": F.conv2d(x, w, padding="same", dilation=2), "b": [x]}

MODELS = {
    "residual": (Residual().train(), torch.zeros(2, 3, 32, 32), {}),
    "backward": (Residual(), torch.zeros(2, 3, 32, 32), {"backward": True}),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8, padding=1).to(memory_format=torch.channels_last),
                  torch.zeros(1, 8, 9, 9).to(memory_format=torch.channels_last), {}),
    "transposed": (nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1), torch.zeros(1, 8, 5, 5), {}),
    "transposed backward": (nn.ConvTranspose2d(8, 4, 2, stride=2), torch.zeros(1, 8, 5, 5).requires_grad_(),
                            {"backward": True}),
    "three": (nn.Conv3d(2, 4, (1, 3, 3), stride=(1, 2, 2)), torch.zeros(1, 2, 3, 9, 9), {}),
    "one": (nn.Conv1d(80, 16, 3, padding=1, dilation=1), torch.zeros(1, 80, 30), {"dtype": "f16"}),
    "functional": (Functional(), (torch.zeros(1, 4, 12, 12), torch.zeros(4, 4, 3, 3)), {}),
    "keywords": (Keywords(), (), {"example_kwargs": {"pixels": torch.zeros(3, 4, 8, 8), "scale": torch.ones(1)}}),
    "transposed, dilated and grouped": (
        nn.ConvTranspose2d(8, 8, 3, groups=4, dilation=(2, 1), padding=(2, 1), stride=2), torch.zeros(1, 8, 5, 5), {}),
    "transposed, one": (nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1), torch.zeros(1, 8, 10), {}),
    "transposed, three": (nn.ConvTranspose3d(4, 2, 2, stride=2), torch.zeros(1, 4, 3, 4, 5), {}),
    "meta backward": (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, device="meta"), nn.ReLU(),
                                    nn.Conv2d(4, 4, 3, padding=1, device="meta")),
                      torch.zeros(2, 3, 16, 16, device="meta"), {"backward": True}),
    "meta": (nn.Conv2d(4, 4, 3, device="meta"), torch.zeros(1, 4, 64, 64, device="meta"), {"layout": "nhwc"}),
}
out = {}
for name, (model, inputs, options) in MODELS.items():
    training = model.training
    found = convtune.torch.problems(model, inputs, **options)
    assert model.training == training
    assert all(p.grad is None for p in model.parameters())
    out[name] = {str(problem): count for problem, count in found.items()}
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    fake = convtune.torch.problems(nn.Conv2d(3, 64, 7, stride=2, padding=3), torch.zeros(256, 3, 4096, 4096))
out["fake"] = {str(problem): count for problem, count in fake.items()}

class OffMeta(nn.Module):
    def forward(self, x):
        return torch.nonzero(x)
try:
    convtune.torch.problems(OffMeta(), torch.zeros(3, device="meta"))
except convtune.torch.ModelError as error:
    out["error"] = str(error)
json.dump(out, sys.stdout)
"""

pytestmark = pytest.mark.ci  # importing torch is most of it

T1 = "stride=1x1,dilation=1x1,groups=1"


@pytest.fixture(scope="module")
def found():
    python = study.torch_python()
    if python is None:
        missing("torch", "python3-torch")
    result = python_package.run("-c", SCRIPT, python=python)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_modules_with_how_often_each_runs(found):
    assert found["residual"] == {
        "fwd,x=2x3x32x32,w=16x3x7x7,pad=3x3,stride=2x2,dilation=1x1,groups=1,nchw,f32": 1,
        f"fwd,x=2x16x16x16,w=16x16x3x3,pad=1x1,{T1},nchw,f32": 2,
    }


def test_backward_has_both_gradients_but_none_of_the_input(found):
    body = f"x=2x16x16x16,w=16x16x3x3,pad=1x1,{T1},nchw,f32"
    stem = "x=2x3x32x32,w=16x3x7x7,pad=3x3,stride=2x2,dilation=1x1,groups=1,nchw,f32"
    assert found["backward"] == {
        f"fwd,{stem}": 1, f"fwd,{body}": 2, f"bwd_data,{body}": 2, f"bwd_filter,{body}": 2, f"bwd_filter,{stem}": 1,
    }  # fmt: skip


def test_channels_last_is_seen(found):
    assert list(found["depthwise"]) == [
        "fwd,x=1x8x9x9,w=8x1x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=8,nhwc,f32"
    ]


def test_transposed_convolutions_and_their_gradients(found):
    assert list(found["transposed"]) == [
        "bwd_data,x=1x4x10x10,w=8x4x3x3,pad=1x1,stride=2x2,dilation=1x1,groups=1,nchw,f32"
    ]
    same = "x=1x4x10x10,w=8x4x2x2,pad=0x0,stride=2x2,dilation=1x1,groups=1,nchw,f32"
    assert set(found["transposed backward"]) == {f"bwd_data,{same}", f"fwd,{same}", f"bwd_filter,{same}"}


def test_one_and_three_dimensions(found):
    assert list(found["three"]) == [
        "fwd,x=1x2x3x9x9,w=4x2x1x3x3,pad=0x0x0,stride=1x2x2,dilation=1x1x1,groups=1,nchw,f32"
    ]
    assert list(found["one"]) == ["fwd,x=1x80x30,w=16x80x3,pad=1,stride=1,dilation=1,groups=1,nchw,f16"]


def test_functional_calls_and_the_meta_device(found):
    assert list(found["functional"]) == [
        "fwd,x=1x4x12x12,w=4x4x3x3,pad=2x2,stride=1x1,dilation=2x2,groups=1,nchw,f32"
    ]
    assert list(found["meta"]) == [f"fwd,x=1x4x64x64,w=4x4x3x3,pad=0x0,{T1},nhwc,f32"]


def test_arguments_may_have_names(found):
    assert list(found["keywords"]) == [f"fwd,x=3x4x8x8,w=4x4x1x1,pad=0x0,{T1},nchw,f32"]


def test_every_kind_of_transposed_convolution(found):
    assert list(found["transposed, dilated and grouped"]) == [
        "bwd_data,x=1x8x9x9,w=8x2x3x3,pad=2x1,stride=2x2,dilation=2x1,groups=4,nchw,f32"
    ]
    assert list(found["transposed, one"]) == ["bwd_data,x=1x4x20,w=8x4x4,pad=1,stride=2,dilation=1,groups=1,nchw,f32"]
    assert list(found["transposed, three"]) == [
        "bwd_data,x=1x2x6x8x10,w=4x2x2x2x2,pad=0x0x0,stride=2x2x2,dilation=1x1x1,groups=1,nchw,f32"
    ]


def test_gradients_on_the_meta_device(found):
    first, second = (f"x=2x{c}x16x16,w=4x{c}x3x3,pad=1x1,{T1},nchw,f32" for c in (3, 4))
    assert set(found["meta backward"]) == {
        f"fwd,{first}", f"fwd,{second}", f"bwd_filter,{first}", f"bwd_filter,{second}", f"bwd_data,{second}",
    }  # fmt: skip


def test_fake_tensors_of_any_size(found):
    assert list(found["fake"]) == [
        "fwd,x=256x3x4096x4096,w=64x3x7x7,pad=3x3,stride=2x2,dilation=1x1,groups=1,nchw,f32"
    ]


def test_what_torch_cannot_run_on_the_meta_device_is_said(found):
    if "error" not in found:
        pytest.skip("this torch runs it on the meta device")
    assert "cannot run it on the meta device; on the CPU it can: " in found["error"]
