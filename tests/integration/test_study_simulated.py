"""The whole study without a GPU: the real daemon over the fake worker, made-up peers, everything else as it is.

A rehearsal has the real worker on the simulated GPU in its place (test_kit.py).
"""

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

import lab
import peers
import records
import steps
import svg
import verdict

pytestmark = pytest.mark.ci

SNAPSHOT = "snapshots/simulated/resnet50/current.snapshot"
SIMULATED = ["--simulate", PROGRAMS / "convtune-fake-worker", "--kit", PROGRAMS.parent]


@pytest.fixture(scope="module")
def kit(convtuned, fake_worker):
    if not (PROGRAMS.parent / "lib" / "libconvtune_preload.so").exists():
        pytest.skip("libconvtune_preload.so was not built (no cuDNN)")


def run_step(work, name, *more):
    return study.run(*SIMULATED, "--work", work, "--step", name, *more)


def table(work):
    return study.run("--work", work, "--table").stdout


def left_of(work, *options):
    """Names of the steps that have not been done."""
    return [json.loads(line)["step"] for line in study.run(*options, "--work", work, "--steps").stdout.splitlines()]


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
    assert names[:4] == ["resnet50-tune", "resnet50-peers1", "startup", "resnext50-tune"]
    assert names.index("sd_unet-peers1") < names.index("resnet50-peers2") < names.index("oracle")
    assert [s["step"] for s in listed if s["extra"]] == names[-3:] == ["oracle", "flips", "soak"] and len(set(names)) == len(names)
    # Two calls of nine and a half minutes have all that the rule needs, beside their gates, if no step needs all of its limit.
    assert 600 <= sum(step["limit_s"] for step in listed if not step["extra"]) < 2 * 9.5 * 60 * 0.75
    limits = {step["step"]: step["limit_s"] for step in listed}
    assert limits["efficientnet_b0-peers2"] > limits["sd_unet-peers2"] > limits["resnext50-peers2"] >= 23  # by what is searched
    assert limits["resnet50-peers2"] >= limits["yolov3-peers2"] + steps.B0_S
    assert all(step["about"] for step in listed)
    assert not (tmp_path / "none").exists()


def test_the_first_table_is_the_upper_bound_and_resnet50(first):
    printed = table(first)
    assert "**SIMULATED: no GPU was there." in printed
    order = ["resnet50 in captured graphs: H / W 1.13", "resnet50: W / B10 0.92", "resnet50, first iterations: H 2", "FASTER so far (1 of 6 networks have run): open", "## Networks", "## Upper bound"]
    assert sorted(order, key=printed.index) == order
    assert "served 53 of 53, 1 generation\n" in printed
    found = records.Records(first)
    (bound,) = verdict.bounds(found)
    winners = {p["problem"]: p for p in found.of("tuned")[0]["problems"]}
    assert len(winners) == 23 and all(p["winner_us"] <= p["stock_us"] for p in winners.values())
    assert bound.measured == 1.0 and bound.saved_us > 0 and bound.iteration_us == pytest.approx(20000, rel=0.005)
    left = left_of(first)
    assert left[:2] == ["startup", "resnext50-tune"] and "resnet50-peers1" not in left and "resnet50-peers2" in left


def test_the_result_is_the_one_that_was_made_up(first):
    found = records.Records(first)
    (result,) = verdict.results(found)
    times = {peer: us for peer, (us, _) in peers.MADE_UP.items()}
    assert result.status is verdict.Status.COUNTED and result.best == "B0" and result.served == 1.0 and not result.without
    assert result.gain.value == pytest.approx(times["B0"] / times["W"], rel=2e-3)
    # Mode B is H there, and has no peer.
    assert {p: e.value for p, e in result.over_h.items()} == pytest.approx({p: us / times["H"] for p, us in times.items() if p not in "HB"}, rel=2e-3)
    rounds = found.of("round")
    assert len(rounds) == peers.ROUNDS and all(set(r["us"]) == set(peers.names_for("resnet50")) == set(r["state"]) for r in rounds)
    assert (first / SNAPSHOT).stat().st_size > 1000


def test_one_tuning_is_the_verdicts_and_the_recordings(first):
    assert re.search(r"\| resnet50 +\| \d+ +\| \d+ +\| \d+ +\| [\d.]+% +\| 100% +\| 100% +\| \d+/\d+ +\| \d+% ", table(first)), table(first)
    names, *rows = [line.split("\t") for line in (first / "samples.txt").read_text().splitlines()]
    assert {row[0].removesuffix(",acc=f32") for row in rows if len(row) == len(names)} == set(steps.networks()["resnet50"].problems)
    assert (first / "recording.bundle").stat().st_size > (first / steps.BUNDLE).stat().st_size > 1000


def test_what_was_done_on_another_model_of_gpu_is_done_again(work):
    """Its winners serve nobody here. Another card of this model goes on."""
    path = work / "records.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"card":"simulated"', '"card":"another"'))
    assert left_of(work, *SIMULATED)[0] == "startup"
    path.write_text(text.replace('"gpu":"simulated"', '"gpu":"NVIDIA H100"'))
    (work / "snapshots" / "simulated").rename(work / "snapshots" / "NVIDIA_H100")
    assert left_of(work, *SIMULATED)[:2] == ["resnet50-tune", "resnet50-peers1"]
    done = run_step(work, "resnet50-peers2")
    assert done.returncode == 75 and "no published winners" in done.stderr


def test_a_clock_that_is_off_is_sampled_and_said(work):
    (work / "ignore-clock").write_text("simulated")
    done = run_step(work, "startup")
    assert done.returncode == 0 and records.Records(work).of("conditions")[-1]["clock_ignored"]
    assert "sampled in spite of it" in table(work)
    (work / "ignore-clock").write_text("NVIDIA H100")  # that of another model
    assert run_step(work, "resnet50-peers2").returncode == 0 and not records.Records(work).of("conditions")[-1]["clock_ignored"]


def test_everyone_comes_first_equally_often():
    names = peers.names_for("resnext50")
    assert peers.ROUNDS == 2 * len(names)
    orders = [peers.order(names, number) for number in range(peers.ROUNDS)]
    assert all(sorted(o) == sorted(names) for o in orders)
    for peer in names:
        assert sum(o[0] == peer for o in orders) == sum(o[-1] == peer for o in orders) == 2


@pytest.fixture
def work(first, tmp_path):
    shutil.copytree(first, tmp_path / "work")
    return tmp_path / "work"


def test_a_generation_that_is_cut_short_keeps_its_rounds_and_is_listed_again(work):
    late = run_step(work, "resnet50-peers2", "--deadline", time.time() + peers.CLOSING_S + 0.02)
    assert late.returncode == 75 and "its time is up" in late.stderr
    assert "resnet50-peers2" in left_of(work)
    done = run_step(work, "resnet50-peers2")
    assert done.returncode == 0, done.stderr
    found = records.Records(work)
    assert "resnet50-peers2" in found.done()
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


def scripted(folder, script):
    """Options for a kit of this build's programs, whose fake worker does what the script says."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib" / "libconvtune_preload.so").symlink_to(PROGRAMS.parent / "lib" / "libconvtune_preload.so")
    for name in ("convtuned", "convtune"):
        (folder / "bin" / name).symlink_to(PROGRAMS / name)
    worker = folder / "bin" / "convtune-fake-worker"
    worker.write_text(f"#!/bin/sh\nCONVTUNE_FAKE_SCRIPT='{script}' exec '{PROGRAMS / 'convtune-fake-worker'}' \"$@\"\n")
    worker.chmod(0o755)
    return ["--simulate", worker, "--kit", folder]


GENERATION = """
import sys
sys.path.insert(0, sys.argv[1])
import pathlib, signal, time, peers, steps
from lab import Lab
from records import Records
load, each = peers.Group.load_request, peers.Group.each
{change}
lab, found = Lab(sys.argv[2], sys.argv[3], sys.argv[3] + "/bin/convtune-fake-worker"), Records(sys.argv[2])
found.begin(lab.conditions())
peers.generation(lab, found, "resnet50-peers2", steps.networks()["resnet50"], time.time() + {seconds})
"""


def generation(work, change, seconds=60):
    """A second generation of ResNet-50's peers in which something of the study is changed; its records."""
    code = GENERATION.format(change=change, seconds=seconds)
    done = subprocess.run([sys.executable, "-c", code, str(study.STUDY), str(work), str(PROGRAMS.parent)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return records.Records(work)


def test_a_peer_that_fails_is_left_out_and_named(work):
    """W's library is there and W cannot start: the others run on, and the network does not count."""
    found = generation(work, 'peers.Group.load_request = lambda self, name: {"do": "no_such_request"} if name == "W" else load(self, name)')
    (failed,) = found.of("peer_failed")
    assert failed["peer"] == "W" and "no_such_request" in failed["reason"]
    last = found.of("round")[-1]
    assert set(last["us"]) == set(peers.names_for("resnet50")) - {"W"}
    assert found.of("served")[-1]["captured_served"] == 0
    (result,) = verdict.results(found)
    assert result.generations == 1  # the other one
    assert "no_such_request" in table(work)


STOP_B0 = """
def stopped(self, request_of, together=True, until=None):
    if until is not None:
        self.peers["B0"].process.send_signal(signal.SIGSTOP)
    return each(self, request_of, together, until)
peers.Group.each = stopped
"""


def test_a_search_without_an_end_costs_its_peer_alone(work):
    """B0 is stopped in front of its first iteration: the others replay, and B0 is gone from the GPU."""
    # The made-up rounds take no time: the peer has what is left of the deadline.
    found = generation(work, STOP_B0, peers.CLOSING_S + peers.ROUNDS_S + 3)
    (failed,) = found.of("peer_failed")
    assert failed["peer"] == "B0" and "not done in its time" in failed["reason"]
    rounds = found.of("round", step="resnet50-peers2")
    assert len(rounds) == peers.ROUNDS and all(set(r["us"]) == set(peers.names_for("resnet50")) - {"B0"} for r in rounds)
    assert found.of("served")[-1]["captured_served"] == steps.networks()["resnet50"].convolutions
    (result,) = verdict.results(found)
    assert result.status is verdict.Status.COUNTED


# Made-up answers are there at once: only a peer that is stopped has none by any deadline.
STOP_H2 = """
compare = peers.compare_modes
def stopped(group, records):
    group.peers["H2"].process.send_signal(signal.SIGSTOP)
    compare(group, records)
peers.compare_modes = stopped
peers.MODES_S = 0.5
"""


def test_what_cudnn_lists_for_b_is_asked_once_and_costs_nobody(work):
    (asked,) = records.Records(work).of("modes")
    assert (asked["convolutions"], asked["same_list"]) == (53, 53)
    path = work / "records.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"kind":"modes"' not in line))
    found = generation(work, STOP_H2)
    assert not found.of("modes") and [r["peer"] for r in found.of("peer_failed")] == ["H2"]
    (result,) = verdict.results(found)
    assert result.generations == 2 and result.status is verdict.Status.COUNTED and result.modes is None


def test_what_another_card_began_is_not_gone_on_with(work):
    """Its processes and tunings are no part of this GPU's."""
    with open(work / "records.jsonl", "a") as file:
        for number in range(6):
            file.write(json.dumps({"kind": "startup", "card": "GPU-b", "network": "resnet50", "peer": "H", "round": number}) + "\n")
            file.write(json.dumps({"kind": "flips", "card": "GPU-b", "number": number, "tunings": {}}) + "\n")
    for name in ("startup", "flips"):
        done = run_step(work, name)
        assert done.returncode == 0, done.stderr
    found = records.Records(work)
    assert len(found.of("startup", card="simulated")) == 2 * peers.STARTS + peers.B10_STARTS
    assert len(found.of("flips", card="simulated")) == steps.FLIP_TUNINGS


def test_a_peer_writes_its_counters_though_its_group_was_told_to_end(tmp_path):
    """The end of a step is told to all of its processes at once."""
    counters = tmp_path / "counters.jsonl"
    process = subprocess.Popen(
        [sys.executable, study.STUDY / "peer.py", "--made-up"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "CONVTUNE_PRELOAD_COUNTERS": str(counters)},
    )  # fmt: skip
    assert "imported" in process.stdout.readline()
    process.stdin.write(json.dumps({"do": "load", "made_up": {"served": 53}, "seed": 1}) + "\n")
    process.stdin.flush()
    assert "torch" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert json.loads(counters.read_text())["captured_served"] == 53


def test_a_worker_that_is_wrong_everywhere_publishes_nothing_and_the_step_says_so(tmp_path, kit):
    """The others are compared once, without W."""
    arguments = [*scripted(tmp_path / "kit", "wrong=-2"), "--work", tmp_path / "work", "--step"]
    done = study.run(*arguments, "resnet50-tune")
    assert done.returncode == 1 and "0% of the convolutions have a tuning that may be published" in done.stderr, done.stderr
    found = records.Records(tmp_path / "work")
    assert len(found.of("tuned")) == 1 and not found.done() and not (tmp_path / "work" / "snapshots").exists()
    for _ in range(2):
        done = study.run(*arguments, "resnet50-peers1")
        assert done.returncode == 75 and len(records.Records(tmp_path / "work").of("round")) == peers.ROUNDS
    (result,) = verdict.results(records.Records(tmp_path / "work"))
    assert set(result.over_h) == {"H2", "B10", "B0"} and "may be published" in result.because
    assert "W was not served: 0% of the convolutions" in table(tmp_path / "work")


def test_a_tuning_that_was_cut_short_is_gone_on_with_on_another_machine(work, tmp_path):
    """The database stayed behind, and this worker could tune nothing: what was tuned comes back."""
    shutil.rmtree(work / "state")
    done = study.run(*scripted(tmp_path / "kit", "refused=1"), "--work", work, "--step", "resnet50-tune")
    assert done.returncode == 0, done.stderr
    first, again = records.Records(work).of("tuned")
    winners = lambda record: {p["problem"]: (p["winner"], p["winner_us"]) for p in record["problems"]}
    assert winners(again) == winners(first) and (work / SNAPSHOT).exists()


def test_what_nobody_thought_of_is_a_failure_of_its_step_and_named(tmp_path, kit):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "state").write_text("a file in the place of a folder")
    done = run_step(tmp_path / "work", "resnet50-tune")
    (failed,) = records.Records(tmp_path / "work").of("failed")
    assert done.returncode == 1 and failed["reason"].startswith("FileExistsError: ")


def test_a_self_check_is_read_wherever_it_stands():
    device = {"name": "gpu:0", "selfCheck": {"known": True, "failed": ["clock", "captures"], "details": "clock: 12 us"}}
    assert lab.failed_instruments({"devices": [device, {"selfCheck": {"known": True}}]}) == ["clock", "captures"]
    assert lab.failed_instruments([{"conditions": {"self_check": {"failed": ["caches"]}}}, None]) == ["caches"]
    assert lab.failed_instruments({"devices": [{"name": "gpu:0"}]}) == []


def test_steps_that_need_a_tuning_say_so(tmp_path, kit):
    for name in ("resnet50-peers1", "startup", "oracle", "soak"):
        done = run_step(tmp_path / "work", name)
        assert done.returncode == 75 and done.stderr.count("\n") == 1 and "comes first" in done.stderr
    assert not records.Records(tmp_path / "work").of("failed") and not records.Records(tmp_path / "work").done()


def test_a_worker_that_tunes_nothing_fails_the_step_with_its_reason(tmp_path, kit):
    done = study.run(*scripted(tmp_path / "kit", "refused=1"), "--work", tmp_path / "work", "--step", "resnet50-tune")
    assert done.returncode == 1 and "nothing was tuned: " in done.stderr and "fwd,x=" in done.stderr
    assert not (tmp_path / "work" / "snapshots").exists()


def test_all_steps_and_the_report_of_two_packs(work, tmp_path):
    def pack(name):
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            archive.add(work / "records.jsonl", "results/records.jsonl")
        return tmp_path / name

    earlier = pack("earlier.tar.gz")
    for name in left_of(work):
        done = run_step(work, name)
        assert done.returncode == 0, done.stderr
    assert left_of(work) == []
    found = records.Records(work)
    answer = verdict.verdict(found)
    assert (answer.faster, answer.sooner) == (verdict.Answer.YES, verdict.Answer.YES) and not answer.missing and not answer.left_out
    assert answer.over_w.pairs == 2 * peers.ROUNDS and answer.later_ms == pytest.approx(25, abs=5)
    shapes = found.of("oracle")
    assert len(shapes) == steps.ORACLE_SHAPES and {n for n in steps.networks()} == {
        name for name, network in steps.networks().items() if any(r["problem"] in network.problems for r in shapes)
    }  # fmt: skip
    assert all(r["regret"] == pytest.approx(1 / 0.99 - 1, abs=2e-3) for r in shapes)
    assert verdict.flip_counts(found) == (0, 0, steps.FLIP_SHAPES * 3)
    assert verdict.soak(found, "simulated").value == pytest.approx(20000 / 17600, rel=5e-3)

    out = tmp_path / "report"
    done = study.run("--report", earlier, pack("later.tar.gz"), "--out", out)
    assert done.returncode == 0, done.stderr
    page = (out / "report.md").read_text()
    # Records in both packs count once.
    text = lambda lines: [line for line in lines.splitlines() if line and not line.startswith("![")]
    assert text(page) == text(table(work))
    assert len(records.read(b"".join((work / "records.jsonl").read_bytes() for _ in range(2)))) == len(found.all)
    for name in ("gains", "peers", "startup", "regret"):
        assert f"![{name}]({name}.svg)" in page
        assert tree.fromstring((out / f"{name}.svg").read_text()).tag.endswith("svg")
    assert re.search(r"\| resnet50 +\| simulate +\| 1\.13.*\| B0 +\| 1\.07", page)


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
        pytest.skip("this machine has a GPU")
    assert (done.returncode == 77 and "no GPU" in done.stderr) or (done.returncode == 1 and "not in" in done.stderr)
    assert not (tmp_path / "work").exists()


def test_a_kit_that_lacks_a_program_is_named(tmp_path):
    (tmp_path / "bin").mkdir()
    done = study.run("--simulate", tmp_path / "worker", "--kit", tmp_path, "--work", tmp_path / "work", "--step", "resnet50-tune")
    assert done.returncode == 1 and f"convtuned, convtune: not in {tmp_path}/bin" in done.stderr
    done = study.run("--simulate", tmp_path / "worker", "--kit", PROGRAMS.parent, "--work", tmp_path / "work", "--step", "resnet50-tune")
    assert done.returncode == 1 and f"{tmp_path}/worker is not there" in done.stderr


def test_a_step_of_no_name_is_refused(tmp_path):
    done = study.run("--work", tmp_path, "--step", "resnet51-tune")
    assert done.returncode == 2 and "resnet51-tune" in done.stderr


def writes(value, place=-1):
    """A function of a driver: it writes this to what one of its arguments points to."""

    def function(*arguments):
        if isinstance(value, bytes):
            arguments[place].raw = value.ljust(len(arguments[place]), b"\0")
        else:
            arguments[place]._obj.value = value
        return 0

    return staticmethod(function)


def test_what_nvml_says_of_the_card(monkeypatch):
    """A made-up driver's library that lacks a function: what that would have said is not known."""
    class Driver:
        nvmlInit_v2 = staticmethod(lambda: 0)
        nvmlDeviceGetHandleByIndex_v2 = writes(7)
        nvmlDeviceGetUUID, nvmlDeviceGetName = writes(b"GPU-1", -2), writes(b"A GPU", -2)
        nvmlSystemGetDriverVersion = writes(b"580.1", -2)
        nvmlDeviceGetClockInfo, nvmlDeviceGetPowerUsage = writes(1755), writes(312_345)

    monkeypatch.setattr(lab.ctypes, "CDLL", lambda name: Driver)
    card = lab.Card()
    assert (card.uuid, card.name, card.driver) == ("GPU-1", "A GPU", "580.1")
    assert card.state() == {"mhz": 1755, "watts": 312.3, "celsius": None}
    monkeypatch.setattr(Driver, "nvmlInit_v2", staticmethod(lambda: 9))
    with pytest.raises(lab.NoGpu, match="no GPU on this machine"):
        lab.Card()


def test_without_nvml_the_driver_says_which_card_it_is(monkeypatch):
    class Driver:
        cuInit = staticmethod(lambda flags: 0)
        cuDeviceGet, cuDriverGetVersion = writes(0, 0), writes(13000, 0)
        cuDeviceGetName, cuDeviceGetUuid = writes(b"A GPU".ljust(96, b"\0"), 0), writes(bytes(range(16)), 0)

    def load(name):
        if name == "libcuda.so.1":
            return Driver
        raise OSError(f"{name}: not there")

    monkeypatch.setattr(lab.ctypes, "CDLL", load)
    card = lab.find_card()
    assert (card.uuid, card.name, card.driver) == ("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "A GPU", "for CUDA 13.0")
    assert set(card.state().values()) == {None} and card.used_bytes() is None
    monkeypatch.setattr(Driver, "cuInit", staticmethod(lambda flags: 100))
    with pytest.raises(lab.NoGpu, match="libnvidia-ml"):
        lab.find_card()


def test_a_plot_is_well_formed_and_has_every_point():
    points = [("a & b", 0.9, (0.85, 0.95)), ("c", 1.2, None)]
    root = tree.fromstring(svg.intervals("title <1>", "ratio", points, 1.0))
    space = "{http://www.w3.org/2000/svg}"
    circles = [float(c.get("cx")) for c in root.iter(f"{space}circle")]
    assert len(circles) == 2 and circles[0] < circles[1]
    assert {"a & b", "c", "0.900", "1.200"} <= {t.text for t in root.iter(f"{space}text")}
