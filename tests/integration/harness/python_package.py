"""The Python package as its own build makes it; test_wheel.py has the wheel, as pip installs it."""

import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

REPO = pathlib.Path(__file__).resolve().parents[3]


def copy_sources(directory):
    """Where the package can be built: a build writes beside its sources."""
    copy = pathlib.Path(directory) / "source"
    shutil.copytree(REPO / "client" / "python", copy / "client" / "python", ignore=shutil.ignore_patterns(".build", "*.egg-info"))
    shutil.copytree(REPO / "proto", copy / "proto")
    return copy / "client" / "python"


@functools.cache
def install():
    """A folder for PYTHONPATH, made once for all processes of a test run."""
    shared = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if shared:
        directory = pathlib.Path(tempfile.gettempdir()) / f"ct-python-{shared}"
        directory.mkdir(mode=0o700, exist_ok=True)
    else:
        directory = pathlib.Path(tempfile.mkdtemp(prefix="ct-python-"))
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target = directory / "site"
        if not target.exists():
            part = tempfile.mkdtemp(dir=directory)
            command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_py", "--build-lib", f"{part}/site"]
            subprocess.run(command, cwd=copy_sources(part), check=True)
            os.rename(f"{part}/site", target)
    return target


def run(*arguments, python=sys.executable, env=None, stdin=None, timeout=300):
    """Runs Python with the package; the completed process, output as text."""
    return subprocess.run(
        [python, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(install()), **(env or {})},
        input=stdin, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def one_convolution(path):
    """An ONNX model with a symbolic batch."""
    onnx = pytest.importorskip("onnx")
    from .onnx_models import model, node, tensor, zeros

    made = model([node("Conv", ["x", "w"], "y")], [tensor("x", ["n", 8, 16, 16])], zeros("w", (8, 8, 3, 3)))
    onnx.save(made, path)
    return made
