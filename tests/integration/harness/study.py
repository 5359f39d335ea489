"""tests/gpu/study as the tests import it, and a Python of this machine that has torch."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[3]
STUDY = REPO / "tests" / "gpu" / "study"
sys.path.append(str(STUDY))  # its modules are imported by their own names


@functools.cache
def torch_python():
    """$CONVTUNE_TEST_TORCH_PYTHON, else a usual one; None if no Python here has torch (for example Debian's python3-torch)."""
    for python in (os.environ.get("CONVTUNE_TEST_TORCH_PYTHON"), sys.executable, "/usr/bin/python3", shutil.which("python3")):
        if python and os.path.exists(python) and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            return python
    return None


def run(*arguments, timeout=600):
    """The study's command; the completed process, output as text."""
    return subprocess.run([sys.executable, str(STUDY), *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
