"""Whole workloads for the H200 profile: every row is answered."""

import json
import time

import pytest

PROFILE = "nvidia-h200"

FAST = [("networks.csv", ["--op", "fwd", "--dtype", "f16", "--layout", "nhwc"])]
SLOW = [
    ("networks.csv", ["--op", "fwd", "--dtype", "f32", "--layout", "nchw"]),
    ("networks.csv", ["--op", "bwd_data", "--dtype", "f16", "--layout", "nhwc"]),
    ("networks.csv", ["--op", "bwd_filter", "--dtype", "f16", "--layout", "nhwc"]),
    ("networks.csv", ["--op", "bwd_data", "--dtype", "f32", "--layout", "nchw"]),
    ("networks.csv", ["--op", "bwd_filter", "--dtype", "f32", "--layout", "nchw"]),
    ("deepbench_infer.csv", ["--op", "fwd", "--dtype", "f16", "--layout", "nhwc"]),
    ("deepbench_train.csv", ["--op", "fwd", "--dtype", "f16", "--layout", "nhwc"]),
    ("deepbench_infer.csv", ["--op", "fwd", "--dtype", "f32", "--layout", "nchw"]),
    ("deepbench_train.csv", ["--op", "fwd", "--dtype", "f32", "--layout", "nchw"]),
]


def name(case):
    return "-".join([case[0].split(".")[0], *case[1][1::2]])


def results_of(result):
    return json.loads(result.out)["results"]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name(case)) for case in FAST]
    + [pytest.param(case, id=name(case), marks=pytest.mark.long) for case in SLOW],
)
def test_every_row_is_answered(daemons, worker, cli, shared_data, case, capsys):
    file, overrides = case
    rows = len((shared_data / file).read_text().splitlines()) - 1
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker).start()
    command = ["get", "--file", shared_data / file, *overrides, "--on-miss", "heuristic", "--json"]

    began = time.monotonic()
    first = results_of(cli(daemon).ok(*command, timeout=600))
    first_pass = time.monotonic() - began
    began = time.monotonic()
    second = results_of(cli(daemon).ok(*command))
    second_pass = time.monotonic() - began
    with capsys.disabled():
        print(f"\n{name(case)}: {rows} rows, first pass {first_pass:.2f} s, second pass {second_pass:.2f} s")

    assert len(first) == rows
    assert all("answer" in r for r in first), [r for r in first if "answer" not in r][:3]
    assert [r["answer"]["winner"]["text"] for r in second] == [r["answer"]["winner"]["text"] for r in first]
