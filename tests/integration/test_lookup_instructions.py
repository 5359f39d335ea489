"""How many instructions a problem of a BatchGet costs where its answer is ready: counted, so that a slip is seen."""

import re
import shutil
import subprocess

import pytest

from conftest import PROGRAMS
from harness.needs import missing

BATCH = 64
FEW, MANY = 3, 13
# Counted with gcc 12.2 at -O2: 494. Another compiler's code may differ by less than the margin.
EXPECTED = 494
MARGIN = 0.15


def start(tmp_path, repeats):
    command = [
        "valgrind", "--tool=callgrind", "--toggle-collect=convtune::rpc::services::BatchGetHandler::FindReady*",
        f"--callgrind-out-file={tmp_path}/callgrind.{repeats}", PROGRAMS / "convtune-bench-index",
        "--tunings", "100", "--batch", str(BATCH), "--repeats", str(repeats),
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def collected(process):
    _, said = process.communicate()
    assert process.returncode == 0, said
    return int(re.search(r"Collected : (\d+)", said)[1])


@pytest.mark.ci
def test_instructions_of_a_ready_answer_stay_where_they_are(tmp_path):
    if shutil.which("valgrind") is None:
        missing("valgrind", "valgrind")
    if not (PROGRAMS / "convtune-bench-index").exists():
        pytest.skip("the benchmarks are not built")
    few, many = [start(tmp_path, repeats) for repeats in (FEW, MANY)]
    each = (-collected(few) + collected(many)) / (MANY - FEW) / BATCH
    print(f"{each:.0f} instructions for each ready problem, {EXPECTED} expected")
    assert each <= EXPECTED * (1 + MARGIN)
    assert each >= EXPECTED * (1 - MARGIN), "it got better: lower EXPECTED, so that the gain is kept"
