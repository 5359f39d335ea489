"""From a model to warm answers to cuDNN plans of fused graphs, without a GPU."""

import json
import pathlib
import subprocess
import sys

import onnx
import pytest

from conftest import PROGRAMS
from harness import python_package
from harness.onnx_models import node
from test_model_fusion import conv, network

PROFILE = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "profiles" / "nvidia-h200.json"


def residual_block():
    """A convolution with a ReLU, and one with an addition before the ReLU."""
    return network([conv("x", "a"), node("Relu", ["a"], "c"), conv("c", "d"), node("Add", ["d", "x"], "s"), node("Relu", ["s"], "y")])


@pytest.fixture
def server(worker, tmp_path):
    """server(problems, daemon) is what the example server makes of answers: (problem, winner, workspace)."""
    path = PROGRAMS / "convtune-example-server"
    if not path.exists():
        pytest.fail(f"{path} is not built")
    properties = tmp_path / "properties.json"
    properties.write_text(json.dumps(json.loads(PROFILE.read_text())["properties"], separators=(",", ":")))

    def run(problems, daemon):
        env = {"PATH": "/usr/bin:/bin", "CONVTUNE_ADDRESS": daemon.address}
        done = subprocess.run([path, properties], input="".join(f"{p}\n" for p in problems), capture_output=True,
                              text=True, env=env, timeout=120)  # fmt: skip
        assert done.returncode == 0, (done.stdout, done.stderr)
        return [line.split("\t") for line in done.stdout.splitlines()]

    return run


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"add+bias+relu", ""}),
        (("--layout", "nhwc"), {"add+bias+relu", "bias+relu", ""}),
        (("--dtype", "fp16"), {""}),
        (("--layout", "nhwc", "--dtype", "f16", "--runtime", "fused"), {"add+bias+relu", "bias+relu"}),
        (("--layout", "nhwc", "--dtype", "f16", "--runtime", "torchscript"), {"add+bias+relu"}),
    ],
)
def test_from_a_model_to_warm_to_plans(options, expected, server, worker, daemons, cli, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(residual_block(), path)
    env = {"CONVTUNE_PYTHON": sys.executable, "PYTHONPATH": str(python_package.install())}
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker).start()
    result = cli(daemon, env=env).ok("warm", path, "--batch", "32", *options, "--json")
    assert result.json()["warm"], result
    listed = python_package.run("-m", "convtune", "problems", path, "--batch", "32", *options).stdout.splitlines()
    problems = list(dict.fromkeys(listed))
    assert result.json()["problems"] == len(problems)
    lines = server(problems, daemon)
    found = {next((t[9:] for t in line[0].split(",") if t.startswith("epilogue=")), "") for line in lines}
    assert found == expected
    for line in lines:
        # A plan of exactly this engine and these knobs was finalised for the graph.
        assert line[1].startswith("graph:eng") and int(line[2]) >= 0, line
