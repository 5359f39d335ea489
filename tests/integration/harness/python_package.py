"""The Python package, installed for the tests as pip installs it."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[3]


@functools.cache
def install():
    """A folder for PYTHONPATH. The sources are copied first: a build writes beside them."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="ct-python-"))
    copy = directory / "source"
    shutil.copytree(REPO / "client" / "python", copy / "client" / "python", ignore=shutil.ignore_patterns(".build", "*.egg-info"))
    shutil.copytree(REPO / "proto", copy / "proto")
    target = directory / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps",
         "--disable-pip-version-check", "--target", target, copy / "client" / "python"],
        check=True,
    )  # fmt: skip
    return target


def run(*arguments, python=sys.executable, env=None, stdin=None, timeout=300):
    """Runs Python with the package; the completed process, output as text."""
    return subprocess.run(
        [python, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(install()), **(env or {})},
        input=stdin, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
