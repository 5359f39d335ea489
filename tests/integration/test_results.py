"""Results that are wrong are never served, and their error is a constraint; times of finalists in other ways."""

import json

import json

from harness.fakes import script
from harness.problems import numbered

WRONG = 2  # index of the candidate whose output is far from the reference, in the fake's listing


def test_wrong_result_is_never_served_and_survives_a_restart(fake_daemon, cli):
    text = numbered(1)
    daemon = fake_daemon().start(env=script(wrong=WRONG))
    with daemon.client() as client:
        assert client.tune(text).succeeded_count == 1
    run = cli(daemon)
    why, line = [line for line in run.ok("explain", text).out.splitlines() if "eng2," in line]
    assert why.startswith("quarantined: graph:eng2,k2=2 (wrong-result, ")
    assert "quarantined" in line.lower() and "differs from the reference" in line
    daemon.stop()
    daemon.start(env=script())
    with daemon.client() as client:
        assert client.tune(text, options={}, force=True).succeeded_count == 1
    _, line = [line for line in run.ok("explain", text).out.splitlines() if "eng2," in line]
    assert "quarantined" in line.lower()


def test_why_something_is_quarantined_and_why_a_tuning_is_incomplete_are_fields(fake_daemon, cli):
    text = numbered(1)
    daemon = fake_daemon().start(env=script(wrong=WRONG))
    with daemon.client() as client:
        assert client.tune(text).succeeded_count == 1
    tuning = cli(daemon).ok("explain", text, "--json").json()["tuning"]
    (entry,) = tuning["quarantine"]
    assert entry["reason"] == "QUARANTINE_REASON_WRONG_RESULT" and entry["candidate"].startswith("graph:eng2,")
    assert "INCOMPLETE_REASON" not in json.dumps(tuning)
    daemon.stop()


def test_what_could_not_be_judged_is_never_published(fake_daemon, cli):
    text = numbered(1)
    daemon = fake_daemon("--publish-evidence", "heuristic").start(env=script(wrong=-2))
    with daemon.client() as client:
        assert client.tune(text).succeeded_count == 1
    run = cli(daemon)
    tuning = run.ok("explain", text, "--json").json()["tuning"]
    assert "INCOMPLETE_REASON_UNJUDGED" in tuning["incompleteReasons"]
    assert tuning["evidence"] == "EVIDENCE_HEURISTIC" and "quarantine" not in tuning
    assert "could not be judged" in run.ok("explain", text).out
    diff = run.ok("release", "diff", "--json").json()
    assert not diff.get("changes")
    daemon.stop()


def test_max_error_is_a_constraint_from_end_to_end(fake_daemon, cli):
    text = numbered(1)
    daemon = fake_daemon().start(env=script())
    with daemon.client() as client:
        assert client.tune(text).succeeded_count == 1
        # The fake's candidate i has an error of 1e-4 * (i + 1).
        answer = client.get_one(text, constraints={"max_error": 1.5e-4}).answer
        assert answer.winner.text == "graph:eng0,k2=0"
        assert abs(answer.winner.error - 1e-4) < 1e-9
    run = cli(daemon)
    assert run.ok("get", text, "--max-error", "1.5e-4", "--json").out.count('"graph:eng0,k2=0"') >= 1
    assert run("get", text, "--max-error", "1e-5").code == 3


def test_replays_answer_graph_launches(fake_daemon):
    text = numbered(1)
    daemon = fake_daemon().start(env=script(host_us=500))
    with daemon.client() as client:
        assert client.tune(text).succeeded_count == 1
        eager = client.get_one(text).answer
        replayed = client.get_one(text, constraints={"launch": "LAUNCH_MODE_GRAPH_CAPTURE"}).answer
        assert eager.winner.median_us < 200 and eager.winner.host_us == 500
        assert replayed.winner.median_us < 200 and replayed.winner.host_us == 0
        assert replayed.winner.capture == 1 and not replayed.note


def test_all_ways_of_timing_on_request(fake_daemon, cli):
    text = numbered(1)
    daemon = fake_daemon().start(env=script(candidates=2))
    run = cli(daemon)
    ways = []
    for options in ([], ["--all-timings", "--force"]):
        run.ok("tune", text, *options)
        tuning = json.loads(run.ok("explain", text, "--json").out)["tuning"]
        captured = [c for c in tuning["candidates"] if c.get("capture") == "CAPTURE_SUPPORT_YES"]
        assert captured
        ways.append({(t["launch"], t["cacheState"]) for t in captured[0]["otherTimes"]})
    eager, replay = "LAUNCH_MODE_EAGER", "LAUNCH_MODE_GRAPH_CAPTURE"
    assert ways[0] == {(eager, "CACHE_STATE_COLD"), (replay, "CACHE_STATE_INPUT_HOT")}
    assert ways[1] == ways[0] | {(eager, "CACHE_STATE_HOT"), (replay, "CACHE_STATE_COLD"), (replay, "CACHE_STATE_HOT")}
