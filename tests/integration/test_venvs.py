"""Today's wheels, each in a venv of its own: what the pages and `convtune doctor --program` say of them is what they do."""

import json
import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long  # gigabytes from PyPI

# Loads what a server of it loads, and prints the libcudnn that is mapped then.
TORCH = "import torch; torch.backends.cudnn.version()"
ONNXRUNTIME = "import onnxruntime; onnxruntime.preload_dlls()"
MAPPED = """
import json
print(json.dumps(sorted({line.split()[-1] for line in open("/proc/self/maps") if "/libcudnn.so" in line})))
"""


@pytest.fixture
def venv(tmp_path):
    """venv(*packages) is the Python of a venv with them."""
    folder = tmp_path / "venv"

    def make(*packages):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        done = subprocess.run([folder / "bin" / "pip", "-q", "install", *packages], capture_output=True, text=True)
        if done.returncode != 0 and "connection" in done.stderr.lower():
            pytest.skip("PyPI cannot be reached")
        assert done.returncode == 0, done.stderr
        return folder / "bin" / "python"

    yield make
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("packages", "load", "state"),
    [
        (["torch==1.13.1", "numpy<2"], TORCH, "problem"),  # the oldest with cuDNN that PyPI has; cuDNN 8
        (["torch==2.11.0", "numpy"], TORCH, "ok"),
        (["torch==2.13.0", "numpy"], TORCH, "problem"),  # its cuDNN is not whole
        (["torch==2.15.0", "numpy"], TORCH, "ok"),
        (["onnxruntime-gpu==1.27.0", "nvidia-cudnn-cu13==9.12.0.46"], ONNXRUNTIME, "ok"),
        (["onnxruntime-gpu==1.31.1", "nvidia-cudnn-cu13==9.28.1.4"], ONNXRUNTIME, "ok"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_doctor_names_the_cudnn_that_is_loaded(venv, cli, packages, load, state):
    python = venv(*packages)
    done = subprocess.run([python, "-c", load + "\n" + MAPPED], capture_output=True, text=True, check=True)
    [mapped] = json.loads(done.stdout.splitlines()[-1])
    findings = cli(None)("doctor", "--program", python, "--json").json()["findings"]
    named = [f for f in findings if f" of {os.path.dirname(mapped)}, " in f["what"]]
    assert [f["severity"] for f in named] == [state], findings


@pytest.mark.parametrize("packages", [["torch==1.13.1", "numpy<2"], ["torch==2.15.0", "torchvision", "numpy"]], ids=lambda p: p[0])
def test_problems_of_models_are_those_of_a_real_run(venv, packages):
    """The tests of convtune.torch, with another torch."""
    env = {**os.environ, "CONVTUNE_TEST_TORCH_PYTHON": str(venv(*packages))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ci", "test_torch_models.py", "test_torch_enable.py"]
    done = subprocess.run(command, cwd=os.path.dirname(__file__), env=env, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout, done.stdout
