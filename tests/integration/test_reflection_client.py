"""A client that knows nothing but server reflection; test_roles.py calls every method by it."""

import subprocess
import sys

from conftest import REPO
from harness.problems import numbered


def test_the_example_of_a_first_call_prints_an_answer_and_its_usage(fake_daemon):
    example = [sys.executable, REPO / "deploy" / "examples" / "first_call.py"]
    daemon = fake_daemon().start()
    asked = subprocess.run([*example, daemon.address, numbered(1)], capture_output=True, text=True, timeout=120)
    assert asked.returncode == 0 and "HEURISTIC in " in asked.stdout, asked
    refused = subprocess.run(example, capture_output=True, text=True, timeout=120)
    assert (refused.returncode, refused.stderr) == (2, "usage: first_call.py ADDRESS PROBLEM\n")
