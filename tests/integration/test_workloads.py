"""Whole workloads for the H200 profile: every row is answered."""

import json
import time

import pytest

from conftest import REPO

PROFILE = "nvidia-h200"
WORKLOADS = REPO / "tests" / "data" / "workloads"


def case(file, operation, dtype, layout):
    return file, ["--op", operation, "--dtype", dtype, "--layout", layout]


DEFAULT = [
    case("networks.csv", "fwd", "f16", "nhwc"),
    case("deepbench_infer.csv", "fwd", "f16", "nhwc"),
]
CI = [
    case("networks.csv", "fwd", "f32", "nchw"),
    case("networks.csv", "bwd_data", "f16", "nhwc"),
    case("networks.csv", "bwd_filter", "f16", "nhwc"),
    case("deepbench_train.csv", "fwd", "f16", "nhwc"),
]
LONG = [
    case("networks.csv", "bwd_data", "f32", "nchw"),
    case("networks.csv", "bwd_filter", "f32", "nchw"),
    case("deepbench_infer.csv", "fwd", "f32", "nchw"),
    case("deepbench_train.csv", "fwd", "f32", "nchw"),
    case("deepbench_train.csv", "bwd_data", "f16", "nhwc"),
    case("deepbench_train.csv", "bwd_filter", "f16", "nhwc"),
    case("networks.csv", "fwd", "bf16", "nhwc"),
    case("networks.csv", "fwd", "f64", "nchw"),
    case("networks.csv", "fwd", "i8", "nhwc"),
]


def name(workload):
    file, overrides = workload
    return "-".join([file.split(".")[0], *overrides[1::2]])


def results_of(result):
    return json.loads(result.out)["results"]


@pytest.mark.parametrize(
    "workload",
    [pytest.param(workload, id=name(workload)) for workload in DEFAULT]
    + [pytest.param(workload, id=name(workload), marks=pytest.mark.ci) for workload in CI]
    + [pytest.param(workload, id=name(workload), marks=pytest.mark.long) for workload in LONG],
)
def test_every_row_is_answered(daemons, worker, cli, workload, capsys):
    file, overrides = workload
    rows = len((WORKLOADS / file).read_text().splitlines()) - 1
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker).start()
    command = ["get", "--file", WORKLOADS / file, *overrides, "--on-miss", "heuristic", "--json"]

    began = time.monotonic()
    first = results_of(cli(daemon).ok(*command, timeout=600))
    first_pass = time.monotonic() - began
    began = time.monotonic()
    second = results_of(cli(daemon).ok(*command))
    second_pass = time.monotonic() - began
    with capsys.disabled():
        print(f"\n{name(workload)}: {rows} rows, first pass {first_pass:.2f} s, second pass {second_pass:.2f} s")

    assert len(first) == rows
    assert all("answer" in r for r in first), [r for r in first if "answer" not in r][:3]
    assert [r["answer"]["winner"]["text"] for r in second] == [r["answer"]["winner"]["text"] for r in first]
