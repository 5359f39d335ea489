"""What cuDNN's legacy heuristic lists first guards callers of the legacy API, wherever a tuning goes."""

import csv
import io

import pytest

from harness.fakes import script

PROBLEM = "fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"
STOCK = "legacy:algo2,math0"  # the fake prefers its last algorithm
RANKS = {"legacy:algo0,math0": 2, "legacy:algo1,math0": 1, STOCK: 0}


@pytest.fixture
def tuned(fake_daemon, cli):
    """tuned(slower_us) is a daemon whose stock choice takes that much more, and its command line."""

    def start(slower_us):
        daemon = fake_daemon().start(env=script(legacy=3, legacy_slower_us=slower_us))
        run = cli(daemon)
        run.ok("tune", PROBLEM)
        return daemon, run

    return start


def ranks(run):
    candidates = run.ok("explain", PROBLEM, "--json").json()["tuning"]["candidates"]
    return {c["text"]: c.get("heuristicRank", 0) for c in candidates if c["text"].startswith("legacy:")}


def legacy_winner(run):
    return run.ok("get", PROBLEM, "--api", "legacy", "--json").json()["results"][0]["answer"]["winner"]["text"]


def test_explain_says_what_a_legacy_caller_would_run(tuned):
    _, run = tuned(20)
    explained = run.ok("explain", PROBLEM, "--api", "legacy").out
    assert "The winner is legacy:algo0,math0." in explained
    assert f"cuDNN's legacy heuristic would have run {STOCK} (" in explained
    assert "legacy-stock" in next(line for line in explained.splitlines() if STOCK in line)
    # Callers of both are compared with the graph API's.
    assert "cuDNN's legacy heuristic" not in run.ok("explain", PROBLEM).out
    rows = {r["candidate"]: r for r in csv.DictReader(io.StringIO(run.ok("explain", PROBLEM, "--csv").out))}
    assert {text: int(rows[text]["heuristic_rank"]) for text in RANKS} == RANKS
    assert [text for text, row in rows.items() if "legacy-stock" in row["notes"].split(";")] == [STOCK]
    assert [text.split(":")[0] for text, row in rows.items() if row["stock"] == "true"] == ["graph"]


def test_its_places_survive_a_restart_a_bundle_and_a_recording(tuned, bare_daemon, fake_daemon, cli, tmp_path):
    daemon, run = tuned(0)
    assert ranks(run) == RANKS
    run.ok("export", tmp_path / "b.bundle")
    daemon.stop()
    run = cli(daemon.start())
    assert ranks(run) == RANKS and legacy_winner(run) == STOCK
    explained = run.ok("explain", PROBLEM, "--api", "legacy").out
    assert "It is also what cuDNN's legacy heuristic would have run (the stock choice)." in explained

    other = cli(bare_daemon.start())
    other.ok("import", tmp_path / "b.bundle")
    assert ranks(other) == RANKS and legacy_winner(other) == STOCK

    replayed = cli(fake_daemon(env={"CONVTUNE_FAKE_SCRIPT": f"recording={tmp_path / 'b.bundle'}"}).start())
    replayed.ok("tune", PROBLEM)
    assert ranks(replayed) == RANKS and legacy_winner(replayed) == STOCK
