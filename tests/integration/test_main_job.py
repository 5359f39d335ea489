"""The main job, end to end, with real cuDNN and the H200 profile."""

import pathlib
import re
import sqlite3
import subprocess

import pytest

from harness.problems import VARIED

PROFILE = "nvidia-h200"
ENVIRONMENT = "profile:nvidia-h200"
ONE = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"


def answers(result):
    return [(r["problemText"], r["answer"]["winner"]["text"]) for r in result.json()["results"]]


def test_varied_problems_are_answered_and_kept(daemons, worker, cli, tmp_path):
    listing = tmp_path / "varied.txt"
    listing.write_text("# one of each kind\n" + "".join(f"{p}\n" for p in VARIED))
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker).start()
    missed = cli(daemon)("get", "--file", listing, "--json")
    assert missed.code == 3
    assert all("miss" in r for r in missed.json()["results"])

    first = answers(cli(daemon).ok("get", "--file", listing, "--on-miss", "heuristic", "--json"))
    assert len(first) == len(VARIED)
    assert all(winner.startswith("graph:eng") for _, winner in first)
    with daemon.client() as client:
        assert client.info().worker_starts == 1
    assert daemon.stop() == 0

    daemon.start()
    again = cli(daemon).ok("get", "--file", listing, "--on-miss", "heuristic", "--json")
    assert answers(again) == first
    assert not any(r["answer"].get("fresh") for r in again.json()["results"])
    assert all(r["answer"]["evidence"] == "EVIDENCE_HEURISTIC" for r in again.json()["results"])
    with daemon.client() as client:
        info = client.info()
    assert info.worker_starts == 0 and info.worker_requests == 0 and info.hits == len(VARIED)


@pytest.fixture(scope="module")
def warm(module_daemon, worker):
    """A daemon for the whole module that has tuned ONE."""
    daemon = module_daemon("--devices", "none", "--profile", PROFILE, "--worker", worker).start()
    with daemon.client() as client:
        assert client.tune(ONE).succeeded_count == 1
    return daemon


def test_answer_says_where_it_comes_from(warm):
    with warm.client() as client:
        answer = client.get_one(ONE).answer
        tuning = client.tuning.GetTuning(problem={"text": ONE})
    assert answer.environment == ENVIRONMENT
    assert answer.candidate_count == len(tuning.candidates) > 10
    assert 0 < answer.eligible_count <= answer.candidate_count
    assert answer.tuning_id == tuning.id and answer.tuning_id.startswith("v1:")
    assert answer.persisted and not answer.fresh and not answer.pinned
    assert answer.note
    assert tuning.environment.profile and tuning.environment.compute_capability == "9.0"
    assert [c.stock for c in tuning.candidates].count(True) == 1


def test_one_tuning_answers_every_constraint(warm):
    with warm.client() as client:
        before = client.info().worker_requests
        candidates = client.tuning.GetTuning(problem={"text": ONE}).candidates
        ran = {c.text: c for c in candidates if not c.error_message}
        for limit in sorted({c.workspace_bytes for c in ran.values()}):
            result = client.get_one(ONE, constraints={"max_workspace_bytes": limit})
            assert ran[result.answer.winner.text].workspace_bytes <= limit
            assert result.answer.eligible_count == sum(c.workspace_bytes <= limit for c in ran.values())
        deterministic = client.get_one(ONE, constraints={"deterministic": True}).answer
        assert ran[deterministic.winner.text].deterministic
        assert deterministic.eligible_count == sum(c.deterministic for c in ran.values())
        strict = client.get_one(ONE, constraints={"deterministic": True, "max_workspace_bytes": 0,
                                                  "forbid_winograd": True, "forbid_fft": True})  # fmt: skip
        if strict.WhichOneof("outcome") == "answer":
            assert strict.answer.winner.workspace_bytes == 0 and strict.answer.winner.deterministic
        legacy = client.get_one(ONE, constraints={"api": "API_LEGACY"})
        assert legacy.WhichOneof("outcome") == "miss"
        assert client.info().worker_requests == before


def test_what_is_kept_is_shown(warm, cli):
    with warm.client() as client:
        answered = client.get_one(ONE)
        candidates = client.tuning.GetTuning(problem={"text": ONE}).candidates
    run = cli(warm)
    explained = run.ok("explain", ONE).out
    assert [c.text for c in candidates if c.text not in explained] == []
    heading, *rows = run.ok("list", "--csv").out.splitlines()
    assert "problem" in heading
    assert any(answered.problem_text in row and answered.answer.winner.text in row for row in rows), rows
    assert ENVIRONMENT in run.ok("environments").out
    assert "jobs/" in run.ok("jobs", "list").out
    assert run.ok("version").out.count("0.1.0") >= 2, "the program's and the daemon's"


def test_pin_overrides_until_unpin(warm, cli):
    with warm.client() as client:
        best = client.get_one(ONE).answer.winner.text
        other = next(
            c.text
            for c in client.tuning.GetTuning(problem={"text": ONE}).candidates
            if not c.error_message and c.text != best
        )
        cli(warm).ok("pin", ONE, other, "--reason", "canary")
        pinned = client.get_one(ONE).answer
        assert (pinned.winner.text, pinned.pinned, pinned.pin_reason) == (other, True, "canary")
        cli(warm).ok("unpin", ONE)
        assert client.get_one(ONE).answer.winner.text == best
    assert cli(warm)("unpin", ONE).code == 3
    assert cli(warm)("pin", ONE, "graph:eng99999", "--reason", "none such").code != 0


def test_tune_and_delete(warm, cli):
    text = "fwd,x=1x32x17x17,w=32x32x3x3,pad=1,nhwc,f16"
    run = cli(warm)
    run.ok("tune", text)
    run.ok("get", text)
    run.ok("delete", text)
    assert run("get", text).code == run("delete", text).code == 3


def test_database_commands(warm, cli, tmp_path):
    cli(warm).ok("db", "check")
    cli(warm).ok("db", "backup", "copy.db")
    copy = warm.state_dir / "backup/copy.db"
    connection = sqlite3.connect(copy)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()
    again = cli(warm)("db", "backup", copy)
    assert again.code != 0 and "path: must not exist" in again.err
    elsewhere = cli(warm)("db", "backup", tmp_path / "copy.db")
    assert elsewhere.code == 2 and "path: must be a file directly in the daemon's --backup-dir" in elsewhere.err
    assert not (tmp_path / "copy.db").exists()
    by_time = cli(warm).ok("db", "backup").err
    assert re.search(rf"to {warm.state_dir}/backup/convtune-\d{{8}}T\d{{6}}Z\.db", by_time), by_time
    cli(warm).ok("db", "compact")


def test_bash_completes_words_files_and_shells(cli, convtune, tmp_path):
    (tmp_path / "completion").write_text(cli().ok("completion", "bash").out)
    (tmp_path / "model one.onnx").touch()
    (tmp_path / "list").touch()

    def complete(*words):
        script = "source ./completion; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _convtune; "
        script += "printf '%s\\n' \"${COMPREPLY[@]}\""
        done = subprocess.run(
            ["bash", "-c", script, "-", convtune, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return sorted(done.stdout.splitlines())

    assert complete("comp") == ["completion"]
    assert complete("completion", "z") == ["zsh"]
    assert complete("warm", "--min") == ["--min-evidence"]
    assert complete("warm", "m") == ["model one.onnx"]
    assert complete("warm", "list", "") == ["completion", "list", "model one.onnx"]
    for words in (("get", "--file"), ("run", "--snapshot"), ("export",), ("merge", "out"), ("run", "--")):
        assert complete(*words, "li") == ["list"], words
    assert complete("get", "--on-miss", "e") == ["enqueue"]
    # Settings that are wrong are no reason to say nothing.
    (tmp_path / "bad.toml").write_text("address = [")
    bad = cli(None, env={"CONVTUNE_CONFIG": str(tmp_path / "bad.toml")})
    assert "completion" in bad.ok("completion", "bash", "--", "comp").out.splitlines()


def test_exit_codes(warm, cli, tmp_path):
    run = cli(warm)
    assert run("get", "fwd,x=1x3x9x9,w=8x3x3x3").code == 3
    assert run("get", "fwd,x=1x3x9x9,w=8x4x3x3").code == 2
    assert run("get", ONE, "fwd,x=1x3x9x9,w=8x3x3x3").code == 3
    assert run("frobnicate").code == 2
    assert run("get", ONE, "--address", f"unix:{tmp_path}/nobody").code == 4
    mixed = tmp_path / "mixed.txt"
    mixed.write_text(f"{ONE}\nfwd,x=1x3x9x9,w=8x4x3x3\nfwd,x=1x3x9x9,w=8x3x3x3\n")
    result = run("get", "--file", mixed)
    assert result.code == 2
    assert "groups" in (result.out + result.err)


def test_data_on_stdout_and_words_on_stderr(warm, cli):
    """Where neither is a terminal there are no colours and no bar."""
    tuned = cli(warm).ok("tune", ONE, "--force", "--json")
    assert tuned.json()
    assert "\x1b" not in tuned.out + tuned.err and "\r" not in tuned.err


def test_a_full_disk_behind_the_output_is_said(convtune):
    fleet = pathlib.Path(convtune).with_name("convtune-fleet")
    for arguments in ([convtune, "--help"], [convtune, "tune", "--help"], [fleet, "--help"]):  # less and more than a buffer
        with open("/dev/full", "w") as full:
            done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (1, "error: standard output: No space left on device\n"), arguments


def test_two_profiles_are_two_environments(daemons, worker, cli):
    daemon = daemons("--devices", "none", "--profile", PROFILE, "--profile", "nvidia-l4", "--worker", worker).start()
    run = cli(daemon)
    unnamed = run("get", ONE)
    assert unnamed.code == 2, unnamed
    assert ENVIRONMENT in unnamed.err and "profile:nvidia-l4" in unnamed.err
    run.ok("get", ONE, "--environment", ENVIRONMENT, "--on-miss", "heuristic")
    assert run("get", ONE, "--environment", ENVIRONMENT).code == 0
    assert run("get", ONE, "--environment", "profile:nvidia-l4").code == 3
    assert run("get", ONE, "--environment", "nvidia-h200").code == 3


def test_once_warms_and_exits_without_a_socket(daemons, convtuned, worker, cli, tmp_path):
    listing = tmp_path / "warm.txt"
    listing.write_text(f"{ONE}\n{VARIED[0]}\n")
    state = tmp_path / "state"
    command = [convtuned, "--state-dir", state, "--devices", "none", "--profile", PROFILE, "--worker", worker,
               "--once", "--file", listing]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not list(tmp_path.rglob("*.sock")) and not [p for p in state.rglob("*") if p.is_socket()]

    again = subprocess.run(command, capture_output=True, timeout=120)
    assert again.returncode == 0, again.stderr[-3000:]

    daemon = daemons("--devices", "none", "--profile", PROFILE, "--worker", worker)
    daemon.state_dir = state
    daemon.start()
    shown = cli(daemon).ok("get", "--file", listing, "--json").json()["results"]
    assert all("answer" in r for r in shown)
    with daemon.client() as client:
        assert client.info().worker_starts == 0
