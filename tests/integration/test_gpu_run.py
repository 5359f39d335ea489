"""tests/gpu/run over the fake worker: what a GPU would be asked, and what is packed of it."""

import gzip
import importlib.util
import json
import pathlib
import subprocess
import tarfile

import pytest

from conftest import PROGRAMS
from harness import shell
from harness.daemon import wait_until

pytestmark = pytest.mark.ci

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = [
    f"resnet50-{form}"
    for form in ("fwd-f16-nhwc", "fwd-f32-nchw", "bwd_data-f16-nhwc", "bwd_filter-f16-nhwc", "bwd_data-f32-nchw", "bwd_filter-f32-nchw")
]  # fmt: skip


@pytest.fixture
def programs(tmp_path, convtuned, fake_worker):
    """A folder of programs, in which the fake worker has the worker's place."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("convtuned", "convtune"):
        (folder / name).symlink_to(PROGRAMS / name)
    (folder / "convtune-worker").symlink_to(fake_worker)
    return folder


def gpu_run(programs, out, *options, **env):
    command = [ROOT / "tests/gpu/run", "--bin", programs, "--out", out, "--budget", "2s", *options]
    return subprocess.run(command, env={"PATH": "/usr/bin:/bin", "HOME": str(out), **env}, capture_output=True, text=True)


def packed(out):
    """{name: content} of the only pack."""
    (pack,) = out.glob("*.tar.gz")
    with tarfile.open(pack) as tar:
        return {pathlib.PurePath(m.name).name: tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}


def test_everything_is_tuned_and_packed(programs, tmp_path):
    out = tmp_path / "results"
    done = gpu_run(programs, out)
    assert done.returncode == 0, done.stderr
    (only,) = out.iterdir()
    assert done.stdout == f"{only}\n"
    files = packed(out)
    runs = files["runs.txt"].decode().splitlines()
    assert [line.split(" seconds=")[0] for line in runs] == [f"{name} exit=0 budget_ms=2000" for name in RUNS]
    for name in RUNS:
        rows = json.loads(files[f"{name}.json"])["results"]
        assert len(rows) >= 20, name
        assert all(row["answer"]["winner"]["sampleCount"] > 0 for row in rows), name
        if "f16" in name:  # the fake worker's results are too far off for f32
            assert {row["answer"]["evidence"] for row in rows} == {"EVIDENCE_MEASURED"}, name
    names, *tunings = [line.split("\t") for line in files["samples.txt"].decode().splitlines()]
    assert len(tunings) >= 6 * 20
    for row in (dict(zip(names, tuning, strict=True)) for tuning in tunings):
        if ",f16," in row["problem"]:
            assert (row["raced"], row["quarantined"], row["lowest_mhz"]) == ("input_hot", "0", "1755"), row
            assert int(row["timed"]) == int(row["compared"]) == int(row["captured"]) + int(row["not_captured"]) > 0, row
            assert "eager/cold:" in row["other_times"] and float(row["largest_error"]) > 0, row
    about = dict(line.split("=", 1) for line in files["about.txt"].decode().splitlines())
    assert about["environment"].startswith("nvidia-h200,") and about["commit"] and about["date"]
    (recording,) = [data for name, data in files.items() if name.endswith(".bundle.gz")]
    assert len(gzip.decompress(recording)) > 10_000
    assert not list(out.glob("*.part"))


def test_what_was_measured_is_packed_when_a_run_is_cut_short(programs, tmp_path):
    out = tmp_path / "results"
    out.mkdir()
    command = [ROOT / "tests/gpu/run", "--bin", programs, "--out", out, "--budget", "2s"]
    run = subprocess.Popen(command, env={"PATH": "/usr/bin:/bin", "HOME": str(out)}, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: list(out.glob("*.tar.gz")), 120, "a first result")
    finally:
        run.terminate()
        run.communicate()
    assert {"samples.txt", "tunings.db", "about.txt", f"{RUNS[0]}.json"} <= packed(out).keys()


def test_problems_get_less_time_where_the_whole_would_take_too_long(programs, tmp_path):
    out = tmp_path / "results"
    done = gpu_run(programs, out, "--minutes", "1", "--only", "fwd:f16:nhwc", "--only", "bwd_data:f16:nhwc")
    assert done.returncode == 0, done.stderr
    runs = packed(out)["runs.txt"].decode().splitlines()
    assert [line.split()[0] for line in runs] == ["resnet50-fwd-f16-nhwc", "resnet50-bwd_data-f16-nhwc"]
    budgets = [int(line.split("budget_ms=")[1].split()[0]) for line in runs]
    assert budgets[0] < 2000, budgets


@pytest.mark.parametrize("status, packs", [(1, True), (2, False)], ids=["a file grew", "an error"])
def test_a_log_that_grows_while_it_is_packed_loses_no_pack(programs, tmp_path, status, packs):
    """GNU tar ends with 1 where a file changed as it read it."""
    tar = shell.program(tmp_path / "tools" / "tar", f'echo >> {tmp_path}/tars\n/usr/bin/tar "$@"\nexit {status}')
    out = tmp_path / "results"
    done = gpu_run(programs, out, "--only", "fwd:f16:nhwc", PATH=f"{tar.parent}:/usr/bin:/bin")
    assert (done.returncode == 0) == packs, done.stderr
    assert len(list(out.glob("*.tar.gz"))) == packs
    assert (tmp_path / "tars").read_text() == "\n"  # one form, one pack


@pytest.mark.parametrize("option, value", [("--budget", "soon"), ("--minutes", "0"), ("--only", "fwd:f64:nhwc")])
def test_an_option_that_cannot_be_is_said(programs, tmp_path, option, value):
    done = gpu_run(programs, tmp_path / "results", option, value)
    assert done.returncode == 1 and option in done.stderr and value in done.stderr


@pytest.mark.parametrize("worker, code, words", [("/bin/false", 1, "convtune-worker does not run"), ("/bin/true", 77, "no GPU")])
def test_without_a_worker_or_a_card_nothing_is_run(programs, tmp_path, worker, code, words):
    (programs / "convtune-worker").unlink()
    (programs / "convtune-worker").symlink_to(worker)
    done = gpu_run(programs, tmp_path / "results")
    assert done.returncode == code and words in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_run_that_fails_is_said_and_the_rest_is_packed(programs, tmp_path):
    done = gpu_run(programs, tmp_path / "results", CONVTUNE_FAKE_SCRIPT="refused=1")
    assert done.returncode == 1
    assert "refuses every problem" in done.stderr
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_candidates_with_a_wrong_result_are_named(programs, tmp_path):
    out = tmp_path / "results"
    done = gpu_run(programs, out, "--only", "fwd:f16:nhwc", CONVTUNE_FAKE_SCRIPT="wrong=2")
    assert done.returncode == 0, done.stderr
    lines = packed(out)["samples.txt"].decode().splitlines()
    named = [line.split("\t") for line in lines if line.startswith("quarantined\t")]
    assert len(named) >= 20
    assert {candidate for _, _, candidate, _ in named} == {"graph:eng2,k2=2"} and all(message for *_, message in named)


def test_the_summary_counts_what_a_trace_says():
    spec = importlib.util.spec_from_file_location("summary", ROOT / "tests/gpu/summary.py")
    summary = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(summary)
    sample = {"kind": "sample", "blocked": True, "sm_clock_mhz": 1755}
    lines = [{"kind": "worker", "trace": 1, "pid": 7}, {"kind": "problem", "pid": 7, "problem": "a"},
             {"kind": "problem", "pid": 8, "problem": "b"}, {"pid": 7, **sample}, {"pid": 7, **sample, "blocked": False},
             {"pid": 8, **sample, "sm_clock_mhz": 0}, {"kind": "sample", "pid": 8, "failure": "it fell over"},
             {"kind": "check", "pid": 8, "capture": "no", "capture_refusal": "not permitted"}]  # fmt: skip
    trace = summary.Trace([*map(json.dumps, lines), '{"kind": "sam'])
    assert trace.fields("a") == ["1", "0", "2"]
    assert trace.fields("b") == ["0", "1", "1"]
    assert trace.fields("c") == ["-", "-", "-"]
    assert trace.refusals == {"not permitted": 1}
    with pytest.raises(SystemExit):
        summary.Trace([json.dumps({"kind": "worker", "trace": 2, "pid": 7})])
