"""The whole study without a card: the real daemon over the fake worker, made-up peers, everything else as it is."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as tree

import pytest

from conftest import PROGRAMS
from harness import study
from harness.daemon import wait_until

import peers
import records
import steps
import svg
import verdict

SIMULATED = ["--simulate", "--kit", PROGRAMS.parent]


@pytest.fixture(scope="module")
def kit(convtuned, fake_worker):
    if not (PROGRAMS.parent / "lib" / "libconvtune_preload.so").exists():
        pytest.skip("libconvtune_preload.so was not built (no cuDNN)")


def run_step(work, name, *more):
    return study.run(*SIMULATED, "--work", work, "--step", name, *more)


@pytest.fixture(scope="module")
def first(tmp_path_factory, kit):
    """ResNet-50's tuning and its first generation; what most tests look at."""
    work = tmp_path_factory.mktemp("study") / "work"
    for name in ("resnet50-tune", "resnet50-peers1"):
        done = run_step(work, name)
        assert done.returncode == 0, done.stderr
    return work


def test_the_steps_come_in_the_order_of_what_they_are_worth(tmp_path):
    done = study.run("--work", tmp_path / "none", "--steps")
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    names = [step["step"] for step in listed]
    assert names[:4] == ["resnet50-tune", "resnet50-peers1", "resnext50-tune", "resnext50-peers1"]
    assert names.index("sd_unet-peers1") < names.index("startup") < names.index("resnet50-peers2") < names.index("oracle")
    assert names[-3:] == ["oracle", "flips", "soak"] and len(set(names)) == len(names)
    assert 480 <= sum(step["limit_s"] for step in listed) < 600  # about nine minutes, if no step needs all of its limit
    assert all(step["about"] for step in listed)
    assert not (tmp_path / "none").exists()


def test_the_first_table_is_the_upper_bound_and_resnet50(first):
    done = study.run("--work", first, "--table")
    assert "**SIMULATED: no card was there." in done.stdout
    assert done.stdout.index("FASTER so far (1 of 6 networks have run): yes") < done.stdout.index("## Upper bound") < done.stdout.index("## Networks")
    found = records.Records(first)
    (bound,) = verdict.bounds(found)
    winners = {p["problem"]: p for p in found.of("tuned")[0]["problems"]}
    assert len(winners) == 23 and all(p["winner_us"] <= p["stock_us"] for p in winners.values())
    assert bound.measured == 1.0 and bound.saved_us > 0 and bound.iteration_us == pytest.approx(20000, rel=0.005)
    left = [json.loads(line)["step"] for line in study.run("--work", first, "--steps").stdout.splitlines()]
    assert left[0] == "resnext50-tune" and "resnet50-peers1" not in left and "resnet50-peers2" in left


def test_the_result_is_the_one_that_was_made_up(first):
    found = records.Records(first)
    (result,) = verdict.results(found)
    times = {peer: us for peer, (us, _) in peers.MADE_UP.items()}
    assert result.status is verdict.Status.COUNTED and result.best == "B0" and result.served == 1.0
    assert result.gain.value == pytest.approx(times["B0"] / times["W"], rel=2e-3)
    assert {p: e.value for p, e in result.over_h.items()} == pytest.approx({p: us / times["H"] for p, us in times.items() if p != "H"}, rel=2e-3)
    rounds = found.of("round")
    assert len(rounds) == peers.ROUNDS and all(set(r["us"]) == set(peers.PEERS) == set(r["state"]) for r in rounds)
    assert (first / "snapshots" / "resnet50" / "current.snapshot").stat().st_size > 1000


def test_everyone_comes_first_equally_often():
    orders = [peers.order(peers.PEERS, number) for number in range(12)]
    assert all(sorted(o) == sorted(peers.PEERS) for o in orders)
    for peer in peers.PEERS:
        assert sum(o[0] == peer for o in orders) == sum(o[-1] == peer for o in orders) == 2


@pytest.fixture
def work(first, tmp_path):
    shutil.copytree(first, tmp_path / "work")
    return tmp_path / "work"


def test_a_generation_that_is_cut_short_keeps_its_rounds_and_is_listed_again(work):
    late = run_step(work, "resnet50-peers2", "--deadline", time.time() + peers.CLOSING_S + 0.02)
    assert late.returncode == 75 and "its time is up" in late.stderr
    assert "resnet50-peers2" in study.run("--work", work, "--steps").stdout
    done = run_step(work, "resnet50-peers2")
    assert done.returncode == 0, done.stderr
    found = records.Records(work)
    assert "resnet50-peers2" in found.done
    by = {}
    for r in found.of("round", step="resnet50-peers2"):
        by.setdefault(r["generation"], []).append(r)
    assert max(map(len, by.values())) == peers.ROUNDS
    (result,) = verdict.results(found)
    assert result.generations >= 2 and result.status is verdict.Status.COUNTED


def test_a_step_that_is_killed_leaves_whole_records_and_no_process(work):
    before = len(records.Records(work).all)
    command = [sys.executable, str(study.STUDY), *map(str, SIMULATED), "--work", str(work), "--step", "resnext50-tune"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    mine = lambda: subprocess.run(["pgrep", "-f", str(work)], capture_output=True, text=True).stdout.split()
    wait_until(lambda: len(mine()) >= 2, 60, "the daemon")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not mine(), 60, "its children are gone")
    with open(work / "records.jsonl", "ab") as file:
        file.write(b'{"kind":"tuned","ste')  # a write that the kill cut
    assert len(records.Records(work).all) == before
    done = run_step(work, "resnext50-tune")
    assert done.returncode == 0, done.stderr
    assert {r["network"] for r in records.Records(work).of("tuned")} == {"resnet50", "resnext50"}


def test_a_peer_that_fails_is_left_out_and_named(work):
    """W's library is there and W cannot start: the others run on, and the network does not count."""
    kit = work.parent / "kit"
    (kit / "lib").mkdir(parents=True)
    (kit / "bin").symlink_to(PROGRAMS)
    (kit / "lib" / "libconvtune_preload.so").symlink_to(PROGRAMS.parent / "lib" / "libconvtune_preload.so")
    probe = """
import sys
sys.path.insert(0, sys.argv[1])
import pathlib, time, peers, steps
from lab import Lab
from records import Records
made = peers.Group.load_request
peers.Group.load_request = lambda self, name: {"do": "no_such_request"} if name == "W" else made(self, name)
lab, found = Lab(sys.argv[2], sys.argv[3], True), Records(sys.argv[2])
found.begin(lab.conditions())
peers.generation(lab, found, "resnet50-peers2", steps.networks()["resnet50"], time.time() + 60)
"""
    done = subprocess.run([sys.executable, "-c", probe, str(study.STUDY), str(work), str(kit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = records.Records(work)
    (failed,) = found.of("peer_failed")
    assert failed["peer"] == "W" and "no_such_request" in failed["reason"]
    last = found.of("round")[-1]
    assert set(last["us"]) == set(peers.PEERS) - {"W"}
    assert found.of("served")[-1]["captured_served"] == 0
    (result,) = verdict.results(found)
    assert result.generations == 1  # the other one
    assert "no_such_request" in study.run("--work", work, "--table").stdout


def test_steps_that_need_a_tuning_say_so(tmp_path, kit):
    for name in ("resnet50-peers1", "startup", "oracle", "soak"):
        done = run_step(tmp_path / "work", name)
        assert done.returncode == 75 and done.stderr.count("\n") == 1 and "comes first" in done.stderr
    assert not records.Records(tmp_path / "work").of("failed") and not records.Records(tmp_path / "work").done


def test_a_worker_that_tunes_nothing_fails_the_step_with_its_reason(tmp_path, kit):
    kit = tmp_path / "kit"
    shutil.copytree(PROGRAMS.parent / "lib", kit / "lib", ignore=lambda *_: {n for n in os.listdir(PROGRAMS.parent / "lib") if n != "libconvtune_preload.so"})
    (kit / "bin").mkdir()
    for name in ("convtuned", "convtune"):
        (kit / "bin" / name).symlink_to(PROGRAMS / name)
    (kit / "bin" / "convtune-fake-worker").write_text(f'#!/bin/sh\nCONVTUNE_FAKE_SCRIPT=refused=1 exec {PROGRAMS / "convtune-fake-worker"} "$@"\n')
    (kit / "bin" / "convtune-fake-worker").chmod(0o755)
    done = study.run("--simulate", "--kit", kit, "--work", tmp_path / "work", "--step", "resnet50-tune")
    assert done.returncode == 1 and "nothing was tuned: " in done.stderr and "fwd,x=" in done.stderr
    assert not (tmp_path / "work" / "snapshots").exists()


@pytest.mark.ci
def test_all_steps_and_the_report_of_two_packs(work, tmp_path):
    def pack(name):
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            archive.add(work / "records.jsonl", "results/records.jsonl")
        return tmp_path / name

    earlier = pack("earlier.tar.gz")
    for line in study.run("--work", work, "--steps").stdout.splitlines():
        done = run_step(work, json.loads(line)["step"])
        assert done.returncode == 0, done.stderr
    assert study.run("--work", work, "--steps").stdout == ""
    found = records.Records(work)
    answer = verdict.verdict(found)
    assert (answer.faster, answer.sooner) == (verdict.Answer.YES, verdict.Answer.YES) and not answer.missing and not answer.left_out
    assert answer.gain.pairs == 2 * peers.ROUNDS and answer.later_ms == pytest.approx(25, abs=5)
    shapes = found.of("oracle")
    assert len(shapes) == steps.ORACLE_SHAPES and {n for n in steps.networks()} == {
        name for name, network in steps.networks().items() if any(r["problem"] in network.problems for r in shapes)
    }  # fmt: skip
    assert all(r["regret"] == pytest.approx(1 / 0.99 - 1, abs=2e-3) for r in shapes)
    assert verdict.flip_counts(found) == (0, 0, steps.FLIP_SHAPES * 10)
    assert verdict.soak(found, "simulated").value == pytest.approx(20000 / 17600, rel=5e-3)

    out = tmp_path / "report"
    done = study.run("--report", earlier, pack("later.tar.gz"), "--out", out)
    assert done.returncode == 0, done.stderr
    page = (out / "report.md").read_text()
    # What both packs hold counts once.
    text = lambda lines: [line for line in lines.splitlines() if line and not line.startswith("![")]
    assert text(page) == text(study.run("--work", work, "--table").stdout)
    assert len(records.read(b"".join((work / "records.jsonl").read_bytes() for _ in range(2)))) == len(found.all)
    for name in ("gains", "peers", "startup", "regret"):
        assert f"![{name}]({name}.svg)" in page
        assert tree.fromstring((out / f"{name}.svg").read_text()).tag.endswith("svg")
    assert re.search(r"\| resnet50 +\| simulate +\| B0 +\| 1\.07", page)


def test_a_report_of_nothing_says_so(tmp_path):
    assert study.run("--report", tmp_path / "none.tar.gz").returncode == 2
    (tmp_path / "records.jsonl").write_text("no record\n")
    done = study.run("--report", tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 1 and "no records" in done.stderr


def test_real_and_simulated_records_do_not_mix(tmp_path, kit):
    log = records.Records(tmp_path / "work")
    log.begin({"simulated": False, "card": "GPU-a"})
    done = run_step(tmp_path / "work", "resnet50-tune")
    assert done.returncode == 2 and "holds real records" in done.stderr


def test_without_a_card_it_says_so(tmp_path, kit):
    done = study.run("--kit", PROGRAMS.parent, "--work", tmp_path / "work", "--step", "resnet50-tune")
    if done.returncode == 0:
        pytest.skip("this machine has a card")
    assert (done.returncode == 77 and "no GPU" in done.stderr) or (done.returncode == 1 and "not in" in done.stderr)
    assert not (tmp_path / "work").exists()


def test_a_kit_that_lacks_a_program_is_named(tmp_path):
    (tmp_path / "bin").mkdir()
    done = study.run("--simulate", "--kit", tmp_path, "--work", tmp_path / "work", "--step", "resnet50-tune")
    assert done.returncode == 1 and f"convtune-fake-worker: not in {tmp_path}/bin" in done.stderr


def test_a_step_of_no_name_is_refused(tmp_path):
    done = study.run("--work", tmp_path, "--step", "resnet51-tune")
    assert done.returncode == 2 and "resnet51-tune" in done.stderr


def test_what_nvml_says_of_the_card(monkeypatch):
    """A made-up driver's library that lacks a function: what that would have said is not known."""
    import lab

    def text(value):
        def function(*arguments):
            arguments[-2].value = value
            return 0
        return function

    def number(value):
        def function(*arguments):
            arguments[-1]._obj.value = value
            return 0
        return function

    class Driver:
        nvmlInit_v2 = staticmethod(lambda: 0)
        nvmlDeviceGetHandleByIndex_v2 = staticmethod(number(7))
        nvmlDeviceGetUUID, nvmlDeviceGetName = staticmethod(text(b"GPU-1")), staticmethod(text(b"A card"))
        nvmlSystemGetDriverVersion = staticmethod(text(b"580.1"))
        nvmlDeviceGetClockInfo, nvmlDeviceGetPowerUsage = staticmethod(number(1755)), staticmethod(number(312_345))

    monkeypatch.setattr(lab.ctypes, "CDLL", lambda name: Driver)
    card = lab.Card()
    assert (card.uuid, card.name, card.driver) == ("GPU-1", "A card", "580.1")
    assert card.state() == {"mhz": 1755, "watts": 312.3, "celsius": None}
    monkeypatch.setattr(Driver, "nvmlInit_v2", staticmethod(lambda: 9))
    with pytest.raises(lab.NoGpu, match="no GPU on this machine"):
        lab.Card()


def test_a_plot_is_well_formed_and_has_every_point():
    points = [("a & b", 0.9, (0.85, 0.95)), ("c", 1.2, None)]
    root = tree.fromstring(svg.intervals("title <1>", "ratio", points, 1.0))
    space = "{http://www.w3.org/2000/svg}"
    circles = [float(c.get("cx")) for c in root.iter(f"{space}circle")]
    assert len(circles) == 2 and circles[0] < circles[1]
    assert {"a & b", "c", "0.900", "1.200"} <= {t.text for t in root.iter(f"{space}text")}
