"""The whole study without a card: the real daemon over the fake worker, made-up processes, everything else as it is."""

import os
import re
import signal
import subprocess
import sys

import pytest

from conftest import PROGRAMS
from harness import study
from harness.daemon import wait_until

import records

pytestmark = pytest.mark.ci

OURS, RANDOM = "W", "B"


def simulate(out, only, *more, python=sys.executable, minutes=5):
    return study.run(
        "--simulate", "--build", PROGRAMS.parent, "--out", out, "--budget", "10s", "--minutes", minutes, "--only", only, *more,
        python=python,
    )  # fmt: skip


def rows(report, title):
    """Cells of the table below a heading, by the first of each row."""
    body = report.split(f"### {title}\n", 1)[1].split("\n###", 1)[0]
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def as_number(percent):
    return float(percent.rstrip("%"))


@pytest.fixture(scope="module")
def shapes(tmp_path_factory, convtuned, fake_worker):
    """One block of shapes, its peers, and two fresh tunings; in two runs, the first of which was killed."""
    out = tmp_path_factory.mktemp("study") / "out"
    command = [
        sys.executable, str(study.STUDY), "--simulate", "--build", str(PROGRAMS.parent), "--out", str(out), "--budget", "10s",
        "--only", "shapes/resnet50-fwd-f16/0/*",
    ]  # fmt: skip
    first = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    wait_until(lambda: out.exists() and records.Records(out).done, 120, "a step that is done")
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    with open(out / "records.jsonl", "ab") as file:
        file.write(b'{"kind":"tuning","ste')  # a write that the kill cut
    before = records.Records(out)
    done = simulate(out, "shapes/resnet50-fwd-f16/0/*")
    assert done.returncode == 0, done.stderr
    return out, before, done


def test_a_run_that_was_killed_goes_on_where_it_stopped(shapes):
    out, before, done = shapes
    after = records.Records(out)
    assert 0 < len(before.done) < len(after.done) == 8
    assert not set(before.done) & set(re.findall(r"study: (shapes/\S+):", done.stderr))
    assert after.run == 2 and {r["run"] for r in after.of("referee")} == {2}


def test_nothing_is_done_twice(shapes):
    done = simulate(shapes[0], "shapes/resnet50-fwd-f16/0/*")
    assert done.returncode == 0 and "0 steps in" in done.stderr and "0 of 8 left" in done.stderr


def test_the_report_says_what_was_simulated(shapes):
    """The daemon's winners are the fake card's fastest; what a heuristic names first there is by chance."""
    report = (shapes[0] / "report" / "report.md").read_text()
    assert "**Simulated: no card was there." in report
    regret = {row[0]: row[1:] for row in rows(report, "Regret against the held-out oracle, caches input-hot")}
    assert int(regret[OURS][0]) == 12
    assert as_number(regret[OURS][1]) < 0.5
    assert as_number(regret[RANDOM][1]) > 10
    assert as_number(regret["B0"][1]) < 0.5
    speed = {(row[0], row[1]): row for row in rows(report, "Speed-up over each peer, shape by shape")}
    assert float(speed["all", RANDOM][3].split()[0]) > 1.1
    assert (shapes[0] / "report" / "regret.svg").read_text().startswith("<svg")


def test_what_pytorch_settled_on_came_by_datagrams(shapes):
    heard = records.Records(shapes[0]).of("torch")
    assert [r["peer"] for r in heard] == ["B10"] * 3 + ["B0"]
    assert all(len(r["choices"]) == 12 for r in heard)


def test_a_packed_run_goes_on_elsewhere(shapes, tmp_path):
    packed = shapes[2].stdout.strip()
    assert packed.endswith(".tar.gz")
    done = study.run("--plan", "--out", tmp_path / "there", "--resume", packed, "--only", "shapes/resnet50-fwd-f16/0/*")
    assert done.returncode == 0 and "8 steps, 8 done, 0 left" in done.stdout


@pytest.mark.long
def test_fresh_tunings_are_compared(tmp_path, convtuned, fake_worker):
    """Of one part of the shapes: twenty tunings, and the judge, which needs them all."""
    out = tmp_path / "out"
    done = simulate(out, "shapes/fresh/*/3")
    assert done.returncode == 0, done.stderr
    found = records.Records(out)
    assert len(found.of("fresh")) == 20 and len(found.of("referee", role="fresh")) == 10
    assert not list((out / "fresh").iterdir())
    table = rows((out / "report" / "report.md").read_text(), "Flips between fresh, independent tunings")
    assert table[-1][0] == "all" and int(table[-1][5]) == 10 * 190
    # The fake card's noise is far below the gaps between its candidates.
    assert int(table[-1][4]) == 0


@pytest.fixture(scope="module")
def networks(tmp_path_factory, convtuned, fake_worker):
    python = study.torch_python()
    if python is None:
        pytest.skip("no Python of this machine has torch (for example Debian's python3-torch)")
    out = tmp_path_factory.mktemp("study") / "out"
    done = simulate(out, "*/resnet50-b1-f16-nhwc/*", "--part", "networks,serving", python=python)
    assert done.returncode == 0, done.stderr
    return out, (out / "report" / "report.md").read_text()


def test_whole_networks_are_compared_with_every_peer(networks):
    out, report = networks
    found = records.Records(out)
    assert {r["config"] for r in found.of("network", round=0)} == {
        "H", "A", "B", "B10", "B0", "V7", "W", "W_all", "W_cold", "W_input_hot", "W_hot"
    }  # fmt: skip
    assert len(found.of("network", config="W_all")) == 10 and len(found.of("network", config="B0")) == 3
    (row,) = rows(report, "Whole networks, eager, everything allowed")
    # B0 tries every plan, as the tuning does: on the fake card both find the fastest.
    assert row[0] == "resnet50-b1-f16-nhwc" and row[2].startswith("B0 ")
    assert float(row[3].split()[0]) == pytest.approx(1.0, abs=0.02)
    assert row[-1].startswith("yes")


def test_the_cache_state_that_was_ranked_by_predicts_the_simulated_network(networks):
    found = {row[1]: row for row in rows(networks[1], "Which cache state predicts a network")}
    assert float(found["input_hot"][3]) == pytest.approx(1.0, abs=0.02)


def test_unmodified_programs_are_compared_by_policy(networks):
    first = {tuple(row[1:3]): row for row in rows(networks[1], "First iteration")}
    assert len(first) == 8
    assert float(first["on", "truncate"][4]) < float(first["on", "stock"][4])
    served = {tuple(row[1:3]): row[5] for row in rows(networks[1], "What was served")}
    assert served["off", "truncate"] == "100.0%" and served["off", "observe"] == "0.0%"
    assert all(row[4] == "yes" for row in rows(networks[1], "Outputs and gradients"))


def test_without_a_card_it_says_so_and_leaves_no_folder(tmp_path, convtuned):
    done = study.run("--out", tmp_path / "out", "--build", PROGRAMS.parent)
    if done.returncode == 0:
        pytest.skip("this machine has a card")
    assert done.returncode in (1, 77)
    assert re.search(r"study: (no GPU with a driver|.*not in .*|.*no PyTorch)", done.stderr)
    assert not (tmp_path / "out" / "records.jsonl").exists()


def test_real_and_simulated_records_do_not_mix(tmp_path, convtuned, fake_worker):
    log = records.Records(tmp_path / "out")
    log.begin({"simulated": False})
    done = simulate(tmp_path / "out", "shapes/none")
    assert done.returncode == 1 and "holds real records" in done.stderr


@pytest.mark.parametrize(
    "arguments, said",
    [(["--part", "shapes,all"], "--part: must be a list of networks, shapes, serving, has all"),
     (["--data", "/nowhere"], "--data: no deepbench_train.csv in /nowhere")],
)  # fmt: skip
def test_bad_arguments_are_named(arguments, said):
    done = study.run(*arguments)
    assert done.returncode == 2 and said in done.stderr


def test_the_plan_needs_neither_card_nor_build(tmp_path):
    done = study.run("--plan", "--out", tmp_path / "out")
    assert done.returncode == 0 and "guessed: none has run" in done.stdout
    assert "networks/resnet50-b32-f16-nhwc/tune" in done.stdout.splitlines()[0]
    assert not (tmp_path / "out").exists()
