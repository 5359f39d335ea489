"""Programs that a test needs and a machine may lack."""

import subprocess

import pytest


def missing(program, package=None):
    """Skips. `tests/run --ci` counts the reason as a failure where install-deps could have brought it: by itself, or with
    a package that this system's archive has."""
    if package:
        try:
            policy = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True).stdout
        except OSError:
            policy = ""
        if "\n  Candidate: " not in policy or "\n  Candidate: (none)" in policy:
            pytest.skip(f"{program} is not there, and no package {package}")
    option = "--ci" if program in ("torch", "valgrind") else "--tests"
    pytest.skip(f"{program} is not there (deploy/install-deps {option} brings it)")
