"""convtune warm, and what it says."""

import subprocess
import threading

import pytest

from harness.fakes import script

PROBLEMS = [f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1,nhwc,f16" for n in (1, 4, 2)]


@pytest.fixture
def model(tmp_path):
    """A list with doubles, as a recorded one has: three times batch 2 is more than batch 4."""
    path = tmp_path / "model.txt"
    path.write_text("# recorded\n" + "\n".join([*PROBLEMS, PROBLEMS[2], PROBLEMS[2]]) + "\n")
    return path


def test_most_work_is_tuned_first_and_a_second_run_asks_for_nothing(fake_daemon, cli, model):
    daemon = fake_daemon(env=script(log=model.parent / "log")).start()
    run = cli(daemon)
    result = run.ok("warm", model, "--json")
    assert result.json()["problems"] == 3 and result.json()["tuned"] == 3
    assert "the model is warm" in result.err
    opened = [line for line in (model.parent / "log").read_text().splitlines() if ",x=" in line]
    asked = list(dict.fromkeys(line[line.index(",x=") + 3] for line in opened))
    assert asked == ["2", "4", "1"]
    before = daemon.client().info().worker_requests
    again = run.ok("warm", model, "--json").json()
    assert (again["hits"], again["tuned"]) == (3, 0)
    assert daemon.client().info().worker_requests == before


def test_where_nothing_is_wanted_there_is_nothing_to_do(fake_daemon, cli):
    run = cli(fake_daemon().start())
    listed = run.ok("wanted", "--csv").out
    assert listed.startswith("problem,") and listed.count("\n") == 1
    done = run("warm", "-", stdin=listed.encode())
    assert (done.code, done.out, done.err) == (0, "", "stdin: nothing is wanted\n")
    failed = run("warm", "-", stdin=b"problem,misses\n")  # as of a `convtune wanted` that failed
    assert failed.code == 2 and "must hold at least one problem" in failed.err, failed


def test_what_fails_is_counted_by_reason_and_ends_with_1(fake_daemon, cli, model):
    result = cli(fake_daemon(env=script(refused=1)).start())("warm", model, "--json")
    assert result.code == 1, result
    summary = result.json()
    assert summary["failed"] == 3 and not summary["warm"]
    assert sum(f["count"] for f in summary["failures"]) == 3
    assert "the model is not warm" in result.err


def test_heuristic_answers_are_warm_on_a_profile_only(daemons, cli, worker, model):
    daemon = daemons("--devices", "none", "--profile", "nvidia-h200", "--worker", worker).start()
    run = cli(daemon)
    assert run.ok("warm", model, "--json").json()["warm"]
    assert run.ok("warm", model, "--json").json()["hits"] == 3
    result = run("warm", model, "--json", "--min-evidence", "measured")
    assert result.code == 1 and result.json()["failures"][0]["reason"] == "only heuristic evidence"


@pytest.mark.ci
def test_it_waits_for_the_daemon(fake_daemon, cli, model, monkeypatch):
    # What gRPC does for a connection that nobody waits in would come too late here.
    monkeypatch.setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100000")
    daemon = fake_daemon()
    run = cli(daemon)
    result = run("warm", model, "--wait-ready", "200ms")
    assert result.code == 4 and "not ready within 200ms" in result.err, result
    starter = threading.Timer(1, daemon.start, kwargs={"wait": False})
    starter.start()
    assert run.ok("warm", model, "--wait-ready", "30s", "--json").json()["warm"]
    starter.join()


def test_rows_that_are_wrong_are_said_and_the_others_tuned(fake_daemon, cli, model):
    with model.open("a") as file:
        file.write("fwd,x=1x64x7x7,w=64x63x3x3\n")
    result = cli(fake_daemon().start())("warm", model, "--json")
    assert result.code == 2 and "model.txt:7: " in result.err, result
    assert result.json()["tuned"] == 3


def test_once_tunes_in_the_same_order_and_only_what_is_missing(daemons, fake_worker, model, convtuned, tmp_path):
    command = [convtuned, "--once", "--file", model, "--state-dir", tmp_path / "state", "--devices", "0", "--worker", fake_worker]
    first = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert first.returncode == 0 and "3 problems: 0 had an answer, 3 were tuned, 0 have none\nthe model is warm" in first.stdout, first
    second = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert second.returncode == 0 and "3 problems: 3 had an answer, 0 were tuned, 0 have none\nthe model is warm" in second.stdout, second


def test_what_list_prints_as_csv_is_a_list_of_problems(fake_daemon, cli, model):
    run = cli(fake_daemon().start())
    run.ok("warm", model)
    listed = model.parent / "listed.csv"
    listed.write_text(run.ok("list", "--csv").out)
    again = run.ok("warm", listed, "--json")
    assert again.json()["hits"] == 3 and "ignored columns: environment, winner" in again.err, again


@pytest.mark.ci
def test_a_total_budget_tunes_what_promises_most_first_and_names_the_rest(fake_daemon, cli, tmp_path):
    # Twice as much work counts as much as modes A and B that differ: batch 2 goes before batch 3.
    daemon = fake_daemon(env=script(log=tmp_path / "log", measure_delay_ms=300, disagree="x=2x64")).start()
    model = tmp_path / "model.txt"
    model.write_text("\n".join(f"fwd,x={n}x64x56x56,w=64x64x3x3,pad=1,nhwc,f16" for n in (1, 2, 3)) + "\n")
    run = cli(daemon)
    result = run("warm", model, "--budget", "1500ms", "--budget-total", "2s", "--json")
    assert result.code == 1, result
    assert "the order is a heuristic: " in result.err and "they do for 1 of 3 problems" in result.err
    opened = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("open ")]
    batches = [line[line.index(",x=") + 3] for line in opened]
    assert batches[:3] == ["3", "2", "1"], "the lists that the order is made of"
    assert batches[3:] in (["2", "3"], ["2", "3", "1"])
    summary = result.json()
    assert summary["tuned"] == 1 and not summary["warm"]
    assert [problem[:7] for problem in summary["notTuned"]] == ["fwd,x=3", "fwd,x=1"]
    assert summary["failures"][0]["reason"] == "not tuned: --budget-total ended"
    assert "not tuned: fwd,x=3x64" in result.err and "the model is not warm" in result.err
    # A second run goes on with them.
    again = run.ok("warm", model, "--budget-total", "1m", "--json").json()
    assert (again["hits"], again["tuned"], again["notTuned"]) == (1, 2, [])
