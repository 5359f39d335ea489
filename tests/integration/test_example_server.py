"""deploy/examples' server: real cuDNN plans from real answers, without a GPU."""

import json
import math
import os
import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper

from conftest import REPO, program
from harness import python_package

PROFILE = REPO / "deploy" / "profiles" / "nvidia-h200.json"
PROBLEMS = [
    "fwd,x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,f16",
    "bwd_data,x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,f16",
    "bwd_filter,x=32x64x56x56,w=64x64x3x3,pad=1,nhwc,f16",
    "fwd,x=8x3x224x224,w=64x3x7x7,pad=3,stride=2,nchw,f32",
    "fwd,x=8x64x57x56,w=64x32x3x3,pad=0:1x2:2,stride=2x1,dilation=1x2,groups=2,nhwc,f16",
    "bwd_data,x=2x16x8x28x28,w=32x16x3x3x3,pad=1,mode=conv,nhwc,bf16",
]


@pytest.fixture
def run(worker, tmp_path):
    """The server's lines for problems."""
    properties = tmp_path / "properties.json"
    properties.write_text(json.dumps(json.loads(PROFILE.read_text())["properties"], separators=(",", ":")))

    def lines(problems, **env):
        result = subprocess.run(
            [program("convtune-example-server"), properties], input="\n".join(problems) + "\n", capture_output=True, text=True,
            env={"PATH": "/usr/bin:/bin", **env}, timeout=120,
        )  # fmt: skip
        assert result.returncode == 0, (result.stdout, result.stderr)
        return [line.split("\t") for line in result.stdout.splitlines()]

    return lines


def test_every_answer_becomes_a_plan_that_finalises(run, worker, daemons, cli):
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker).start()
    cli(daemon).ok("get", *PROBLEMS, "--on-miss", "heuristic")
    lines = run([*PROBLEMS, "fwd,x=1x8x9x9,w=8x8x3x3"], CONVTUNE_ADDRESS=daemon.address)
    assert len(lines) == len(PROBLEMS) + 1
    for line in lines[:-1]:
        assert line[1].startswith("graph:eng") and int(line[2]) >= 0, line
    assert lines[-1][1].startswith("cuDNN's heuristic: ")


def test_the_list_of_an_onnx_file_is_resolved_in_one_call(run, worker, daemons, cli, tmp_path):
    """The list is made where Python is, once; the server reads it."""
    weights = [helper.make_tensor(f"w{i}", TensorProto.FLOAT16, shape, bytes(2 * math.prod(shape)), raw=True)
               for i, shape in enumerate([(16, 8, 3, 3), (8, 16, 1, 1)])]  # fmt: skip
    nodes = [helper.make_node("Conv", ["x", "w0"], ["y"], pads=[1, 1, 1, 1]), helper.make_node("Conv", ["y", "w1"], ["z"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["n", 8, 14, 14]) for name in "xz"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "two", ends[:1], ends[1:], weights)), tmp_path / "model.onnx")
    listed = subprocess.run(
        [sys.executable, "-m", "convtune", "problems", tmp_path / "model.onnx", "--batch", "8"],
        env={**os.environ, "PYTHONPATH": str(python_package.install())}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    problems = listed.stdout.splitlines()
    assert len(problems) == 2
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker).start()
    cli(daemon).ok("get", *problems, "--on-miss", "heuristic")
    lines = run(problems, CONVTUNE_ADDRESS=daemon.address)
    assert [line[1].partition("eng")[0] for line in lines] == ["graph:", "graph:"], lines


def test_after_the_daemons_end_the_snapshot_gives_the_same_winners(run, worker, daemons, cli):
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker,
                     "--publish-evidence", "heuristic").start()  # fmt: skip
    cli(daemon).ok("get", *PROBLEMS, "--on-miss", "heuristic")
    with_daemon = run(PROBLEMS, CONVTUNE_ADDRESS=daemon.address)
    daemon.stop()
    snapshot = daemon.state_dir / "snapshot"
    assert run(PROBLEMS, CONVTUNE_ADDRESS=daemon.address, CONVTUNE_SNAPSHOT=snapshot) == with_daemon


def test_another_cudnns_answers_are_not_taken(run, preload, tmp_path):
    folder = tmp_path / "snapshot"
    other = preload.environment.replace(f"cudnn={preload.cudnn_version}", "cudnn=9.1.0")
    preload.write_snapshot(folder, preload.choice(PROBLEMS[0], "candidate=graph:eng1;notes=0;workspace=0;time=1.0", environment=other))
    (line,) = run(PROBLEMS[:1], CONVTUNE_ADDRESS=f"unix:{tmp_path}/nobody", CONVTUNE_SNAPSHOT=str(folder))
    assert line[1].startswith("cuDNN's heuristic: "), line
    assert f"other environment: the program has cudnn={preload.cudnn_version}" in line[1] and other in line[1]
