"""The study's networks and its processes, on a CPU, in any Python of this machine that has torch."""

import json
import os
import subprocess

import pytest

from harness import study

import runner

# PyTorch alone takes seconds to load in each process.
pytestmark = pytest.mark.long

COUNT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import nets, workloads

found = {}
for name, network in nets.NETWORKS.items():
    module = nets.build(name)
    found[name] = [sum(p.numel() for p in module.parameters()), network.parameters]
lists = {case.name: workloads.problems_of(case) for case in workloads.NETWORK_CASES + workloads.SERVING_CASES}
print(json.dumps([found, lists]))
"""


@pytest.fixture(scope="module")
def python():
    found = study.torch_python()
    if found is None:
        pytest.skip("no Python of this machine has torch (for example Debian's python3-torch)")
    return found


@pytest.fixture(scope="module")
def counted(python):
    done = subprocess.run([python, "-c", COUNT, str(study.STUDY)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "name, millions",
    [("resnet50", 25.557), ("mobilenet_v2", 3.505), ("efficientnet_b0", 5.289), ("resnext50", 25.029),
     ("convnext_tiny", 28.589), ("sd_unet", 859.521), ("sdxl_unet", 2567.464), ("vae_decoder", 49.490), ("yolov3", 61.949), ("unet", 31.038)],
)  # fmt: skip
def test_networks_have_the_published_number_of_parameters(counted, name, millions):
    has, published = counted[0][name]
    assert has == published
    assert round(has / 1e6, 3) == millions


def test_every_case_has_its_convolutions(counted):
    lists = counted[1]
    resnet = lists["resnet50-b32-f16-nhwc"]
    assert (len(resnet), sum(resnet.values())) == (23, 53)
    assert resnet["fwd,x=32x256x14x14,w=256x256x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,nhwc,f16"] == 5
    assert all(text.endswith("nchw,f32") for text in lists["resnet50-b32-f32-nchw"])
    assert any("groups=32," in text for text in lists["resnext50-b8-f16-nhwc"])
    assert list(lists["conv_transpose1d-b16-f32-nchw"]) == [
        "bwd_data,x=16x1x109000,w=1000x1x10000,pad=0,stride=1000,dilation=1,groups=1,nchw,f32"
    ]
    assert len(lists["varying-b8-f16-nhwc"]) == 48
    # 75 convolutions: Darknet-53's 52, and 23 of the detector at three scales.
    assert sum(lists["yolov3-b8-f16-nhwc"].values()) == 75
    unet = lists["unet-b8-f16-nhwc"]
    assert sum(count for text, count in unet.items() if text.startswith("fwd")) == 19
    assert sum(count for text, count in unet.items() if text.startswith("bwd_data")) == 4  # transposed ones


def test_training_has_every_gradient_but_that_of_the_image(counted):
    found = counted[1]["resnet50-b32-f16-nhwc-train"]
    by = lambda operation: {t.split(",", 1)[1]: n for t, n in found.items() if t.startswith(operation + ",")}
    forward, data, filters = by("fwd"), by("bwd_data"), by("bwd_filter")
    assert filters == forward
    stem = set(forward) - set(data)
    assert len(stem) == 1 and stem.pop().startswith("x=32x3x224x224,")


def spec(**more):
    return {
        "network": "mobilenet_v2", "batch": 1, "dtype": "f32", "layout": "nhwc", "benchmark": False, "seconds": 0.01,
        "device": "cpu", "outputs": True, **more,
    }  # fmt: skip


def new_runner(python, fork=True):
    """One thread each: tests run beside each other, and threads that wait for their turn spin."""
    return runner.Runner(python, {**os.environ, "OMP_NUM_THREADS": "1"}, fork=fork)


@pytest.fixture(params=[True, False], ids=["forked", "anew"])
def processes(request, python):
    made = new_runner(python, request.param)
    yield made
    made.close()


def test_a_network_runs_in_a_process_of_its_own(processes):
    first = processes.network(spec(), {}, 120)
    again = processes.network(spec(), {}, 120)
    assert first["outputs"] == again["outputs"] and first["outputs"]["output"]["largest"] > 0
    assert 0 < first["first_ms"] <= first["first_iteration_ms"]
    assert len(first["eager_us"]) == 3 and min(first["eager_us"]) > 0


def test_what_the_framework_raises_is_the_reason(processes):
    with pytest.raises(runner.ProcessError, match="KeyError: 'no_network'"):
        processes.network(spec(network="no_network"), {}, 60)
    assert processes.network({"problems": ["fwd,x=1x8x9x9,w=8x8x3x3,nhwc"], "benchmark": False, "device": "cpu"}, {}, 60)["errors"] == {}


def test_single_problems_run_in_every_operation(python):
    texts = [f"{op},x=2x8x9x9,w=8x4x3x3,pad=1,stride=2,groups=2,{layout}" for op in ("fwd", "bwd_data", "bwd_filter") for layout in ("nchw", "nhwc")]
    processes = new_runner(python)
    try:
        took = processes.network({"problems": texts, "benchmark": True, "limit": 0, "device": "cpu"}, {}, 60)
    finally:
        processes.close()
    assert took["errors"] == {} and took["first_ms"] > 0


def test_training_gives_gradients(python):
    processes = new_runner(python)
    try:
        result = processes.network(spec(train=True), {}, 200)
    finally:
        processes.close()
    gradients = set(result["outputs"]) - {"output"}
    assert len(gradients) >= 8 and "0.0.weight" in gradients
    assert all(t["largest"] > 0 for t in result["outputs"].values())


def test_a_process_that_does_not_end_in_time_is_killed_and_the_next_runs(python):
    processes = new_runner(python)
    try:
        with pytest.raises(runner.ProcessError, match="not done within 1 s"):
            processes.network(spec(network="resnet50", batch=64), {}, 1)
        small = {"problems": ["fwd,x=1x8x9x9,w=8x8x3x3,nhwc"], "benchmark": False, "device": "cpu"}
        assert processes.network(small, {}, 60)["errors"] == {}
    finally:
        processes.close()


LARGEST = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import nets
found = {}
for name in ("resnet50", "mobilenet_v2", "efficientnet_b0", "resnext50", "convnext_tiny", "yolov3", "unet"):
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


def test_activations_are_numbers_that_f16_holds(python):
    """Neither infinite nor all lost: weights are random, not trained."""
    done = subprocess.run(
        [python, "-c", LARGEST, str(study.STUDY)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name, (least, most) in json.loads(done.stdout).items():
        assert 1e-4 < least and most < 2**14, name
