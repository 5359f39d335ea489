"""Whole workloads for the H200 profile: every row is answered."""

import json
import time

import pytest

from conftest import REPO

PROFILE = "nvidia-h200"
WORKLOADS = REPO / "tests" / "data" / "workloads"


DEFAULT = ["networks fwd f16 nhwc", "deepbench_infer fwd f16 nhwc"]
CI = ["networks fwd f32 nchw", "networks bwd_data f16 nhwc", "networks bwd_filter f16 nhwc", "deepbench_train fwd f16 nhwc"]
LONG = [
    "networks bwd_data f32 nchw", "networks bwd_filter f32 nchw", "deepbench_infer fwd f32 nchw", "deepbench_train fwd f32 nchw",
    "deepbench_train bwd_data f16 nhwc", "deepbench_train bwd_filter f16 nhwc", "networks fwd bf16 nhwc", "networks fwd f64 nchw",
    "networks fwd i8 nhwc",
]  # fmt: skip


def marked(workloads, *marks):
    return [pytest.param(workload, id=workload.replace(" ", "-"), marks=marks) for workload in workloads]


def results_of(result):
    return json.loads(result.out)["results"]


@pytest.mark.parametrize("workload", [*marked(DEFAULT), *marked(CI, pytest.mark.ci), *marked(LONG, pytest.mark.long)])
def test_every_row_is_answered(daemons, worker, cli, workload, capsys):
    name, operation, dtype, layout = workload.split()
    file = WORKLOADS / f"{name}.csv"
    rows = len(file.read_text().splitlines()) - 1
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker).start()
    overrides = ["--op", operation, "--dtype", dtype, "--layout", layout]
    command = ["get", "--file", file, *overrides, "--on-miss", "heuristic", "--json"]

    began = time.monotonic()
    first = results_of(cli(daemon).ok(*command, timeout=600))
    first_pass = time.monotonic() - began
    began = time.monotonic()
    second = results_of(cli(daemon).ok(*command))
    second_pass = time.monotonic() - began
    with capsys.disabled():
        print(f"\n{workload}: {rows} rows, first pass {first_pass:.2f} s, second pass {second_pass:.2f} s")

    assert len(first) == rows
    assert all("answer" in r for r in first), [r for r in first if "answer" not in r][:3]
    assert [r["answer"]["winner"]["text"] for r in second] == [r["answer"]["winner"]["text"] for r in first]
