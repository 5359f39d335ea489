"""cuDNN's versions from PyPI, in a cache that stays: $CONVTUNE_TEST_CUDNN_CACHE, else .venv/cudnn. `convtune upgrade-check` fills it."""

import os
import pathlib
import subprocess

import pytest

REPO = pathlib.Path(__file__).resolve().parents[3]
PROBLEM = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
NEWEST = "9.28.1.4"
# What --long tries besides: the oldest for CUDA 13, the pinned one, two that changed much, and CUDA 12.
OTHERS = ["9.12.0.46", "9.19.0.56", "9.24.1.1", "9.19.0.56+cu12"]


def cache():
    return pathlib.Path(os.environ.get("CONVTUNE_TEST_CUDNN_CACHE") or REPO / ".venv" / "cudnn")


def fetch(convtune, worker, version, tmp_path):
    """The cache's folder of a version, with which LD_LIBRARY_PATH names it and what it loads. Skips without a network."""
    listed = tmp_path / "one.txt"
    listed.write_text(PROBLEM + "\n")
    done = subprocess.run(
        [convtune, "upgrade-check", listed, "--from", version, "--to", version, "--profile", "nvidia-h200",
         "--worker", worker, "--cache", cache(), "--fail-on", "changed,workspace,notes,lost"],
        capture_output=True, text=True, timeout=900, env={**os.environ, "CONVTUNE_PYTHON": os.sys.executable},
    )  # fmt: skip
    if "PyPI cannot be reached" in done.stderr:
        pytest.skip("PyPI cannot be reached, and the cache has no " + version)
    assert done.returncode == 0, done.stderr
    number, _, cuda = version.partition("+")
    return cache() / f"{cuda or 'cu13'}-{number}" / "nvidia" / "cudnn" / "lib"


def library_path(worker, folder):
    """As upgrade-check sets it: cuDNN, then where cuBLASLt and NVRTC for its CUDA lie."""
    if "/cu12-" in str(folder):
        cuda = [cache() / "cuda12" / "nvidia" / name / "lib" for name in ("cublas", "cuda_nvrtc")]
    else:
        said = subprocess.run([worker, "--libraries"], capture_output=True, text=True, check=True).stdout
        found = dict(line.split(" ", 1) for line in said.splitlines())
        cuda = [pathlib.Path(found[name]).parent for name in ("cublaslt", "nvrtc") if found[name]]
    return ":".join(map(str, [folder, *cuda]))
