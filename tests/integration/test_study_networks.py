"""The study's networks and its peers, on a CPU, in any Python of this machine that has torch."""

import json
import os
import subprocess

import pytest

from harness import study
from harness.needs import missing

from steps import networks

# PyTorch alone takes seconds to load in each process.
pytestmark = pytest.mark.long

COUNT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import nets

parameters = {name: sum(p.numel() for p in nets.build(name).parameters()) for name in nets.NETWORKS}
published = {name: network.parameters for name, network in nets.NETWORKS.items()}
listed = json.loads(sys.argv[2])
print(json.dumps([parameters, published, {name: nets.problems(name, batch) for name, batch in listed.items()}]))
"""

# Of real tensors: where they lie as the network runs. Those of one pixel lie as both.
LAYOUTS = """
import json, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import nets, torch
import convtune.torch

found = {}
for name in ("resnet50", "efficientnet_b0", "yolov3"):
    workload = convtune.torch.problems(nets.build(name, "cpu"), nets.inputs(name, 1, "cpu"))
    found[name] = [str(p) for p in workload.most_work_first() if p.layout != "nhwc"]
print(json.dumps(found))
"""

LARGEST = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import nets
found = {}
for name in ("resnet50", "efficientnet_b0", "resnext50", "yolov3", "unet"):
    module = nets.build(name, "cpu")
    largest = []
    for part in module.modules():
        if isinstance(part, (torch.nn.Conv2d, torch.nn.Linear)):
            part.register_forward_hook(lambda m, x, y: largest.append(float(y.abs().max())))
    (x,) = nets.inputs(name, 1, "cpu")
    with torch.no_grad():
        module(x[:, :, :64, :64].contiguous(memory_format=torch.channels_last))
    found[name] = [min(largest), max(largest)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def python():
    found = study.torch_python()
    if found is None:
        missing("torch", "python3-torch")
    return found


def run(python, code, *arguments):
    """One thread: tests run beside each other, and threads that wait for their turn spin."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([python, "-c", code, str(study.STUDY), *arguments], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def counted(python):
    return run(python, COUNT, json.dumps({name: network.batch for name, network in networks().items()}))


def test_networks_have_the_published_number_of_parameters(counted):
    parameters, published, _ = counted
    assert parameters == published
    millions = {"resnet50": 25.557, "resnext50": 25.029, "efficientnet_b0": 5.289, "unet": 31.038, "yolov3": 61.949, "sd_unet": 859.521}
    assert {name: round(count / 1e6, 3) for name, count in parameters.items()} == millions


@pytest.mark.parametrize("name", list(networks()))
def test_the_lists_that_the_study_carries_are_those_of_its_networks(counted, ct, name):
    """The study asks for tensors of one pixel as nhwc; their canonical text is nchw."""
    listed = networks()[name].problems.items()
    assert list(counted[2][name].items()) == [(ct.problem_key.canonical(text), count) for text, count in listed]


def test_how_many_convolutions_there_are():
    """YOLOv3: Darknet-53's 52 and 23 of the detector. UNet: 4 of its 23 are transposed."""
    assert {name: n.convolutions for name, n in networks().items()} == {
        "resnet50": 53, "resnext50": 53, "efficientnet_b0": 81, "unet": 23, "yolov3": 75, "sd_unet": 98
    }  # fmt: skip
    assert sum(n for text, n in networks()["unet"].problems.items() if text.startswith("bwd_data")) == 4


def test_networks_keep_channels_last(python):
    for name, others in run(python, LAYOUTS, str(study.REPO / "client" / "python")).items():
        assert all("x1x1,w=" in text for text in others), name


def test_activations_are_numbers_that_f16_holds(python):
    """Neither infinite nor all lost: weights are random, not trained."""
    for name, (least, most) in run(python, LARGEST).items():
        assert 1e-4 < least and most < 2**14, name


class Peer:
    """A peer on the CPU."""

    def __init__(self, python, **env):
        env = {**os.environ, "OMP_NUM_THREADS": "1", **env}
        self.process = subprocess.Popen(
            [python, str(study.STUDY / "peer.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        self.imported = json.loads(self.process.stdout.readline())["imported"]

    def __call__(self, do, **more):
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()


def test_peers_stay_and_replay_and_compare_their_outputs(python, preload, tmp_path):
    """The second one has the interposer in front, which no call of cuDNN's reaches here."""
    counters = tmp_path / "counters"
    first = Peer(python)
    second = Peer(
        python, LD_PRELOAD=str(preload.preload), CONVTUNE_SNAPSHOT=str(tmp_path), CONVTUNE_PRELOAD_COUNTERS=str(counters)
    )  # fmt: skip
    for peer in (first, second):
        assert "torch" in peer("load", network="efficientnet_b0", batch=1, device="cpu", benchmark=peer is second, limit=0)
        begun = peer("first")
        assert 0 < begun["first_ms"] <= begun["first_iteration_ms"] and begun["ended"] > peer.imported
        assert peer("capture") == {}
    for _ in range(2):
        assert all(peer("replay", seconds=0.01)["us"] > 0 for peer in (first, second))
    path = str(tmp_path / "output.pt")
    assert first("save", path=path) == {}
    assert second("compare", path=path)["relative_error"] < 1e-5
    # Another network's output is of another shape: said, and the peer goes on.
    assert "no_network" in first("load", network="no_network", batch=1, device="cpu")["error"]
    assert first("replay", seconds=0.01)["count"] == 1
    first.close()
    second.close()
    assert not counters.exists()  # no call of cuDNN's came by: the parent reads that as nothing served


def test_an_output_that_is_wrong_is_measured(python, tmp_path):
    code = """
import sys, json, torch
sys.path.insert(0, sys.argv[1])
import peer
p = peer.TorchPeer()
torch.save(torch.tensor([3.0, 4.0]), sys.argv[2])
found = []
for values in ([3.0, 4.0], [3.0, 4.5], [3.0, float("nan")]):
    p.output = torch.tensor(values, dtype=torch.float16)
    found.append(p.compare(sys.argv[2])["relative_error"])
print(json.dumps(found))
"""
    assert run(python, code, str(tmp_path / "r.pt")) == [0.0, pytest.approx(0.1), None]


def test_pytorch_reads_the_variable_that_switches_mode_b_on(python):
    """Of the PyTorch that is here, if it is one for CUDA."""
    from peers import MODE_B

    code = "import torch, pathlib; print(pathlib.Path(torch.__file__).parent / 'lib' / 'libtorch_cuda.so')"
    library = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    if not os.path.exists(library):
        pytest.skip("this PyTorch is not for CUDA")
    with open(library, "rb") as file:
        data = file.read()
    assert all(name.encode() in data for name in MODE_B)
