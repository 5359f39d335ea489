"""The wheels, pip's own and that of deploy/build-wheel with the programs, in environments that have nothing else of ours."""

import email
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from conftest import PROGRAMS, REPO
from harness import python_package, sbom
from harness.cli import Cli
from harness.daemon import Daemon
from harness.simulator import simulators

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


@pytest.fixture(scope="module")
def full_wheel():
    """The one that tests/run --ci had made before."""
    made = list((REPO / "build-wheel").glob("*.whl"))
    if not made:
        pytest.skip("build-wheel has no wheel: deploy/build-wheel makes it")
    return made[0]


def test_the_sbom_of_the_wheel_has_the_archives_that_its_programs_carry(full_wheel, tmp_path):
    found, _ = sbom.make(tmp_path, REPO / "build-portable", full_wheel)
    (own,) = found.values()
    assert {"libgrpc-dev", "libssl-dev", "libsqlite3-dev", "libprotobuf-dev"} <= own["STATIC_LINK"]
    assert "grpcio" in own["DEPENDS_ON"] and "libspdlog-dev" in own["BUILD_DEPENDENCY_OF"]


@pytest.fixture(scope="module")
def environment(full_wheel, tmp_path_factory):
    """The folder of a new one that has the wheel, those of cuDNN and nothing else; its site-packages."""
    folder = tmp_path_factory.mktemp("full") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    install = [*PIP, "--python", folder / "bin/python", "install", "--quiet"]
    fetched = subprocess.run([*install, "-r", REPO / "deploy/requirements-cuda.txt"], capture_output=True, text=True)
    if fetched.returncode != 0:
        pytest.skip(f"the wheels of cuDNN cannot be had: {fetched.stderr[-200:]}")
    subprocess.run([*install, "--no-index", "--no-deps", full_wheel], check=True)
    yield folder, next(folder.glob("lib/python3*/site-packages"))
    shutil.rmtree(folder)  # more than a gigabyte


@pytest.fixture(scope="module")
def daemon(environment, tmp_path_factory):
    folder, _ = environment
    made = Daemon(folder / "bin/convtuned", tmp_path_factory.mktemp("d"), ["--devices", "none", "--profile", "nvidia-h200"])
    made.env.pop("LD_LIBRARY_PATH", None)
    yield made.start()
    made.close()


def test_it_has_types_messages_and_what_it_needs(wheel):
    assert wheel.name == "convtune-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert not simulators(names)
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


def test_the_full_wheel_is_whole_and_its_tag_is_what_the_programs_need(full_wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "wheel", "unpack", "--dest", tmp_path, full_wheel], check=True, capture_output=True)
    (content,) = tmp_path.iterdir()
    assert not simulators(content.rglob("*"))
    # Beside the programs' files, those that pip makes.
    assert {path.name for path in (REPO / "client/python/convtune").glob("*.py")} <= {path.name for path in (content / "convtune").iterdir()}
    metadata = email.message_from_bytes((content / "convtune-0.1.0.dist-info/METADATA").read_bytes())
    assert {re.match(r"[\w-]+", line)[0] for line in metadata.get_all("Requires-Dist")} == {"grpcio", "protobuf", "xxhash", "onnx", "torch"}
    needed = set()
    for program in (*(content / "convtune/bin").iterdir(), *(content / "convtune/lib").iterdir()):
        said = subprocess.run(["readelf", "--wide", "--version-info", program], check=True, capture_output=True, text=True).stdout
        needed |= {tuple(map(int, version.split("."))) for version in re.findall(r"\bGLIBC_([0-9.]+)", said)}
    major, minor = max(needed)[:2]
    assert full_wheel.name == f"convtune-0.1.0-py3-none-manylinux_{major}_{minor}_{os.uname().machine}.whl"
    assert full_wheel.stat().st_size <= 60 << 20


def test_what_needs_this_machines_libraries_is_no_wheel(tmp_path):
    if not (PROGRAMS / "convtune-worker").exists():
        pytest.skip("convtune-worker was not built (no cuDNN)")
    command = [REPO / "deploy/build-wheel", "--build", PROGRAMS.parent, "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and re.search("bin/convtuned needs .*libgrpc", done.stderr), done
    assert not list(tmp_path.iterdir())


def test_resnet50_is_answered_from_the_profile_with_the_wheels_cudnn(environment, daemon):
    folder, site = environment
    cli = Cli(folder / "bin/convtune", daemon.address)
    listed = site / "convtune/share/convtune/examples/resnet50.csv"
    question = ["--file", listed, "--op", "fwd", "--batch", "32", "--dtype", "f16", "--layout", "nhwc"]
    assert cli("get", *question).code == 3  # nobody has asked yet
    rows = cli.ok("get", *question, "--on-miss", "heuristic", "--csv").out.splitlines()
    assert len(rows) == len(listed.read_text().splitlines()) and all("graph:eng" in row for row in rows[1:])
    (worker,) = daemon.workers()
    loaded = set(re.findall(r"/\S*/libcudnn\S*", pathlib.Path(f"/proc/{worker}/maps").read_text()))
    assert loaded and {pathlib.Path(path).parent for path in loaded} == {site / "nvidia/cudnn/lib"}
    assert os.readlink(f"/proc/{worker}/exe") == str(site / "convtune/bin/convtune-worker")


SERVED = """
import convtune.preload, re
maps, status = (open(f"/proc/self/{name}").read() for name in ("maps", "status"))
print(re.search(r"\\S*/libconvtune_preload.so", maps)[0], convtune.preload.active(), re.search(r"SigIgn:\\s*(\\w+)", status)[1])
"""


def test_a_program_runs_with_the_wheels_interposer(environment):
    folder, site = environment
    cli = Cli(folder / "bin/convtune")
    run = cli.ok("run", "--", folder / "bin/python", "-c", SERVED)
    library = str(site / "convtune/lib/libconvtune_preload.so")
    # It ignores SIGPIPE and SIGXFSZ as every Python does; a program that is none ignores neither.
    assert run.out.split() == [library, "True", "0000000001001000"]
    assert "0000000000000000" in cli.ok("run", "--", "grep", "SigIgn", "/proc/self/status").out
    imported = subprocess.run([folder / "bin/python", "-c", SERVED], capture_output=True, text=True, check=True)
    assert imported.stdout.split()[:2] == [library, "True"]
    assert cli("no-such-verb").code == 2


def test_a_model_is_warmed(environment, daemon, tmp_path):
    folder, site = environment
    python_package.one_convolution(tmp_path / "model.onnx")
    # What the package needs is that which is here: nothing is fetched.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [folder / "bin/python", "-m", "convtune", "warm", tmp_path / "model.onnx", "--batch", "1", "--address", daemon.address]
    for said in ("1 were tuned", "1 had an answer"):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and said in done.stdout, done
