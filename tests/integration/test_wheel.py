"""The wheel: built as pip builds it, imported by a Python that has nothing else of ours."""

import email
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from conftest import REPO
from harness import python_package

pytestmark = pytest.mark.ci

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
SCRIPT = """
import importlib.metadata, sys, convtune, convtune.onnx
assert convtune.__file__.startswith(sys.prefix), convtune.__file__
assert importlib.metadata.version("convtune") == convtune.__version__
(result,) = convtune.Client("unix:/nobody", use_snapshot=False).resolve([sys.argv[1]], timeout=0.05)
print(result.miss)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = python_package.copy_sources(folder)
    command = ["wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", folder / "dist", source]
    subprocess.run([*PIP, *command], check=True)
    (made,) = (folder / "dist").glob("*.whl")
    return made


def test_it_has_types_messages_and_what_it_needs(wheel):
    assert wheel.name == "convtune-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = email.message_from_bytes(archive.read("convtune-0.1.0.dist-info/METADATA"))
    sources = {f"convtune/{path.name}" for path in (REPO / "client/python/convtune").iterdir() if path.suffix == ".py"}
    assert sources | {"convtune/py.typed", "convtune/v1/__init__.py", "convtune/v1/tuning_pb2.pyi"} <= names
    needed = {re.match(r"[\w-]+", line)[0] for line in metadata.get_all("Requires-Dist") if "extra ==" not in line}
    assert needed == {"grpcio", "protobuf", "xxhash"}


def test_a_new_environment_imports_it(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    # gRPC, Protobuf and xxHash are those that are here: nothing is fetched.
    site = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [python, "-c", SCRIPT, "fwd,x=1x64x56x56,w=64x64x3x3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "unavailable\n"), done
    shown = subprocess.run([python, "-m", "convtune", "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0 and "warm" in shown.stdout


def test_without_the_rest_of_the_checkout_it_says_what_is_missing(tmp_path):
    shutil.copytree(REPO / "client" / "python", tmp_path / "a" / "b", ignore=shutil.ignore_patterns("*.egg-info"))
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_py", "--build-lib", tmp_path / "out"]
    done = subprocess.run(command, cwd=tmp_path / "a" / "b", capture_output=True, text=True)
    assert done.returncode != 0 and "built in a checkout of the whole repository" in done.stderr
