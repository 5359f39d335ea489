"""convtune.torch against models made here, in any Python of the machine that has torch."""

import json

import pytest

from harness import python_package, study
from harness.needs import missing

SCRIPT = """
import json, sys, torch
from collections import OrderedDict
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

# ResNet's, in place as its own code is.
class Block(nn.Module):
    def __init__(self, shortcut=False):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.shortcut = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8)) if shortcut else None
        self.relu = nn.ReLU(inplace=True)
    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += x if self.shortcut is None else self.shortcut(x)
        return self.relu(out)

class ReadTwice(nn.Module):
    def __init__(self, given=False):
        super().__init__()
        self.conv, self.given = nn.Conv2d(8, 8, 1), given
    def forward(self, x):
        y = self.conv(x)
        return (F.relu(y), y if self.given else y.sum())

# The convolution is the addition's second operand.
class Behind(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 1)
    def forward(self, x):
        return F.relu(x + self.conv(x))

FUSED = {
    "block": Block(), "shortcut": Block(True), "read twice": ReadTwice(), "given": ReadTwice(True), "behind": Behind(),
    "sequence": nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Sigmoid(), nn.Conv2d(8, 8, 1)),
    "channels last": nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last),
}
for name, model in FUSED.items():
    x = torch.zeros(1, 8, 9, 9)
    out[name] = [[p.w[2], p.epilogue, n] for p, n in convtune.torch.problems(model, x, runtime="torchscript").items()]
    assert {p.epilogue for p in convtune.torch.problems(model, x)} == {""}
out["fused"] = [p.epilogue for p in convtune.torch.problems(FUSED["sequence"], x, runtime="fused")]
one_d = nn.Sequential(nn.Conv1d(8, 8, 1), nn.ReLU())
out["one, fused"] = [p.epilogue for p in convtune.torch.problems(one_d, torch.zeros(1, 8, 9), runtime="torchscript")]
out["notices"] = convtune.torch.problems(nn.Linear(3, 3), torch.zeros(1, 3)).notices

refused = {
    "lazy on meta": (lambda: (nn.LazyConv2d(4, 3).to("meta"), torch.zeros(1, 3, 9, 9, device="meta")), {}),
    "lazy": (lambda: (nn.LazyConv2d(4, 3), torch.zeros(1, 3, 9, 9)), {}),
    "lazy backward": (lambda: (nn.LazyConv2d(4, 3), torch.zeros(1, 3, 9, 9)), {"backward": True}),
    "lazy within": (lambda: (nn.Sequential(OrderedDict(body=nn.Sequential(nn.LazyConv2d(4, 3)))), torch.zeros(1, 3, 9, 9)), {}),
    "empty": (lambda: (nn.Conv2d(3, 4, 3), torch.zeros(0, 3, 9, 9)), {}),
    "runtime": (lambda: (nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 9, 9)), {"runtime": "caffe"}),
    "trained": (lambda: (nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 9, 9)), {"runtime": "fused", "backward": True}),
}
for name, (make, options) in refused.items():
    try:
        model, x = make()
        out["refused " + name] = str(list(map(str, convtune.torch.problems(model, x, **options))))
    except Exception as error:
        out["refused " + name] = f"{type(error).__name__}: {error}"

lazy = nn.LazyConv2d(4, 3)
lazy(torch.zeros(1, 3, 9, 9))
out["after a run"] = len(convtune.torch.problems(lazy.to("meta"), torch.zeros(1, 3, 9, 9, device="meta")))

class OffMeta(nn.Module):
    def forward(self, x):
        return torch.nonzero(x)
try:
    convtune.torch.problems(OffMeta(), torch.zeros(3, device="meta"))
except convtune.torch.ModelError as error:
    out["error"] = str(error)
json.dump(out, sys.stdout)
"""

# What a model asks for on the meta device, beside what it asks for on a CPU, where the tensors have their strides.
LAYOUTS = """
import json, sys, torch
import torch.nn as nn
import torch.nn.functional as F
import convtune, convtune.torch

class Squeeze(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
    def forward(self, x):
        return x * torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))

class Shuffle(nn.Module):
    def forward(self, x):
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)

class Net(nn.Module):
    def __init__(self, channels=3):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(channels, 16, 7, stride=2, padding=3), nn.BatchNorm2d(16)
        self.deep, self.squeeze, self.shuffle = nn.Conv2d(16, 16, 3, padding=1, groups=16), Squeeze(), Shuffle()
        self.point, self.up = nn.Conv2d(16, 16, 1), nn.ConvTranspose2d(16, 8, 2, stride=2)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = x + self.squeeze(self.deep(x))
        return self.up(torch.cat([self.point(self.shuffle(x)), x], 1)[:, :16])

last = torch.channels_last
MODELS = {"net": (lambda: Net(), 3), "gray": (lambda: Net(1), 1)}
# Only the input is channels-last, and an output between has one channel or one pixel.
INPUT_ALONE = {
    "one channel": lambda: nn.Sequential(nn.Conv2d(3, 1, 3), nn.Conv2d(1, 8, 3)),
    "one pixel": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Upsample(scale_factor=4), nn.Conv2d(8, 8, 3)),
    "double": lambda: nn.Conv2d(3, 8, 3).double().to(memory_format=last),
}
try:
    import torchvision
    for name in ("resnet50", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "vgg16", "convnext_tiny", "squeezenet1_1", "shufflenet_v2_x1_0"):
        MODELS[name] = (getattr(torchvision.models, name), 3)
except ImportError:
    pass
out = {"models": {}}
for name, (make, channels) in [*MODELS.items(), *[(name, (make, 3)) for name, make in INPUT_ALONE.items()]]:
    found = {}
    for device in ("cpu", "meta"):
        model = make().to(device)
        if name in MODELS:
            model = model.to(memory_format=last)
        x = torch.zeros(2, channels, 64, 64, device=device).to(memory_format=last)
        x = x.double() if name == "double" else x
        found[device] = {str(p): n for p, n in convtune.torch.problems(model, x).items()}
    out["models"][name] = found
alone = nn.Conv2d(3, 4, 3, device="meta"), torch.zeros(1, 3, 8, 8, device="meta")
mixed = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3).to(memory_format=last))
out["mixed"] = convtune.torch.problems(mixed, torch.zeros(1, 3, 8, 8)).notices
out["one"] = convtune.torch.problems(mixed, torch.zeros(1, 3, 8, 8), layout="nhwc").notices
for kind in ("cuda", "cpu"):
    with torch.autocast(kind):
        try:
            out[kind] = str(list(map(str, convtune.torch.problems(*alone))))
        except convtune.ModelError as error:
            out[kind] = str(error)
        out[kind + " named"] = [p.dtype for p in convtune.torch.problems(*alone, dtype="bf16")]
        try:
            out[kind + " real"] = str([p.dtype for p in convtune.torch.problems(nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8))])
        except convtune.ModelError as error:
            out[kind + " real"] = str(error)
json.dump(out, sys.stdout)
"""

pytestmark = pytest.mark.ci  # importing torch is most of it

T1 = "stride=1x1,dilation=1x1,groups=1"
T2 = "stride=2x2,dilation=1x1,groups=1"
F32 = "nchw,f32,acc=f32"
STEM, BODY = f"x=2x3x32x32,w=16x3x7x7,pad=3x3,{T2},{F32}", f"x=2x16x16x16,w=16x16x3x3,pad=1x1,{T1},{F32}"
UP = f"x=1x4x10x10,w=8x4x2x2,pad=0x0,{T2},{F32}"
FIRST, SECOND = (f"x=2x{c}x16x16,w=4x{c}x3x3,pad=1x1,{T1},{F32}" for c in (3, 4))
# What each model asks for, and how often.
EXPECTED = {
    "residual": {f"fwd,{STEM}": 1, f"fwd,{BODY}": 2},
    # The input has no gradient.
    "backward": {f"fwd,{STEM}": 1, f"fwd,{BODY}": 2, f"bwd_data,{BODY}": 2, f"bwd_filter,{BODY}": 2, f"bwd_filter,{STEM}": 1},
    "depthwise": {"fwd,x=1x8x9x9,w=8x1x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=8,nhwc,f32,acc=f32": 1},
    "transposed": {f"bwd_data,x=1x4x10x10,w=8x4x3x3,pad=1x1,{T2},{F32}": 1},
    "transposed backward": {f"bwd_data,{UP}": 1, f"fwd,{UP}": 1, f"bwd_filter,{UP}": 1},
    "three": {f"fwd,x=1x2x3x9x9,w=4x2x1x3x3,pad=0x0x0,stride=1x2x2,dilation=1x1x1,groups=1,{F32}": 1},
    "one": {f"fwd,x=1x80x1x30,w=16x80x1x3,pad=0x1,{T1},nchw,f16,acc=f32": 1},
    "functional": {f"fwd,x=1x4x12x12,w=4x4x3x3,pad=2x2,stride=1x1,dilation=2x2,groups=1,{F32}": 1},
    "keywords": {f"fwd,x=3x4x8x8,w=4x4x1x1,pad=0x0,{T1},{F32}": 1},
    "transposed, dilated and grouped": {f"bwd_data,x=1x8x9x9,w=8x2x3x3,pad=2x1,stride=2x2,dilation=2x1,groups=4,{F32}": 1},
    "transposed, one": {f"bwd_data,x=1x4x1x20,w=8x4x1x4,pad=0x1,stride=1x2,dilation=1x1,groups=1,{F32}": 1},
    "transposed, three": {f"bwd_data,x=1x2x6x8x10,w=4x2x2x2x2,pad=0x0x0,stride=2x2x2,dilation=1x1x1,groups=1,{F32}": 1},
    "meta": {f"fwd,x=1x4x64x64,w=4x4x3x3,pad=0x0,{T1},nhwc,f32,acc=f32": 1},
    "meta backward": dict.fromkeys([f"fwd,{FIRST}", f"fwd,{SECOND}", f"bwd_filter,{FIRST}", f"bwd_filter,{SECOND}", f"bwd_data,{SECOND}"], 1),
    "fake": {f"fwd,x=256x3x4096x4096,w=64x3x7x7,pad=3x3,{T2},{F32}": 1},
}


def printed(script):
    python = study.torch_python()
    if python is None:
        missing("torch", "python3-torch")
    result = python_package.run("-c", script, python=python)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def found():
    return printed(SCRIPT)


@pytest.fixture(scope="module")
def layouts():
    return printed(LAYOUTS)


@pytest.mark.parametrize("model", EXPECTED)
def test_a_model_asks_for(found, model):
    assert found[model] == EXPECTED[model]


def test_the_meta_device_gives_the_layouts_of_a_real_run(layouts):
    for name, devices in layouts["models"].items():
        assert devices["meta"] == devices["cpu"], name
        kinds = {problem.split(",")[-3] for problem in devices["meta"]}
        assert ("nhwc" in kinds) == (name != "double"), name
    assert all(",nhwc," in problem for problem in layouts["models"]["one channel"]["meta"])
    # All but what lies alike in both: 1x1 filters over 1x1 pixels.
    for name in ("net", "gray"):
        plain = [problem for problem in layouts["models"][name]["meta"] if ",nchw," in problem]
        assert len(plain) == 2 and all("x1x1,w=" in problem and "x1x1,pad" in problem for problem in plain), plain


def test_two_layouts_in_one_model_are_said(layouts):
    (notice,) = layouts["mixed"]
    assert notice.startswith("model: its convolutions lie in two layouts, 1 nchw and 1 nhwc: ")
    assert layouts["one"] == []


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_autocast_that_no_tensor_feels_is_refused(layouts, kind):
    assert layouts[kind].startswith("dtype: a convolution is f32 on meta, within torch.autocast, which may give it another type")
    assert layouts[f"{kind} named"] == ["bf16"]
    if kind == "cpu":
        assert layouts[f"{kind} real"] == "['bf16']"
    else:
        assert layouts[f"{kind} real"].startswith("dtype: a convolution is f32 on cpu, within torch.autocast")


def test_torchscript_fuses_a_relu_and_the_addition_before_it(found):
    fused = "add+bias+relu"
    assert found["block"] == [[3, fused, 2]]
    assert found["shortcut"] == [[3, fused, 2], [1, "", 1]]
    assert found["sequence"] == [[1, fused, 1], [1, "", 2]]
    assert found["read twice"] == found["given"] == found["behind"] == [[1, "", 1]]
    # Its filters would have to be copied: TorchScript leaves them alone.
    assert found["channels last"] == [[3, "", 1]]
    assert found["one, fused"] == [""]
    assert found["fused"] == ["bias+relu", "bias"]


def test_a_model_without_a_convolution_says_so(found):
    assert found["notices"] == ["model: there is nothing to tune: it has no convolution"]


def test_what_cannot_be_read_is_one_clear_error(found):
    assert found["refused empty"] == (
        "ModelError: model: a convolution of (0, 3, 9, 9) by (4, 3, 3, 3): "
        "x: must be at least 1 in every dimension, is 0x3x9x9"
    )
    assert found["refused runtime"].startswith("ValueError: runtime: must be one of plain, onnxruntime, ")
    assert found["refused trained"].startswith("ValueError: runtime: must be plain with backward")
    for case in ("lazy", "lazy on meta", "lazy backward", "lazy within"):
        name = "body.0" if case == "lazy within" else "it"
        assert found["refused " + case].startswith(f"ModelError: model: {name} (LazyConv2d) has no weights before"), case
    assert found["after a run"] == 1


def test_what_torch_cannot_run_on_the_meta_device_is_said(found):
    if "error" not in found:
        pytest.skip("this torch runs it on the meta device")
    assert "cannot run it on the meta device; on the CPU it can: " in found["error"]
